"""Models of what is published: releases and refusals, entries of the ledgers' accounts, and the status of workers.

A record is closed: a field that is not here, or in the model of its kind, is never published. A later stream-dp may add
fields, at any level, without which what is here stays true; readers pass over what they do not know. Everything else
raises `SCHEMA_VERSION`: a field that goes, gets another name, form or meaning, or may be absent where it was always
there; a further value of a field that names one of several; a new entry of a price, since sums without it would be too
small. A new kind raises nothing: a topic has one kind, and only readers of that topic have to know it. Nor does a new
`type` of record: readers pass over those that they do not know.

As long as nothing is refused or cut short (`when_short`), a record is a function of what its own audience was released,
and of the configuration and the grants: `privacy` adds up the costs of the audience's own releases. What the ledger
paid and has left depends on what the selections of all views have cost, so that is published to the operators' topic
alone (`LedgerEntry`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from stream_dp.accounting import Cost
from stream_dp.errors import StateError
from stream_dp.exact.rationals import decimal_down, decimal_up, exact_text
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


DecimalText = Annotated[str, Field(pattern=_DECIMAL)]
"""A number whose exact value is no short fraction, or no fraction: text, so that no reader of JSON rounds it."""


class Amount(PublicRecord):
    """A number that need not be whole: its exact value, and a decimal for the eye.

    Records write numbers in three forms. A whole number is a number of JSON. Any other is one of these; or, where its
    exact value is no short fraction, a decimal text, rounded as its field says.
    """

    exact: str = Field(pattern=_RATIONAL, description='The number itself, "p/q" in lowest terms or "p".')
    decimal: str = Field(
        pattern=_DECIMAL,
        description="The number in at most 12 significant digits: rounded down where it is what a ledger has left, "
        "a gap or a margin, else rounded up.",
    )

    @property
    def value(self) -> Fraction:
        """The number itself."""
        return Fraction(self.exact)

    @classmethod
    def up(cls, value: Fraction) -> Amount:
        """A cost: its decimal never says less than was spent."""
        return cls(exact=exact_text(value), decimal=decimal_up(value))

    @classmethod
    def down(cls, value: Fraction) -> Amount:
        """A remainder: its decimal never says more than there is."""
        return cls(exact=exact_text(value), decimal=decimal_down(value))


def optional(description: str) -> Any:  # noqa: ANN401  as pydantic's `Field`
    """Return an optional field, which is left out where it says nothing: it is never null in the schema.

    Args:
        description: of the field.
    """
    return Field(default=None, json_schema_extra=_no_default, description=description)


def _no_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class PrivacyCost(PublicRecord):
    """A privacy cost for one user of the population."""

    epsilon: Amount = Field(description="Epsilon, pure: all of it adds up.")
    delta: Amount = Field(description="Delta.")
    rho: Amount | SkipJsonSchema[None] = optional(
        "Zero-concentrated differential privacy of counts and of a selection's draws, charged to the ledger's pool."
    )

    @classmethod
    def spent(cls, cost: Cost) -> PrivacyCost:
        """A cost, decimals rounded up."""
        return _spent(cost)

    @classmethod
    def left(cls, cost: Cost) -> PrivacyCost:
        """Return a remaining budget, decimals rounded down."""
        return cls(**{name: Amount.down(value) for name, value in cost.entries(at_least=2)})

    @property
    def cost(self) -> Cost:
        """The exact cost."""
        return Cost(*(Fraction(0) if entry is None else entry.value for _, entry in self))


@lru_cache(maxsize=256)  # of most records only what is left, and the loss in the period, is another
def _spent(cost: Cost) -> PrivacyCost:
    return PrivacyCost(**{name: Amount.up(value) for name, value in cost.entries(at_least=2)})


class PeriodPrivacyLoss(PublicRecord):
    """Cumulative privacy loss of one audience in a period."""

    period: PrivacyCost = Field(
        description="Cumulative privacy loss of this audience, alone, under the ledger in the period so far, over all "
        "its views, this record included. The releases of other audiences are not in it."
    )


class PrivacyLoss(PeriodPrivacyLoss):
    """Cumulative privacy loss of one audience, in a window and in its period."""

    window: PrivacyCost = Field(
        description="Cumulative privacy loss of this audience, alone, in the window, over all revisions of it so far."
    )


class TimeRange(PublicRecord):
    """An interval of time, the start in it and the end not."""

    start: str = Field(pattern=_TIME, description="First moment, RFC 3339 in UTC.")
    end: str = Field(pattern=_TIME, description="First moment after it, RFC 3339 in UTC.")
    start_ms: int = Field(description="`start` in milliseconds since 1970-01-01T00:00:00Z.")
    end_ms: int = Field(description="`end` in milliseconds since 1970-01-01T00:00:00Z.")

    @classmethod
    def of(cls, start_ms: int, end_ms: int) -> TimeRange:
        """The interval `[start_ms, end_ms)`."""
        return _interval(start_ms, end_ms)


@lru_cache(maxsize=256)  # those of the windows of a slot, and of their periods
def _interval(start_ms: int, end_ms: int) -> TimeRange:
    return TimeRange(start=format_time(start_ms), end=format_time(end_ms), start_ms=start_ms, end_ms=end_ms)


class Level(PublicRecord):
    """A privacy level of the view's ladder."""

    name: str = Field(description="The level's name.")
    epsilon: Amount | SkipJsonSchema[None] = optional(
        "What the counts of one window at this level cost one user, over all their items. The choice of "
        "a top-k's keys comes on top of it; `privacy.window` has both. With truncated discrete laplace noise it holds "
        "but for the window's delta. With discrete gaussian noise `rho` says it."
    )
    rho: Amount | SkipJsonSchema[None] = optional(
        "The same of discrete gaussian noise, in zCDP. It is that of the finest level, which is paid for at once."
    )


class Noise(PublicRecord):
    """The law of the noise of a count, before it is decided which keys are shown."""

    distribution: Literal[
        "discrete laplace", "truncated discrete laplace", "clamped discrete laplace", "discrete gaussian"
    ] = Field(
        description="Of a laplace law, noise is a whole number k, with probability (1 - a) / (1 + a) * a^|k|, where a "
        "is `ratio`. A count of a record with `panes` or `blocks` has the sum of so many of them, which are "
        "independent. The noise of different keys is independent, and so is that of windows that do not overlap. That "
        "of revisions of one "
        "window, of totals since one start, of windows that overlap, and of other audiences' counts, may not be. Of a "
        "clamped law, counts below 0 and above `largest_count` are moved to these ends, and with probability `uniform` "
        "a count is uniform between them instead: an empty key has a positive count on average. Of a truncated law, no "
        "k is more than `largest` away from 0, and all others are more likely by one factor. Of a discrete gaussian "
        "law, k has a probability proportional to e^(-k^2 / (2 * variance))."
    )
    ratio: Amount | SkipJsonSchema[None] = optional(
        "Of a laplace law: a, exactly as it is drawn. Every further step away from 0 is a "
        "times as likely. So the noise of a count without `panes` and `blocks` is more than t away from 0 with "
        "probability 2 * a^(t + 1) / (1 + a)."
    )
    variance: Amount | SkipJsonSchema[None] = optional(
        "Of a gaussian law: its parameter, which the variance of the noise does not exceed. Noise of a coarser level "
        "is a sum of such numbers, whose chances differ from these by less than 0.1 %."
    )
    scale: DecimalText = Field(
        description="Decimal text, rounded up. Of a laplace law 1 / ln(1/a): probabilities are proportional "
        "to e^(-|k| / scale). Of a gaussian law its standard deviation.",
    )
    largest: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "Of a truncated law: the largest noise. With u = a^(largest + 1), noise is more than t away from 0 with "
        "probability 2 * (a^(t + 1) - u) / (1 + a - 2 * u), for t up to `largest`."
    )
    largest_count: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional("Of a clamped law: the largest count.")
    uniform: Amount | SkipJsonSchema[None] = optional("Of a clamped law: the chance of a uniform count.")


class AccountPool(PublicRecord):
    """The pool of a ledger: the part of its budget that is counted in rho of zCDP."""

    epsilon: Amount = Field(description="What the pool takes of the budget's epsilon.")
    slack: Amount = Field(description="What it takes of the budget's delta.")
    budget: Amount = Field(description="The rho that may be charged to it in the period.")


class Account(PublicRecord):
    """The ledger that pays for a record."""

    name: str = Field(description="The ledger's name.")
    population: str = Field(
        description="Who is protected: one of these is a user. What is spent is kept under these words, not under the "
        "name."
    )
    period: TimeRange = Field(
        description="The period that the window is charged to; one that has begun keeps its length until it ends."
    )
    budget: PrivacyCost = Field(
        description="What may be spent on one user in the period, over all views and audiences; a period keeps the "
        "budget that it began with."
    )
    zcdp: AccountPool | SkipJsonSchema[None] = optional(
        "The pool, for the noise of counts and the draws of selections, where the ledger has one."
    )


class ItemCount(PublicRecord):
    """A key and its noisy count."""

    item: str = Field(description="The key.")
    count: int = Field(
        description="Number of users who had the key in the window, with the level's noise; it may be negative where "
        "no minimum count says which keys are shown."
    )


class CountRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stands for an `ItemCount` in a release that is written: of a million keys these take a thirtieth of the time."""

    count: int
    item: str
    new: bool | None = None
    """As in `HistogramItem`."""


class ShownKey(PublicRecord):
    """A key that is shown without a count."""

    item: str = Field(description="The key.")

    @property
    def count(self) -> Any:  # noqa: ANN401 - whoever knows that a kind has counts need not ask for each
        """None: how many users have it is not published."""
        return None


class Publication(PublicRecord):
    """Fields of every record of a release topic, whatever its kind."""

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that made the record.")
    view: str = Field(description="Name of the view.")
    edition: int = Field(
        ge=1,
        description="Number of the edition of the view that the window was made with, 1 for the one that it began "
        "with. An operator may change them while it runs: levels, bounds, the length of windows, even the kind. Each "
        "window is made with one edition, which every revision of it names. The record of type `view` with this number "
        "describes it: what is counted, and which inputs are neighbours.",
    )
    audience: str = Field(description="The group of readers this record is for.")
    window: TimeRange = Field(description="The window the record is about.")
    panes: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "Number of panes, of a window that is made of them: intervals of one length that are counted and "
        "noised each by itself. A user counts in each of them anew, so a count is the sum of the numbers of users "
        "who had the key in each pane, with the noise of all of them; costs are those of all of them."
    )
    blocks: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "Number of blocks of panes, each with noise of its own, whose sum a running total is: a total "
        "since the start of a window, released at the end of each pane. A user counts once in the whole window, "
        "and a level is paid for once for all of them; `window` ends with the pane."
    )
    revision: int = Field(ge=1, description="Number of the record among those of its view, window and audience.")
    ledger: Account = Field(description="The account it is charged to.")
    privacy: PeriodPrivacyLoss = Field(description="Cumulative privacy loss of this audience, alone.")


class Part(PublicRecord):
    """Number of a part of a release, and how many there are."""

    number: int = Field(ge=1, description="Number of the part, 1 first.")
    of: int = Field(ge=2, description="How many parts the release has.")


class Release(Publication):
    """Fields of every release; a kind adds its own, and describes its items (`records.by_kind`).

    Attributes:
        title: what a record of the kind is, for the schema.
    """

    title: ClassVar[str]
    type: Literal["release"] = Field(
        description="A release; of one window, with the same start and end, a higher revision replaces a lower one. It "
        "is finer and contains all information of the lower one: of several use the highest alone, no average of them.",
    )
    kind: str = Field(description="Release kind of the view.")
    level: Level = Field(description="The level of the counts' noise.")
    interrupted: Literal[True] | SkipJsonSchema[None] = optional(
        "true: the broker was unreachable repeatedly, so the window was closed before producers had time to "
        "deliver what they held back. Some of its events may be missing. Left out otherwise."
    )
    noise: Noise = Field(description="The law of that noise, for intervals with another confidence.")
    noise_interval_95: int = Field(
        ge=0,
        description="Half width: the noise of the count of a key that was named beforehand lies in plus or minus this "
        "with at least 95 % chance. So does that of a shown key where noise of the counts has no part in which keys "
        "are shown; where it has, as in a histogram, larger noise is more frequent among those, and two_sided_from "
        "says how to read them.",
    )
    privacy: PrivacyLoss = Field(description="Cumulative privacy loss of this audience, alone.")
    part: Part | SkipJsonSchema[None] = optional(
        "Of a release that is too large for one record: which part of it this is. The parts of a release "
        "have the view, audience, window and revision in common, and differ in this field and in their items: put "
        "together in the order of the parts, these are the items of the release. It counts when all its parts are "
        "there. Compaction may leave parts of a lower revision, but not all of them."
    )
    items: tuple[ItemCount | ShownKey, ...] = Field(description="Keys and their noisy counts.")

    def interval(self, entry: ItemCount) -> tuple[int, int]:
        """Ends of an interval for the true count of a shown key, by its item or the answer of `entry`.

        It holds with at least 95 % chance given that the key is shown, whatever the true count is; for each key by
        itself, not for the largest of them.
        """
        least, most = entry.count - self.noise_interval_95, entry.count + self.noise_interval_95
        return least if self.noise.largest_count is None else max(0, least), most

    def entry(self, item: str) -> ItemCount | None:
        """Return a key with its noisy count, None if the release does not show it, or shows it without one."""
        return next((one for one in self.items if one.item == item and isinstance(one, ItemCount)), None)

    def shows(self, item: str) -> bool:
        """Return True if a key is shown, with a count or without."""
        return self.entry(item) is not None or any(entry.item == item for entry in self.items)

    def extent(self) -> str:
        """Summary of how much it shows and what it leaves out, in a few words."""
        return f"{len(self.items)} shown"

    def count_of(self, item: str) -> int | None:
        """Return the noisy count of a key, None if the release does not show it, or shows it without one."""
        return None if (entry := self.entry(item)) is None else entry.count

    @property
    def is_empty(self) -> bool:
        """True if nothing can be read from it."""
        return not self.items

    @property
    def empty(self) -> str:
        """Words for a release without items."""
        return "nothing shown"

    def remark(self, entry: ItemCount | ShownKey) -> str:
        """Remark of the release on a key beside its count, in a few words; empty unless a kind has one."""
        return ""


Reason = Literal["budget", "lost"]
Refused = Literal["window", "sharpening"]


class Refusal(Publication):
    """A window, or a sharper revision of it, that is not released. Nothing was drawn, nothing charged.

    Where the ledger could not pay, a refusal reveals what the audience's own releases need not: that all releases
    which the ledger paid for in the period, those of other views and audiences too, have left the view less than
    `requested` in one entry, beside what is kept for other views. What a selection costs depends on the data. A
    refusal is a function of such costs, the configuration and the grants, so the ledger's guarantee covers it; no
    audience's `privacy` counts it. If it refuses the window and is not final, it also reveals that the window was drawn
    for others. What was lost was lost whatever the events say.
    """

    type: Literal["refusal"] = Field(description="A refusal; releases made before stay as they are.")
    kind: str = Field(description="Release kind of the view.")
    level: Level = Field(description="The level that was requested.")
    reason: Reason = Field(
        description="budget: what the releases of all views and audiences have left the view of the period's budget "
        "does not cover `requested`; some may be kept for other views. lost: counts of the window were lost by a "
        "failure of the system before it was released, or events that it may need were deleted before they were "
        "counted; `requested` is zero."
    )
    refuses: Refused = Field(
        description="window: this audience has no release of the window. sharpening: it has one, which stays valid, "
        "and a sharper revision is refused."
    )
    final: bool = Field(
        description="true: the window was released to nobody and never will be, whatever is granted. false: `level` "
        "may still be released while the window is retained: a later grant, or an unlock by age, asks for it again, "
        "or it is free because another audience got the window as fine. Nothing promises that it will be; where it "
        "is, the release has this revision or a higher one."
    )
    requested: PrivacyCost = Field(
        description="The cost that the ledger does not cover: of a window its worst case, released to all its "
        "audiences; of a sharper revision what its counts cost beyond those that this audience has."
    )


class AudienceCharge(PublicRecord):
    """An audience that a call of a ledger is for, and what it cost."""

    audience: str = Field(description="The audience.")
    revision: int = Field(ge=1, description="Revision of the record that the audience got.")
    level: str = Field(description="Name of the level that it is about.")
    charged: PrivacyCost = Field(
        description="Cost that the ledger paid for it: beyond the finest release that anyone had of the window, the "
        "audiences before it in this entry included. Zero of a refusal."
    )
    loss: PrivacyCost = Field(
        description="Privacy loss of the audience, alone, by this record: beyond what it had of the window. Zero of a "
        "refusal."
    )


class ViewShare(PublicRecord):
    """The part of a period's budget that is kept for a view."""

    view: str = Field(description="The view.")
    budget: PrivacyCost = Field(description="Budget that no other view may take, in the entries of the caps.")


class LedgerEntry(PublicRecord):
    """A call of a ledger: a window, or a sharper revision of it for one audience, that was charged or refused."""

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that made the entry.")
    type: Literal["charge", "refusal"] = Field(description="charge: it was paid and released; refusal: it was not.")
    ledger: Account = Field(description="The account.")
    view: str = Field(description="The view.")
    edition: int = Field(ge=1, description="Number of the edition of the view that the window was made with.")
    window: TimeRange = Field(description="The window.")
    requested: PrivacyCost = Field(description="Worst-case cost that the call asked the ledger for.")
    remaining: PrivacyCost = Field(description="Budget that remained after the call, in the entries of the caps.")
    remaining_for_view: PrivacyCost = Field(
        description="Part of `remaining` that the view may take: the rest is kept for other views of the ledger. A "
        "call that requests more is refused."
    )
    shares: tuple[ViewShare, ...] = Field(
        description="Budget that the period keeps for each view: in the first entries of a view in a period, and in "
        "those of windows with which an hour ends; empty in others. It is fixed when a period begins: a view that is "
        "not named came later and may take what is kept for none."
    )
    audiences: tuple[AudienceCharge, ...] = Field(
        min_length=1, description="The audiences that the call is for, coarsest level first."
    )


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class ViewStatus(_Part):
    """Progress of a view in one partition."""

    clock_ms: int = Field(description="Time of the view's clock: everything before it has been seen.")
    open_from_ms: int = Field(description="Start of the first window that is open.")
    source_clocks_ms: Mapping[int, int] = Field(
        {}, description="That time by partition of the source, where the source is not keyed by user."
    )


class GapStatus(_Part):
    """Records of a source that were deleted before they were counted, side by side in one partition."""

    first: int = Field(description="Offset of the first.")
    last: int = Field(description="Offset of the last.")
    at_ms: int = Field(description="The time of the first tick behind them.")


class PartitionStatus(_Part):
    """Progress of one partition, as it is stored."""

    lag: Mapping[str, int] = Field(description="By source: number of its records that are not counted yet.")
    views: Mapping[str, ViewStatus] = Field(description="By view; none that was never counted.")
    next_windows_ms: Mapping[str, int] = Field(
        description="By view: start of the first window that is not released or refused, where its ledger is in this "
        "partition."
    )
    counters: Mapping[str, int] = Field(description="Counters since the first record, those that are not zero.")
    deleted_records: Mapping[str, tuple[GapStatus, ...]] = Field(
        {}, description="By source: records that were deleted before they were counted, the newest last."
    )


class TransactionStatus(_Part):
    """A transaction that has been open for more than 30 s: a worker reads no record after its first one."""

    topic: str = Field(description="Topic.")
    partition: int = Field(description="Partition.")
    offset: int = Field(description="Offset of the first record.")
    open_ms: int = Field(description="How long the worker has seen it open, in ms.")


class WorkerStatus(_Part):
    """Status of a worker."""

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that runs.")
    instance: str = Field(description="Name of the worker: its application, its machine, and a hash of its folder.")
    started_ms: int = Field(description="Time at which its process began.")
    reported_ms: int = Field(description="Time of this report.")
    settings: int = Field(description="Number of the settings in effect there; 0 if there are none yet.")
    waiting_for: str = Field(description="Reason why it is not ready; empty if it is ready.")
    topic_problems: Sequence[str] = Field(
        default_factory=list, description="Problems with topics and rights that an operator must solve, in words."
    )
    clock_ahead_ms: int = Field(
        0, description="Lead of its clock over the broker's (below 0: lag), if that is too large; else 0."
    )
    open_transactions: Sequence[TransactionStatus] = Field(
        default_factory=list, description="Transactions that have been open for more than 30 s and block what it reads."
    )
    partitions: Mapping[int, PartitionStatus] = Field(description="Partitions that it owns, by number.")


def encode_status(status: WorkerStatus) -> bytes:
    """The bytes of a record."""
    return status.model_dump_json().encode()


def decode_status(data: bytes) -> WorkerStatus:
    """The inverse; fields that it does not know are left out.

    Raises:
        StateError: it is no such record.
    """
    try:
        return WorkerStatus.model_validate_json(data)
    except ValidationError:
        raise StateError(
            "a record of the status topic cannot be read: use the stream-dp that the workers run, or a later one"
        ) from None
