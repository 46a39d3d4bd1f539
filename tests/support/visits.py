"""An application about visits that is hard on its workers, the visits that it is fed, and what must come of them."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace

from faust.types import TP

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.control.editions import plan_holding
from stream_dp.runtime.kafka.control_topic import read_accepted
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.testing import Application, Event, Watermark
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.audit import Expected, Report, audit, gather
from tests.support.oracle import count_script
from tests.support.totals import stored_totals_of
from tests.support.views import start_of

MINUTE = 60_000
PAGES = [f"/{number}" for number in range(7)]
USERS = 240

VISITS = """\
name: NAME
broker: memory://
data_dir: ./state
key_file: ./secret.key
erase_within: 20s
release: {slot: 100ms, offset: 0s}
sources:
  visits: {topic: NAME.visits, partitions: 3, user: user, time: {field: at}}
ledgers:
  visitors: {population: visitors, epsilon: "100", delta: "1/100", period: 366d}
ladders:
  standard:
    - {level: overview, epsilon: "1"}
    - {level: standard, epsilon: "2"}
    - {level: detailed, epsilon: "6"}
audiences: {public: overview, partner: standard, internal: standard}
views:
  NAME-pages:
    kind: histogram
    source: visits
    item: page
    items_per_user: 2
    window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    delta: "1e-4"
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 4
"""


def new_name() -> str:
    """A name that no other application has on a broker."""
    return f"t{uuid.uuid4().hex[:8]}"


def configuration(name: str, *changes: tuple[str, str]) -> str:
    """The configuration of an application about visits of pages, with some of its text replaced.

    Args:
        name: of the application; its sources, topics and views begin with it.
        changes: what is replaced by what, in order.
    """
    config = VISITS
    for old, new in changes:
        assert old in config, f"{old!r} is not in the configuration"
        config = config.replace(old, new)
    return config.replace("NAME", name)


TOP = """
  NAME-top:
    kind: topk
    source: visits
    item: page
    k: 3
    kbar: 4
    selection: {epsilon: "1/2", delta: "1e-7"}
    items_per_user: 2
    window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    ledger: visitors
    ladder: standard
    retention: 30d
    buckets: 1
"""
EXACT = f"""
  NAME-exact:
    kind: catalogue
    source: visits
    item: page
    catalogue: [{", ".join(PAGES)}]
    items_per_user: 2
    window: {{size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}}
    ledger: witnesses
    ladder: plain
    audiences: [public]
    retention: 30d
    buckets: 2
"""
"""A view that shows what the workers counted: with an epsilon of 40 for a count, the most that a ladder takes, a count
bears noise with a chance of 2 e^-40, which is 8.5e-18. That is the false alarm rate of a key in a window."""
WITNESSED = (
    ("views:\n", "views:" + EXACT),
    ("ladders:\n", 'ladders:\n  plain: [{level: overview, epsilon: "80"}]\n'),
    ("ledgers:\n", 'ledgers:\n  witnesses: {population: witnesses, epsilon: "10000000", delta: "0", period: 366d}\n'),
)
"""Changes that add the exact view, whose ledger lives in another partition than that of the visitors (of 2 to 4)."""
MORE = (
    ("sources:\n", "sources:\n  more: {topic: NAME.more, partitions: 3, user: user, time: {field: at}}\n"),
    ("views:\n", "views:" + EXACT.replace("NAME-exact", "NAME-more").replace("source: visits", "source: more")),
)
"""Changes, behind those of the exact view, that add a source with a view."""
RICH = ('epsilon: "100", delta: "1/100"', 'epsilon: "10000000", delta: "9/10"'), ("retention: 1d", "retention: 30d")
"""A budget, and a retention, that last for all windows."""


def visits_of(start_ms: int, window: int, count: int) -> list[Event]:
    """Visits of one window: popular pages more often, some users too often, some visits too late."""
    chance = random.Random(window)
    at = start_ms + window * MINUTE
    times = sorted(at + chance.randrange(MINUTE) for _ in range(count))
    events = [Event(f"u{chance.randrange(USERS)}", chance.choice(PAGES[: chance.randrange(1, 8)]), t) for t in times]
    return [*events, Event("u1", PAGES[0], at - MINUTE)] if window else events


class Stream:
    """The visits of an application, window by window, and what its views have to make of them."""

    def __init__(self, app: Application, visits: int = 60) -> None:
        """Set up the stream.

        Args:
            app: the application; views are exact whose names end so.
            visits: how many there are in a window.
        """
        self.app = app
        self.views = list(app.plan.views.values())
        self.exact = [view for view in self.views if view.name.endswith("-exact")]
        self.start = start_of(self.views[0])
        self.windows = 0
        self.forgone: dict[str, set[int]] = {}
        """By reason: the starts of the minutes whose windows may be refused for it."""
        self.changes: list[tuple[Plan, Mapping[str, int]]] = []
        """Settings that were posted, in order: what is to hold, and by view that it changes from which start on."""
        self.late: set[str] = set()
        """Views that came and went while the workers ran, exact ones, beside those of the application's file."""
        self.lowers = False
        """Whether grants may lower what an audience has."""
        self._visits = visits
        self._script: list[Event | Watermark] = []

    async def go_on(self, windows: int = 1) -> None:
        """Publish what is left of some windows and their ends, and before each end the first visits of the next one."""
        script: list[Event | Watermark] = []
        for _ in range(windows):
            at = self.start + self.windows * MINUTE
            events = visits_of(self.start, self.windows, self._visits)
            following = visits_of(self.start, self.windows + 1, self._visits)
            known = self._visits // 2 if self.windows else 0
            script += [*events[known:], *following[: self._visits // 2], Watermark(at + MINUTE + 10_000)]
            self.windows += 1
        self._script += script
        for source in {view.source.name for view in self.views}:
            await self.app.publish(script, source)

    def edition(self, view: str, start: int) -> tuple[int, ViewPlan]:
        """The settings of a view that hold for a window, and their number: of those that reach it the last decided."""
        number, found = 1, (1, self.app.plan.views[view])
        for plan, begins in self.changes:
            number += view in begins
            if begins.get(view, start + 1) <= start:
                found = number, plan.views[view]
        return found

    def counts(self, view: ViewPlan) -> dict[int, Mapping[str, int]]:
        """What an exact view has to show of all that was fed, by start of the window."""
        by_edition: dict[int, Mapping[int, Mapping[str, int]]] = {}
        found: dict[int, Mapping[str, int]] = {}
        for start in view.window.shape.starts(self.start, self.start + self.windows * MINUTE):
            number, asked = self.edition(view.name, start)
            if number not in by_edition:
                by_edition[number] = count_script(asked, self.start, self._script).counts
            found[start] = by_edition[number].get(start, {})
        return found

    async def shown(self) -> int:
        """How many windows every audience of every view has in its topic."""
        rows = await self.app.read_all(self.topics)
        places = [{key.split(b"/")[2] for key, _ in found if key is not None} for found in rows.values()]
        return min(len(found - {b"view"}) for found in places)

    @property
    def topics(self) -> list[str]:
        """The topics of every audience of every view."""
        return [Topics.of(self.app.plan).release(view.name, name) for view in self.views for name in view.audiences]

    async def wait_until_shown(self, windows: int | None = None, within_s: float = WITHIN_SECONDS) -> None:
        """Wait until every audience has so many windows, or all that were fed until now."""
        wanted = self.windows if windows is None else windows

        async def enough() -> bool:
            if await self.shown() >= wanted:
                return True
            await asyncio.sleep(0.3)
            return False

        await self.app.eventually(enough, within_s)

    def expected(
        self, levels: Mapping[str, str] | None, refused: Collection[int], late: Collection[ViewPlan]
    ) -> Expected:
        """What all that was fed comes to; the exact view is never refused."""
        starts = [self.start + window * MINUTE for window in range(self.windows)]
        exact: dict[str, Mapping[int, Mapping[str, int]]] = {}
        exact |= {view.name: self.counts(view) for view in self.exact}
        exact |= {view.name: count_script(view, self.start, self._script).counts for view in late}
        return Expected(
            starts,
            exact,
            levels or {},
            {view.name: [starts[window] for window in refused] for view in self.views if view not in self.exact},
            self.forgone,
            {view.name: {start: self.edition(view.name, start)[0] for start in starts} for view in self.changed},
            frozenset(view.view for view in late),
            self.lowers,
        )

    @property
    def changed(self) -> list[ViewPlan]:
        """The views whose settings changed."""
        return [view for view in self.views if any(view.name in begins for _, begins in self.changes)]

    async def audit(self, levels: Mapping[str, str] | None = None, refused: Collection[int] = ()) -> Report:
        """Audit what is on the broker. It is whole if everything that was fed is shown, or if nobody is writing.

        Args:
            levels: by audience, what it was granted last.
            refused: numbers of the windows that the budget does not pay for.
        """
        holding = plan_holding(await read_accepted(self.app.plan, self.app.client), self.app.plan)
        names = {view.name for view in self.views} | self.late
        plan = replace(holding, views={name: one for name, one in holding.views.items() if one.view in names})
        evidence = await gather(self.app, plan)
        late = [view for view in plan.views.values() if view.view in self.late]
        return await asyncio.to_thread(lambda: audit(plan, evidence, self.expected(levels, refused, late)))

    async def assert_released(self, refused: Collection[int] = (), within_s: float = WITHIN_SECONDS) -> None:
        """Wait until everything that was fed is shown; all of it is right."""
        await self.wait_until_shown(within_s=within_s)
        (await self.audit(refused=refused)).assert_clean()

    async def assert_totals(self, refused: int = 0) -> None:
        """What the partitions have stored is what was published, each record once, whoever counted it.

        Args:
            refused: how many windows of every view but the exact one the budget did not pay for.
        """
        app = self.app
        sources = sources_of(app.plan)
        places = [TP(topic, at) for topic, source in sources.items() for at in range(source.partitions)]
        published = sum((await app.client.ends(places)).values())

        async def counted() -> bool:
            return (await stored_totals_of(app)).total("events_consumed") >= published

        await app.eventually(counted)
        totals = await stored_totals_of(app)
        assert totals.total("events_consumed") == published
        assert totals.total("watermarks_read") == self.windows * len(places)
        for view in self.views:
            unpaid = 0 if view in self.exact else refused
            found = {
                name: totals.total(name, view=view.name)
                for name in ("windows_closed", "windows_released", "windows_refused", "windows_lost")
            }
            assert found == {
                "windows_closed": self.windows * view.source.partitions,
                "windows_released": self.windows - unpaid,
                "windows_refused": unpaid,
                "windows_lost": 0,
            }
        for view in self.exact:
            visits = sum(sum(counts.values()) for counts in self.counts(view).values())
            assert totals.total("events_counted", view=view.name) == visits

    async def wait_until_sharpened(self, levels: Mapping[str, str], within_s: float = WITHIN_SECONDS) -> None:
        """Wait until every audience has every window at the level that it was granted.

        An audit is dear: it is asked for only where nothing was published since the last look.
        """
        places = [TP(topic, at) for topic in self.topics for at in range(await self.app.client.partitions(topic) or 0)]
        before: Mapping[TP, int] = {}

        async def sharp() -> bool:
            nonlocal before
            ends = await self.app.client.ends(places)
            quiet, before = ends == before, ends
            report = await self.audit(levels) if quiet else None
            if report is not None and not report.kinds["coarse"] and not report.kinds["lost"]:
                return True
            await asyncio.sleep(0.5)
            return False

        await self.app.eventually(sharp, within_s)
