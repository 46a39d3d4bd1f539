"""Windows without events that a replay leaves out: their charges, and the state of a worker after them.

Every window on schedule is charged, even one without events, and its cost follows from the plan. So the charges of a
stretch are counted by arithmetic, a period at a time, and are written to the changelogs of a stopped worker: the
ledgers, and from which window on each view counts and releases. Windows that the budget does not pay for are refused at
the same place as by the engine: the windows of a ledger are charged in the order of their ends, and once the budget of
a period does not suffice for a window of a view, it never does again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aiokafka import TopicPartition

from stream_dp.accounting import Cost, Ledger, Overdraft, decode_cost, reserve
from stream_dp.accounting import decode as decode_ledger
from stream_dp.accounting import encode as encode_ledger
from stream_dp.config.plan import LedgerPlan, Plan, ViewPlan
from stream_dp.config.shares import Shares, most_of
from stream_dp.operations.empty_stretches import Stretch
from stream_dp.records.statement import Period
from stream_dp.releases.accounts import (
    Charge,
    PeriodRow,
    Promise,
    charge_call,
    dearest_of,
    ledger_key,
    period_row,
    promise_key,
)
from stream_dp.releases.rows import VIEW, Call, Change, ViewRow
from stream_dp.runtime.embedded import MemoryLog
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, Topics
from stream_dp.windows.count_rows import MARKER, Marker
from stream_dp.windows.encoding import decode, encode, text
from stream_dp.windows.marker_rows import MarkerRows
from stream_dp.windows.shapes.shape import Interval


@dataclass(slots=True)
class PeriodSpending:
    """Spending of a ledger in a period, as it was after the last window that was left out.

    Attributes:
        spent: what the period had spent after the last of them.
        left: what it had left.
        losses: what they cost each audience alone, by view and audience.
    """

    spent: Cost
    left: Cost
    losses: dict[tuple[str, str], Cost] = field(default_factory=dict)


@dataclass(slots=True)
class SkippedWindows:
    """Windows that were left out.

    Attributes:
        stretches: where they are, each with the number of windows of all views.
        charged: how many of them are charged, by view.
        refused: how many of them the budget does not pay for, by view.
        periods: the spending of every period that is charged for some of them. Equal periods without events that follow
            one another have one entry.
    """

    stretches: list[tuple[Stretch, int]] = field(default_factory=list)
    charged: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    periods: dict[Period, PeriodSpending] = field(default_factory=dict)

    def add_charges(self, period: Period, charges: _Charges, times: int) -> None:
        """Add the charges of a period, and of others like it."""
        for name, number in charges.charged.items():
            self.charged[name] += times * number
        for name, number in charges.refused.items():
            self.refused[name] += times * number
        known = self.periods.setdefault(period, PeriodSpending(Cost.ZERO, Cost.ZERO))
        known.spent = charges.ledger.spent
        known.left = charges.ledger.left
        for key, cost in charges.losses.items():
            known.losses[key] = known.losses.get(key, Cost.ZERO) + cost


@dataclass(frozen=True, slots=True)
class _Span:
    """Windows of a view that start at `first_ms` or later, and before `until_ms`."""

    view: ViewPlan
    first_ms: int
    until_ms: int

    @property
    def windows(self) -> int:
        return self.view.windows.begun(self.first_ms, self.until_ms)

    @property
    def ends_ms(self) -> tuple[int, int]:
        """Ends of the first and the last of them."""
        shape = self.view.window.shape
        return shape.end(self.first_ms), shape.end(shape.next(shape.first_from(self.until_ms), -1))

    def within(self, period: Interval) -> _Span:
        """Return those that start in a period."""
        first_ms = max(self.first_ms, self.view.window.shape.first_from(period.start_ms))
        return replace(self, first_ms=first_ms, until_ms=min(self.until_ms, period.end_ms))

    def split(self, time_ms: int) -> tuple[_Span, _Span]:
        """Return those that have ended at a time, and the others."""
        at_ms = min(max(self.view.window.shape.first_open(time_ms), self.first_ms), self.until_ms)
        return replace(self, until_ms=at_ms), replace(self, first_ms=at_ms)


class _Charges:
    """Charges of windows without events in one period of a ledger."""

    def __init__(self, ledger: Ledger, shares: Shares) -> None:
        self.ledger = ledger
        self.losses: dict[tuple[str, str], Cost] = {}
        self.charged: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._shares = shares
        self._short: set[str] = set()
        """Views that the budget no longer pays for in this period: their windows cost the same, so it never will."""

    def charge(self, spans: Sequence[_Span]) -> None:
        """Charge windows in the order of their ends, as far as the budget pays for them."""
        spans = [span for span in spans if span.windows]
        for span in spans:
            if span.view.name in self._short:
                self.refused[span.view.name] += span.windows
        spans = [span for span in spans if span.view.name not in self._short]
        if not spans or self._pay(spans):
            return
        if len(spans) == 1 and spans[0].windows == 1:
            self._short.add(spans[0].view.name)
            self.refused[spans[0].view.name] += 1
            return
        for part in _halves(spans):
            self.charge(part)

    def _pay(self, spans: Sequence[_Span]) -> bool:
        """Charge all windows of some spans, or none of them; return True if the budget pays for all."""
        before = self.ledger.views
        ledger: Ledger | None = self.ledger
        losses = dict(self.losses)
        for span in spans:
            ledger = None if ledger is None else _charge_span(ledger, span, losses)
        if ledger is None:
            return False
        more = {name: cost - before.get(name, Cost.ZERO) for name, cost in ledger.views.items()}
        if not self._shares.covers(before, more):
            return False
        self.ledger = ledger
        self.losses = losses
        for span in spans:
            self.charged[span.view.name] += span.windows
        return True


def _halves(spans: Sequence[_Span]) -> Iterator[Sequence[_Span]]:
    """Yield the windows of spans in two or more parts, in the order in which the engine charges them."""
    first_ms = min(span.ends_ms[0] for span in spans)
    last_ms = max(span.ends_ms[1] for span in spans)
    if first_ms == last_ms:
        yield from ([span] for span in sorted(spans, key=lambda span: span.view.name))
        return
    halves = [span.split((first_ms + last_ms) // 2) for span in spans]
    yield [before for before, _ in halves]
    yield [after for _, after in halves]


def _charge_span(ledger: Ledger, span: _Span, losses: dict[tuple[str, str], Cost]) -> Ledger | None:
    """Return a ledger that has paid for the windows of a span, or None if it does not have the budget.

    Args:
        ledger: the ledger.
        span: the windows.
        losses: what the windows cost each audience alone, by view and audience; changed in place.
    """
    view = span.view
    levels = {audience: level for audience, level in view.audiences.items() if level >= 0}
    if not levels:
        return ledger
    # With `windows_per_user`, a user pays for at most that many windows. The others cost the same, so they add nothing.
    steps = 1 if view.windows_per_user is None else min(span.windows, view.windows_per_user)
    each = span.windows if view.windows_per_user is None else 1
    cost = view.cost(max(levels.values())) * each
    call = Call(view.name, span.first_ms)
    for _ in range(steps):
        dearest = dearest_of(view, ledger, span.first_ms)
        added = cost if dearest is None else dearest.raised(Cost.ZERO, cost).total - dearest.total
        reserved = reserve(ledger, str(call), added)
        if isinstance(reserved, Overdraft):
            return None
        charge = Charge(cost, {audience: view.cost(level) * each for audience, level in levels.items()})
        ledger, charged = charge_call(view, reserved, call, charge)
        for audience, loss in charged.shares.items():
            losses[view.name, audience] = losses.get((view.name, audience), Cost.ZERO) + loss
    return ledger


def skip_windows(log: MemoryLog, plan: Plan, stretch: Stretch, found: SkippedWindows) -> None:
    """Let an application that is stopped go on after a stretch, as if it had released the windows in it.

    Args:
        log: the log of the application. Every partition has stored a place of each view.
        plan: of the application; its views are those that count one source.
        stretch: the stretch. All windows that are closed when it begins are released.
        found: gets what was left out; changed in place.
    """
    topics = Topics.of(plan)
    counts = topics.changelog(COUNTS)
    for partition in range(plan.partitions):
        rows = stored_rows(log, counts, partition)
        for source in {view.source.name for view in plan.views.values()}:
            marker_rows = MarkerRows(source)
            marker = marker_rows.read(rows)
            if marker is not None:
                _move_places(marker, stretch)
                for key, value in marker_rows.encode(marker):
                    log.append(counts, partition, key, value)
    releases = topics.changelog(RELEASES)
    ledgers: dict[bytes, list[ViewPlan]] = {}
    for view in plan.views.values():
        ledgers.setdefault(view.ledger.fingerprint, []).append(view)
    number = 0
    for views in ledgers.values():
        partition = topics.ledger_partition(views[0].ledger)
        rows = stored_rows(log, releases, partition)
        spans = []
        changes: list[Change] = []
        for view in views:
            key = VIEW + text(view.name)
            row = decode(ViewRow, rows[key])
            until_ms = max(row.next_ms, stretch.next_ms[view.name])
            spans.append(_Span(view, row.next_ms, until_ms))
            row.next_ms = until_ms
            changes.append((key, encode(row)))
        changes += _charge_periods(views[0].ledger, spans, rows, found)
        number += sum(span.windows for span in spans)
        for key, changed in changes:
            log.append(releases, partition, key, changed)
    found.stretches.append((stretch, number))


def stored_rows(log: MemoryLog, topic: str, partition: int) -> dict[bytes, bytes]:
    """Return the rows of a table, by its changelog."""
    rows: dict[bytes, bytes] = {}
    for record in log.read(TopicPartition(topic, partition), 0):
        key = record.key or b""
        if record.value is None:
            rows.pop(key, None)
        else:
            rows[key] = record.value
    return rows


def has_places(log: MemoryLog, plan: Plan) -> bool:
    """Return True if an application has stored a place of each of its views, in every partition."""
    topics = Topics.of(plan)
    counts = (stored_rows(log, topics.changelog(COUNTS), partition) for partition in range(plan.partitions))
    if not all(any(key.startswith(MARKER) for key in rows) for rows in counts):
        return False
    for view in plan.views.values():
        rows = stored_rows(log, topics.changelog(RELEASES), topics.ledger_partition(view.ledger))
        if VIEW + text(view.name) not in rows:
            return False
    return True


def _move_places(marker: Marker, stretch: Stretch) -> None:
    """Move the places of the views of a source to the end of a stretch."""
    for name, mark in marker.views.items():
        mark.open_from_ms = max(mark.open_from_ms, stretch.next_ms[name])
        mark.closed_until_ms = max(mark.closed_until_ms, stretch.next_ms[name])


def _charge_periods(
    ledger: LedgerPlan, spans: Sequence[_Span], rows: Mapping[bytes, bytes], found: SkippedWindows
) -> Iterator[Change]:
    """Charge the windows of a ledger, and yield the rows of the periods that have other windows, too."""
    if not any(span.windows for span in spans):
        return
    views = [span.view for span in spans]
    empty_from_ms = max(span.first_ms for span in spans)
    empty_until_ms = ledger.periods.start_of(min(span.until_ms for span in spans))
    end_ms = max(span.until_ms for span in spans)
    are_equal = ledger.periods.shortest_ms == ledger.periods.longest_ms
    known: dict[tuple[int, ...], _Charges] = {}
    period = ledger.periods.interval(min(span.first_ms for span in spans))
    while period.start_ms < end_ms:
        own = [span.within(period) for span in spans]
        name = Period(ledger.name, period.start_ms, period.end_ms)
        if empty_from_ms <= period.start_ms and period.end_ms <= empty_until_ms:
            alike = period.length_ms, *(span.windows for span in own)
            if alike not in known:
                known[alike] = _Charges(Ledger(ledger.budget), Shares.of(ledger.budget, period, views))
                known[alike].charge(own)
            times = ledger.periods.begun(period.start_ms, empty_until_ms) if are_equal else 1
            found.add_charges(name, known[alike], times)
            period = ledger.periods.interval(empty_until_ms if are_equal else period.end_ms)
            continue
        charges, begins = _open_period(ledger, views, period, rows)
        key = ledger_key(views[0], period.start_ms)
        charges.charge(own)
        found.add_charges(name, charges, 1)
        if charges.charged:
            yield from begins
            yield key, encode_ledger(charges.ledger)
        period = ledger.periods.interval(period.end_ms)


def _open_period(
    ledger: LedgerPlan, views: Sequence[ViewPlan], period: Interval, rows: Mapping[bytes, bytes]
) -> tuple[_Charges, list[Change]]:
    """Return the charges of a ledger in a period, as stored; for a new period, also the rows that begin it."""
    key = ledger_key(views[0], period.start_ms)
    if (stored := rows.get(key)) is not None:
        kept = decode(PeriodRow, rows[promise_key(key)]).kept
        budget = decode_ledger(stored).budget
        shares = Shares(budget, {name: decode_cost(cost) for name, cost in kept.items()}, most_of(budget, views))
        return _Charges(decode_ledger(stored), shares), []
    shares = Shares.of(ledger.budget, period, views)
    return _Charges(Ledger(ledger.budget), shares), [period_row(key, Promise.of(ledger), shares)]
