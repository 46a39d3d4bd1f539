"""Prometheus scrapes a worker that runs: what it reads is what was done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from functools import partial

import pytest
from aiokafka import TopicPartition

from stream_dp.errors import BrokerError
from stream_dp.operations.reports import look
from stream_dp.operations.status import Summary, summary
from stream_dp.records.codec import decode_entry
from stream_dp.records.statement import read_statements
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.worker import reporting
from stream_dp.runtime.worker.health import LOOPBACK, Address, Exposition, Health, Start, serving
from stream_dp.testing import Application, Event, Raw, Watermark
from tests.support.oracle import count_script
from tests.support.probes import get, parsed
from tests.support.views import CHOOSERS, TOPK, start_of

Launch = Callable[..., Awaitable[Application]]

SLOW_ON_KAFKA = True
MINUTE = 60_000


async def left_by_the_accounts(app: Application) -> dict[str, float]:
    """By ledger, what share of its budget the accounts say is left, of the cap that has the least."""
    rows = await app.read(Topics.of(app.plan).accounts)
    statements = read_statements(enumerate(decode_entry(value) for _, value in rows if value is not None))
    return {
        period.ledger: min(float(left / cap) for left, cap in zip(one.left, one.budget, strict=True) if cap)
        for period, one in statements.items()
    }


async def test_a_scrape_reads_what_was_counted_released_and_left(launch: Launch) -> None:
    app = await launch(("views:", "views:" + TOPK), ("ledgers:", CHOOSERS))
    worker = await app.start()
    health = Health(Start())
    health.worker = worker
    top, pages = sorted(app.plan.views.values(), key=lambda view: view.window.shape.interval(0).end_ms, reverse=True)
    start = start_of(pages)
    events = [Event(f"u{user}", f"/{page}", start + user) for user in range(50) for page in range(user % 5)]
    await app.publish([*events, Raw(0, b"u1", b"{", {}), Watermark(start + 2 * MINUTE + 10_000)])
    await app.wait_for_releases(pages.name, 2)
    await app.wait_for_releases(top.name, 1)

    async with serving(Address(LOOPBACK, 0), health, Exposition(health)) as (_, port):
        assert await get(port, "/readyz") == (200, "ok\n")
        status, page = await get(port, "/metrics")
    found = parsed(page)

    def total(name: str, **labels: str) -> float:
        """Over all partitions, as `sum without (partition)` has it."""
        wanted = tuple(sorted(labels.items()))
        return sum(
            value
            for (key, found_labels), value in found.items()
            if key == f"stream_dp_{name}_total"
            and tuple(one for one in found_labels if one[0] != "partition") == wanted
        )

    assert status == 200
    assert total("events_consumed") == len(events) + 1 + app.plan.partitions
    assert total("watermarks_read") == app.plan.partitions
    assert total("events_refused", reason="malformed_json", view="") == 1
    for view, windows in ((pages, 2), (top, 1)):
        expected = count_script(view, start, events)
        assert total("events_counted", view=view.name) == sum(expected.counts[start].values())
        assert total("events_refused", reason="clipped", view=view.name) == expected.refused["clipped"]
        assert total("windows_released", view=view.name) == windows
        assert total("windows_refused", view=view.name) == total("windows_lost", view=view.name) == 0
    ratios = {dict(labels)["ledger"]: value for (name, labels), value in found.items() if name.endswith("_ratio")}
    assert ratios == await left_by_the_accounts(app)
    assert all(0 < ratio < 1 for ratio in ratios.values())


async def test_status_says_what_the_worker_has_counted_and_released_and_that_it_stopped(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One window of the minute before the last mark stays open: what it counted is in no total."""
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.1)
    app = await launch()
    await app.start()
    (view,) = app.plan.views.values()
    start = start_of(view)
    closed = [Event(f"u{user}", "/a", start + user) for user in range(50)]
    opened = [Event(f"u{user}", "/b", start + MINUTE + user) for user in range(30)]
    await app.publish([*closed, *opened, Watermark(start + MINUTE + 10_000)])
    await app.wait_for_releases(view.name, 1)

    async def said() -> Summary | None:
        found = summary(app.plan, await look(app.plan, app.client))
        complete = found.totals.get("events_consumed") == 80 + app.plan.partitions
        return found if complete and found.totals.get(f"windows_released{{view={view.name}}}") else None

    found = await app.eventually(said)
    assert found.problems == []
    assert without_late(found) == {
        "events_consumed": 80 + app.plan.partitions,
        "watermarks_read": app.plan.partitions,
        f"events_counted{{view={view.name}}}": 50,
        f"windows_closed{{view={view.name}}}": app.plan.partitions,
        f"windows_released{{view={view.name}}}": 1,
    }
    assert found.lag == {view.source.name: dict.fromkeys(range(app.plan.partitions), 0)}
    shown = found.views[view.name]
    assert set(shown.clocks_ms.values()) == {start + MINUTE + 10_000}
    assert (shown.open_windows, shown.open_from_ms, shown.open_until_ms) == (1, start + MINUTE, start + 2 * MINUTE)
    assert shown.released_to_ms == start + MINUTE
    assert sorted(found.budgets) == ["visitors"]

    await app.stop()
    stopped = summary(app.plan, await look(app.plan, app.client))
    assert stopped.problems[0].code == "no_worker"
    assert without_late(stopped) == without_late(found)


def without_late(found: Summary) -> dict[str, int]:
    """The totals but for what follows from how busy the machine is."""
    return {line: amount for line, amount in found.totals.items() if not line.startswith("releases_late")}


async def test_a_scrape_reads_what_is_not_counted_yet_and_forgets_it_when_the_broker_falls_silent(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 0.05)
    app = await launch()
    health = Health(Start())
    health.worker = await app.start()
    ends = type(app.client).ends

    async def ahead(client: Client, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: end + 5 for place, end in (await ends(client, places)).items()}

    async def silent(*_: object) -> dict[TopicPartition, int]:
        raise BrokerError("the broker does not answer")

    async def lag(wanted: dict[str, float]) -> bool | None:
        found = parsed(Exposition(health).page().decode())
        behind = {dict(labels)["partition"]: value for (name, labels), value in found.items() if "_lag_" in name}
        return True if behind == wanted else None

    async with reporting.reporting(app.plan, app.client, health):
        for answer, wanted in ((ahead, dict.fromkeys(map(str, range(app.plan.partitions)), 5.0)), (silent, {})):
            monkeypatch.setattr(type(app.client), "ends", answer)
            await app.eventually(partial(lag, wanted))


async def test_the_page_forgets_a_partition_with_the_assignment_not_with_the_next_report(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await launch()
    health = Health(Start())
    health.worker = await app.start()
    health.lag = {("visits", partition): 7 for partition in range(app.plan.partitions)}
    assert app.plan.partitions > 1
    monkeypatch.setattr(type(health.worker), "partitions", [1])

    found = parsed(Exposition(health).page().decode())
    assert {labels: value for (name, labels), value in found.items() if "_lag_" in name} == {
        (("partition", "1"), ("source", "visits")): 7
    }
