"""Grants: as operators write them to the control topic, and as the partitions read them.

A grant lets an audience see a level: of some views or of all, of the windows of a scope, from now on or from a time on.
What an audience may see of a window of a view is decided by the newest grant that was carried out and whose scope has
that window; where there is none, by the configuration. The newest is the one with the latest time, of several with one
time the one that was written last.

A grant of the level `none` ends what an audience sees of the windows of its scope: nothing more of them is published
for it, until a newer grant says otherwise. What was published stays.

A record's key names the audience and the scope, so compaction takes away a grant only for a later one of the very same
scope and time, which decides wherever the former would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from stream_dp.config.file_schema import NO_LEVEL
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError, Fault
from stream_dp.windows.durations import parse_time

GRANT = b"grant/"
_OFFSET_BITS = 48
_ID_BYTES = 6

Windows = Literal["all", "retained", "future"]


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """Scope of a grant: views, and windows of them."""

    views: tuple[str, ...] = ()
    """Their names, in order; none: all that the audience reads."""
    windows: Windows = "all"
    """`retained`: those whose turn was over when the grant was carried out; `future`: the others."""
    from_ms: int | None = None
    """Start of the first window; None: from the beginning."""
    until_ms: int | None = None
    """The windows that are in it start before this; None: for ever."""


class Order(msgspec.Struct, array_like=True, frozen=True):
    """A checked grant: an audience may see this level, or `none`. Or, without a level, a grant that is withdrawn."""

    number: int
    """Rises from record to record, also where the control topic was deleted and made again in between."""
    audience: str
    level: str | None
    scope: Scope = Scope()
    at_ms: int | None = None
    """The time that it waits for; None: it is carried out at once."""
    given_ms: int = 0
    """When it was written, by the clock of who wrote it."""
    id: str = ""
    """Names the grant (`grant_id`)."""

    @property
    def time_ms(self) -> int:
        """When it is, or was, carried out."""
        return self.given_ms if self.at_ms is None else self.at_ms


def _time(value: str) -> str:
    parse_time(value)
    return value


Time = Annotated[str, AfterValidator(_time)]


class Grant(BaseModel):
    """A control message: an audience may see a level; its retained windows in the scope are sharpened to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["grant"] = "grant"
    audience: str = Field(description="The audience, as the configuration names it.")
    level: str = Field(description="The name of the level; none: nothing more is published for the audience.")
    views: tuple[str, ...] = Field((), description="Names of views; empty: all that the audience reads.")
    windows: Windows = Field("all", description="all; retained: those released before; future: those to come.")
    start_from: Time | None = Field(None, description="Only windows that start at this time or later.")
    start_until: Time | None = Field(None, description="Only windows that start before this time.")
    at: Time | None = Field(None, description="When it is carried out; null: at once.")

    @property
    def scope(self) -> Scope:
        """Scope of the grant."""
        return Scope(tuple(sorted(set(self.views))), self.windows, _ms(self.start_from), _ms(self.start_until))

    @property
    def at_ms(self) -> int | None:
        """The time that it waits for, None if it is carried out at once."""
        return _ms(self.at)

    @property
    def id(self) -> str:
        """Names it, by its audience, its scope and its time."""
        return grant_id(self.audience, self.scope, self.at_ms)

    def key(self) -> bytes:
        """The record's key: of the grants of an audience with one scope and time the last one stays."""
        return grant_key(self.audience, self.id)

    def check(self, plan: Plan) -> None:
        """Refuse a grant that means nothing to the plan.

        Raises:
            ConfigError: there is no such audience or view, none of its views has such a level, or no window can be in
                its scope.
        """
        if self.audience not in plan.audiences:
            raise ConfigError(f"no audience {self.audience!r}; there are {_list(plan.audiences)}", path="audience")
        read = [name for name, view in plan.newest.items() if self.audience in view.audiences]
        others = [name for name in self.views if name not in read]
        faults = [Fault("view", f"{self.audience} reads no view {name!r}; it reads {_list(read)}") for name in others]
        levels = [level.name for view in self.concerned(plan) for level in view.levels]
        if levels and self.level not in (*levels, NO_LEVEL):
            whose = f"no view of {self.audience}" if not self.views else f"none of {_list(self.views)}"
            faults.append(Fault("level", f"{whose} has a level {self.level!r}; there are {_list(levels)}"))
        if self.windows != "all" and (self.start_from or self.start_until):
            faults.append(Fault("windows", f"{self.windows} windows, or those between two starts: give one of the two"))
        first, until = self.scope.from_ms, self.scope.until_ms
        if first is not None and until is not None and until <= first:
            faults.append(Fault("until", "must be after the start of the first window"))
        if faults:
            raise ConfigError(faults)

    def concerned(self, plan: Plan) -> list[ViewPlan]:
        """The views that it names, or all that its audience reads."""
        views = [view for view in plan.newest.values() if self.audience in view.audiences]
        return [view for view in views if not self.views or view.view in self.views]


class Withdrawal(BaseModel):
    """A control message: the grant under this key, if it still waits for its time, is not carried out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["withdrawal"] = "withdrawal"


_RECORD: TypeAdapter[Grant | Withdrawal] = TypeAdapter(Grant | Withdrawal)


def grant_id(audience: str, scope: Scope, at_ms: int | None) -> str:
    """Return the id of a grant; another one with this id has the same audience, scope and time."""
    text = msgspec.msgpack.encode((audience, scope, at_ms))
    return blake2b(text, digest_size=_ID_BYTES, person=b"stream-dp grant").hexdigest()


def grant_key(audience: str, name: str) -> bytes:
    """The key of a grant's record.

    Args:
        audience: its audience.
        name: its id.
    """
    return GRANT + f"{audience}/{name}".encode()


def check_grant(
    key: bytes | None, value: bytes | None, offset: int, plan: Plan, life: int = 1, given_ms: int = 0
) -> Order | None:
    """Return the order that a control record gives.

    Args:
        key: the record's key.
        value: its value.
        offset: its offset.
        plan: the application.
        life: which life of the control topic it is, the first being 1; with the offset it numbers the order.
        given_ms: when it was written.

    Returns:
        The order that it gives; None for a tombstone and for what is about something else.

    Raises:
        ConfigError: it is no grant of this plan; of what it says nothing is repeated.
    """
    if key is None or value is None or not key.startswith(GRANT):
        return None
    number = (life - 1 << _OFFSET_BITS) + offset
    try:
        found = _RECORD.validate_json(value)
        if isinstance(found, Withdrawal):
            audience, _, name = key.removeprefix(GRANT).decode().partition("/")
            return Order(number, audience, None, given_ms=given_ms, id=name)
        found.check(plan)
    except (ValidationError, ConfigError, UnicodeDecodeError):
        words = f"control record {offset} is not a grant that this configuration knows; it is passed over"
        raise ConfigError(words) from None
    return Order(number, found.audience, found.level, found.scope, found.at_ms, given_ms, found.id)


def _ms(time: str | None) -> int | None:
    return None if time is None else parse_time(time)


def _list(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


Direction = Literal["finer", "coarser", "same", "ended"]


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of a grant on one view.

    Attributes:
        view: the view's name.
        before: the level its audience had, of windows to come where the grant is about those; `none` where it had none.
        after: the level it has from then on, or `none`.
        direction: what `after` is beside `before`; `ended` where that is `none`.
        difference: exact epsilon, or rho in a ledger with a pool, that one window at `before` costs more at `after`;
            "0" unless it is finer.
    """

    view: str
    before: str
    after: str
    direction: Direction
    difference: str


def changes_of(plan: Plan, wanted: Grant, known: Sequence[Order] = (), now_ms: int = 0) -> list[Change]:
    """Return the effect of a grant on each view that it is about.

    Args:
        plan: the application.
        wanted: the grant, checked against the plan.
        known: the grants that were written before and not withdrawn, oldest first.
        now_ms: the time.
    """
    until_ms = now_ms if wanted.at_ms is None else wanted.at_ms
    before = [order for order in known if order.audience == wanted.audience and order.time_ms <= until_ms]
    before.sort(key=lambda order: (order.time_ms, order.number))
    return [_change(view, wanted, before) for view in wanted.concerned(plan)]


def _change(view: ViewPlan, wanted: Grant, known: Sequence[Order]) -> Change:
    names = [NO_LEVEL, *(level.name for level in view.levels)]
    start = view.audiences[wanted.audience] + 1
    had = [order.level for order in known if _decided(order.scope, wanted.scope, view) and order.level in names]
    # A level that the view's ladder does not have leaves the audience what it had.
    before = names.index(had[-1] or "") if had else start
    after = names.index(wanted.level) if wanted.level in names else before
    direction: Direction = "finer" if after > before else "coarser" if after < before else "same"
    direction = "ended" if after == 0 else direction
    difference = added(view, after - 1, before - 1, wanted.scope)
    return Change(view.view, names[before], names[after], direction, str(difference))


def added(view: ViewPlan, level: int, before: int, scope: Scope) -> Fraction:
    """Return what one window costs more at a level, in epsilon or in rho; one to come is released with it at first.

    Args:
        view: the view.
        level: index of the level, -1 for none.
        before: the same of the level that it has without.
        scope: the windows of the grant.
    """
    if level <= before:
        return Fraction(0)
    is_first = scope.windows == "future"
    cost = view.counts(level) - view.counts(before) if is_first else view.counts(level, before)
    return cost.epsilon + cost.rho


def _decided(former: Scope, wanted: Scope, view: ViewPlan) -> bool:
    """Return True if a former grant covers the windows of a view that a wanted one is about; of all, those to come."""
    if former.views and view.view not in former.views:
        return False
    if former.windows != "all":
        return former.windows == wanted.windows or (former.windows == "future" and wanted.windows == "all")
    return covers((former.from_ms, former.until_ms), (wanted.from_ms, wanted.until_ms))


def covers(wide: tuple[int | None, int | None], narrow: tuple[int | None, int | None]) -> bool:
    """Return True if an interval of starts has all of another; None is no bound."""
    (first, until), (other_first, other_until) = wide, narrow
    begins = first is None or (other_first is not None and first <= other_first)
    return begins and (until is None or (other_until is not None and other_until <= until))
