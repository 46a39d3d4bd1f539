"""What is published on `releases.<view>.<audience>`: the public record models, their bytes and their JSON Schema.

A record is closed: a field that is not here is never published. A change of its form raises `SCHEMA_VERSION`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from stream_dp.accounting import Cost
from stream_dp.exact.rationals import decimal_down, decimal_up, exact_text, parse_exact
from stream_dp.kinds.selection import Mechanism
from stream_dp.windows.durations import format_time

SCHEMA_VERSION: Final = 1
NEIGHBOURS = (
    "Two inputs are neighbours if one is the other with everything that one user did in the windows of the ledger's "
    "period added or removed. All records charged to the ledger in a period are together "
    "(epsilon, delta)-differentially private for its budget."
)
_RATIONAL = r"^(0|[1-9][0-9]*)(/[1-9][0-9]*)?$"
_DECIMAL = r"^(0|[1-9][0-9]*)(\.[0-9]+)?(e-?[0-9]+)?$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z$"


class PublicRecord(BaseModel):
    """A part of what is published."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Amount(PublicRecord):
    """An exact number, and a decimal for the eye."""

    exact: str = Field(pattern=_RATIONAL, description='The number itself, "p/q" in lowest terms or "p".')
    decimal: str = Field(
        pattern=_DECIMAL,
        description="The number in at most 12 significant digits: rounded up where it is a cost or a budget, "
        "rounded down where it is what is left.",
    )

    @classmethod
    def up(cls, value: Fraction) -> Amount:
        """A cost: its decimal never says less than was spent."""
        return cls(exact=exact_text(value), decimal=decimal_up(value))

    @classmethod
    def down(cls, value: Fraction) -> Amount:
        """What is left: its decimal never says more than there is."""
        return cls(exact=exact_text(value), decimal=decimal_down(value))


def _absent(schema: dict[str, Any]) -> None:
    """An optional field is left out where it says nothing; it is never null."""
    del schema["default"]


class Price(PublicRecord):
    """A privacy cost for one user of the population."""

    epsilon: Amount = Field(description="Epsilon, pure: all of it adds up.")
    delta: Amount = Field(description="Delta.")
    squares: Amount | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra=_absent,
        description="Sum of the squared epsilons of a selection's draws, charged to the ledger's part for selections.",
    )
    rho: Amount | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra=_absent,
        description="Zero-concentrated differential privacy of the counts, charged to the ledger's part for it.",
    )

    @classmethod
    def spent(cls, cost: Cost) -> Price:
        """A cost, decimals rounded up."""
        return cls(**{name: Amount.up(value) for name, value in cost.entries(at_least=2)})

    @classmethod
    def left(cls, cost: Cost) -> Price:
        """What is left of epsilon and delta, decimals rounded down."""
        return cls(epsilon=Amount.down(cost.epsilon), delta=Amount.down(cost.delta))

    @property
    def cost(self) -> Cost:
        """The exact cost."""
        return Cost(*(Fraction(0) if entry is None else parse_exact(entry.exact) for _, entry in self))


class Interval(PublicRecord):
    """A stretch of time, the start in it and the end not."""

    start: str = Field(pattern=_TIME, description="First moment, RFC 3339 in UTC.")
    end: str = Field(pattern=_TIME, description="First moment after it, RFC 3339 in UTC.")
    start_ms: int = Field(description="`start` in milliseconds since 1970-01-01T00:00:00Z.")
    end_ms: int = Field(description="`end` in milliseconds since 1970-01-01T00:00:00Z.")

    @classmethod
    def of(cls, start_ms: int, end_ms: int) -> Interval:
        """The interval `[start_ms, end_ms)`."""
        return cls(start=format_time(start_ms), end=format_time(end_ms), start_ms=start_ms, end_ms=end_ms)


class Level(PublicRecord):
    """A privacy level of the view's ladder."""

    name: str = Field(description="The level's name.")
    epsilon: Amount = Field(
        description="What the counts of one window at this level cost one user, over all their items. The choice of "
        "a top-k's keys comes on top of it; `held` has both."
    )


class AccountPart(PublicRecord):
    """A part of a ledger's budget, with an account of its own."""

    epsilon: Amount = Field(description="What the part takes of the budget's epsilon.")
    slack: Amount = Field(description="What it takes of the budget's delta.")
    budget: Amount = Field(description="What may be charged to it in the period, in its own unit.")
    left: Amount = Field(description="What was left of that when this record was made.")


class AccountParts(PublicRecord):
    """The parts of a ledger that are not pure."""

    selection: AccountPart | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_absent, description="For draws of selections, in squares of epsilon."
    )
    zcdp: AccountPart | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_absent, description="For the noise of counts, in rho of zCDP."
    )


class Account(PublicRecord):
    """The ledger that pays for a record."""

    name: str = Field(description="The ledger's name.")
    population: str = Field(description="Who is protected: one of these is a user.")
    period: Interval = Field(description="The period that the window is charged to.")
    budget: Price = Field(description="What may be spent on one user in the period, over all views and audiences.")
    left: Price = Field(
        description="What was left of it when this record was made; where the ledger has parts, of what they do not "
        "take."
    )
    parts: AccountParts | SkipJsonSchema[None] = Field(
        default=None, json_schema_extra=_absent, description="The parts of the budget, where it has any."
    )


class ItemCount(PublicRecord):
    """A key and its noisy count."""

    item: str = Field(description="The key.")
    count: int = Field(description="Number of users who had the key in the window, with the level's noise.")


class RankedCount(PublicRecord):
    """A selected key and its noisy count."""

    rank: int = Field(ge=1, description="Place in the selection, 1 first. Noisy counts need not fall with it.")
    item: str = Field(description="The key.")
    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative."
    )


class _Publication(PublicRecord):
    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that made the record.")
    view: str = Field(description="The view: the configured question.")
    audience: str = Field(description="The group of readers this record is for.")
    window: Interval = Field(description="The window the record is about.")
    revision: int = Field(ge=1, description="Number of the record among those of its view, window and audience.")
    neighbours: str = Field(description="What the guarantee hides, in words.")
    ledger: Account = Field(description="The account it is charged to.")


class _Release(_Publication):
    type: Literal["release"] = Field(description="A release; a higher revision replaces a lower one.")
    level: Level = Field(description="The level of the counts' noise.")
    noise_interval_95: int = Field(
        ge=0, description="Half width: the noise of one count lies in plus or minus this with at least 95 % chance."
    )
    charged: Price = Field(
        description="What the ledger paid when this record was made: the difference to what had been paid for the "
        "window before; zero if another audience's release already covers it."
    )
    held: Price = Field(description="What this audience, alone, has now been told about the window.")


class HistogramRelease(_Release):
    """A histogram over unknown keys: every key with a noisy count of at least `minimum_count`."""

    kind: Literal["histogram"] = Field(description="A histogram over unknown keys.")
    minimum_count: int = Field(
        ge=1, description="Keys with a smaller noisy count are not shown, so that one user alone cannot show a key."
    )
    items: list[ItemCount] = Field(description="The keys shown, largest noisy count first, then by key.")


class TopKRelease(_Release):
    """The most frequent of unknown keys, in the order of the selection."""

    kind: Literal["topk"] = Field(description="The most frequent of unknown keys.")
    k: int = Field(ge=1, description="How many keys were asked for.")
    complete: bool = Field(
        description="Whether k keys were found; false where the rest is too close to tell apart, and the list ended."
    )
    selection: Mechanism | SkipJsonSchema[None] = Field(
        default=None,
        json_schema_extra=_absent,
        description="How the keys were chosen, where it was not by draws with Gumbel noise. With fixed-threshold they "
        "are a set: their order is that of the keys and means nothing.",
    )
    items: list[RankedCount] = Field(description="The keys selected, best first.")


class Refusal(_Publication):
    """A window, or a sharper revision of it, that the ledger could not pay for. Nothing was drawn, nothing charged."""

    type: Literal["refusal"] = Field(description="A refusal; releases made before stay as they are.")
    kind: Literal["histogram", "topk"] = Field(description="What the view publishes.")
    level: Level = Field(description="The level that was asked for.")
    reason: Literal["budget"] = Field(description="budget: what the ledger has left does not cover `asked`.")
    asked: Price = Field(description="What it would have cost at worst; less than that is left in one entry.")
