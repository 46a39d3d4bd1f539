"""Advice in the log of a running worker: refused and clipped shares, windows, and budgets that do not last.

It looks every 10 s and says a thing at most once in 10 minutes. Shares are coarse; no user, no item and no count of
events is told. What it says of windows and budgets follows from what was published and from the configuration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from stream_dp.accounting import Cost
from stream_dp.config.explanation import price_words
from stream_dp.config.forecast import forecast
from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.control.editions import presented
from stream_dp.records.statement import Period, read_statements
from stream_dp.runtime.faust.delivery import Balances, Counters
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.runtime.sources.findings import CLIPPED_PERCENT, NO_FAULTS, OF_RECORDS, remedy, share_words
from stream_dp.windows.durations import format_time
from stream_dp.windows.plausible_times import BAD_WATERMARK

log = logging.getLogger("stream_dp.worker")

ADVICE_SECONDS = 10.0
AGAIN_SECONDS = 600.0
HOUR_SECONDS = 3600.0
REFUSED_PERCENT = 1
"""Of the records; what is refused beyond that is told, less stands in the metrics only."""
LEAST_CONTRIBUTIONS = 100
"""Of fewer the share that is clipped is not told."""
MOVED = 20
"""A budget is told of again when its end has moved by one part in so many of the period."""
_WINDOWS = (("released", "windows_released"), ("refused", "windows_refused"), ("lost", "windows_lost"))


class _Share(NamedTuple):
    """Some of the records or contributions, as counted since the start of the worker."""

    part: int
    whole: int
    words: str
    remedy: str
    percent: int
    least: int = 1


class Advice:
    """Advises the operators of one worker; the application calls `look` every `ADVICE_SECONDS`."""

    def __init__(
        self, plan: Plan, counters: Counters, balances: Balances, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Set up the advice.

        Args:
            plan: the configuration.
            counters: what the worker has counted.
            balances: what has left of the accounts.
            clock: seconds that only grow.
        """
        self.follow(plan)
        self._counters = counters
        self._balances = balances
        self._clock = clock
        self._since: dict[tuple[str, str], tuple[float, _Share | None]] = {}
        """By path and reason: when its share was told or let pass, and what it was counted from."""
        self._told: dict[tuple[str, str], float] = {}
        self._refusing: set[Period] = set()
        self._ends: dict[Period, tuple[float, int]] = {}
        """By ledger and period: when its end was told, and what it was."""
        self._hour = clock()
        self._windows: dict[tuple[str, str], int] = {}

    def follow(self, plan: Plan) -> None:
        """Go on with a plan that holds."""
        self._plan = presented(plan)
        self._sources = list(sources_of(self._plan).values())
        self._views = {
            source.name: [view for view in self._plan.views.values() if view.source.name == source.name]
            for source in self._sources
        }

    async def look(self) -> None:
        """Look once."""
        for key, share in self._shares():
            self._tell(key, share)
        await self._tell_of_ledgers()
        if self._clock() - self._hour >= HOUR_SECONDS:
            self._hour = self._clock()
            self._sum_up()

    # -- shares -----------------------------------------------------------------------------------------------

    def _tell(self, key: tuple[str, str], share: _Share) -> None:
        now = self._clock()
        since, before = self._since.setdefault(key, (now, None))
        part, whole = share.part - (before.part if before else 0), share.whole - (before.whole if before else 0)
        due = key not in self._told or now - self._told[key] >= AGAIN_SECONDS
        much = part > 0 and whole >= share.least and 100 * part > share.percent * whole
        if due and much:
            log.warning("%s: %s (%s %s): %s", *key, share_words(part, whole), share.words, share.remedy)
            self._told[key] = now
        if (due and much) or now - since >= AGAIN_SECONDS:
            self._since[key] = now, share

    def _shares(self) -> Iterator[tuple[tuple[str, str], _Share]]:
        """By path and reason, what is refused or clipped."""
        refused: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for labels, amount in self._counters.by_labels("events_refused").items():
            named = dict(labels)
            refused[named["view"]][named["reason"]] += amount
        counted = {view: self._counters.total("events_counted", view=view) for view in self._plan.views}
        events = {
            name: counted[name] // view.window.shape.at_once + refused[name].total()
            for name, view in self._plan.views.items()
        }
        records = refused[""].total() + sum(max(events[view.name] for view in views) for views in self._views.values())
        names = ", ".join(source.name for source in self._sources)
        path = f"sources.{names}" if len(self._sources) == 1 else f"sources {names}"
        for reason, amount in refused[""].items():
            if reason == BAD_WATERMARK:
                yield (path, reason), self._bad_watermarks(amount)
            else:
                yield (path, reason), _refused(amount, records, self._remedies(reason))
        for source in self._sources:
            yield from self._of_views(source, refused, counted, events)

    def _of_views(
        self,
        source: SourcePlan,
        refused: Mapping[str, Counter[str]],
        counted: Mapping[str, int],
        events: Mapping[str, int],
    ) -> Iterator[tuple[tuple[str, str], _Share]]:
        views = self._views[source.name]
        for reason in OF_RECORDS:
            part, whole = max((refused[view.name][reason], events[view.name]) for view in views)
            yield (f"sources.{source.name}", reason), _refused(part, whole, remedy(reason, source, views))
        for view in views:
            path = f"views.{view.name}"
            for reason, amount in refused[view.name].items():
                if reason not in NO_FAULTS | OF_RECORDS:
                    yield (path, reason), _refused(amount, events[view.name], remedy(reason, source, [view]))
            clipped = refused[view.name]["clipped"]
            whole = counted[view.name] + clipped
            words = f"{remedy('clipped', source, [view])}; `stream-dp check FILE --sample` compares both"
            share = _Share(clipped, whole, "of the contributions", words, CLIPPED_PERCENT, LEAST_CONTRIBUTIONS)
            yield (path, "clipped"), share

    def _bad_watermarks(self, amount: int) -> _Share:
        """Return the share of refused watermarks among all watermarks, which are few among the records."""
        watermarks = amount + self._counters.total("watermarks_read")
        return _Share(amount, watermarks, "of the watermarks", self._remedies(BAD_WATERMARK), REFUSED_PERCENT)

    def _remedies(self, reason: str) -> str:
        """The remedy of records that are no event; which of several sources has them is not counted."""
        words = dict.fromkeys(remedy(reason, one, self._views[one.name]) for one in self._sources)
        return f"{'; '.join(words)} (`stream-dp check FILE --sample` shows what they look like)"

    # -- windows and budgets ----------------------------------------------------------------------------------

    async def _tell_of_ledgers(self) -> None:
        entries = await asyncio.to_thread(self._balances.entries)  # a millisecond for each view
        statements = await asyncio.to_thread(read_statements, [(0, entry) for entry in entries])
        for entry in entries:
            period = Period.of(entry)
            is_window = entry.type == "refusal" and any(reader.revision == 1 for reader in entry.audiences)
            is_unpaid = is_window and entry.requested.cost != Cost.ZERO  # one that was lost requests nothing
            if is_unpaid and period not in self._refusing:
                self._refusing.add(period)
                log.warning(
                    "ledger %s: budget exhausted: windows of view %s are refused from %s on. A window costs %s; %s is "
                    "left until %s. For the next period, raise the budget (ledgers.%s), make windows longer or levels "
                    "coarser. `stream-dp ledger FILE` shows who spent it",
                    period.ledger,
                    entry.view,
                    format_time(entry.window.start_ms),
                    price_words(entry.requested),
                    price_words(entry.remaining_for_view),
                    format_time(period.end_ms),
                    period.ledger,
                )
        for period, statement in statements.items():
            self._tell_end(period, forecast(self._plan, statement)[1])

    def _tell_end(self, period: Period, end_ms: int) -> None:
        """Tell when a budget ends before its period, and when that has changed by much."""
        now, length = self._clock(), period.end_ms - period.start_ms
        told_s, told_ms = self._ends.get(period, (now - AGAIN_SECONDS, period.end_ms))
        lasts = end_ms >= period.end_ms
        moved = abs(end_ms - told_ms) * MOVED >= length or lasts != (told_ms >= period.end_ms)
        if not moved or now - told_s < AGAIN_SECONDS:
            return
        self._ends[period] = now, end_ms
        if lasts:
            log.info("ledger %s: the budget lasts until the period ends, %s", period.ledger, format_time(period.end_ms))
            return
        log.warning(
            "ledger %s: at the present levels the budget lasts until %s, but the period until %s. Later windows are "
            "refused. For the next period, raise the budget (ledgers.%s), make windows longer or levels coarser. "
            "`stream-dp ledger FILE` shows who spends it",
            period.ledger,
            format_time(end_ms),
            format_time(period.end_ms),
            period.ledger,
        )

    def _sum_up(self) -> None:
        """Log the windows of the last hour; none of views whose windows are longer than that."""
        said = []
        for view in self._plan.views.values():
            amounts = []
            for word, counter in _WINDOWS:
                total = self._counters.total(counter, view=view.name)
                if more := total - self._windows.get((view.name, counter), 0):
                    amounts.append(f"{more} {word}")
                self._windows[view.name, counter] = total
            if amounts or view.window.shape.grid.shortest_ms <= HOUR_SECONDS * 1000:
                said.append(f"view {view.name} {', '.join(amounts) or 'none'}")
        if said:
            log.info("windows of the last hour: %s", "; ".join(said))


def _refused(part: int, whole: int, what_to_do: str) -> _Share:
    return _Share(part, whole, "of the records", what_to_do, REFUSED_PERCENT)
