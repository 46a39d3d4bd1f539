"""The page of metrics: every counter with its meaning, and how the worker is; for ten seconds it stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import stream_dp
from stream_dp.releases.rows import LATE, TOTALS, TotalsRow
from stream_dp.runtime.faust.delivery import OF_A_PROCESS
from stream_dp.runtime.faust.letters import LETTERS_DROPPED
from stream_dp.runtime.kafka.topics import COUNTS, RELEASES, sources_of
from stream_dp.runtime.worker import health as exposition
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.health import COUNTERS, STEP_SECONDS, Exposition, Health, Start
from stream_dp.runtime.worker.reporting import COUNTED, SETTLED
from stream_dp.testing import application
from stream_dp.windows.count_rows import MARKER, Marker, ViewMark
from stream_dp.windows.effects import ROWS_LOADED, Increment
from stream_dp.windows.encoding import encode, text
from tests.support.operating import METRICS
from tests.support.probes import Samples, loaded, parsed

SOURCES = [path for path in Path(stream_dp.__file__).parent.rglob("*.py") if path != Path(exposition.__file__)]


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def worker(worker: Worker) -> Worker:
    """One that is ready."""
    return await loaded(worker)


def health_of(worker: Worker) -> Health:
    health = Health(Start())
    health.worker = worker
    return health


def counted_in_the_package() -> set[str]:
    """Names of counters that the package writes down: of effects, and of what is stored."""
    called = [
        node
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Increment", "TotalChange", "self._store")
    ]
    named = {ast.unparse(node.args[0]).strip("'") for node in called if not isinstance(node.func, ast.Attribute)}
    return named | {word.arg for node in called for word in node.keywords if word.arg is not None}


def test_every_counter_of_the_package_is_described_and_nothing_else() -> None:
    """Those of a total whose name is a variable, and of one of several, are named here."""
    found = counted_in_the_package() - {
        "name",
        "counter",
        "became",
        "reason",
        "self.counter",
        "ROWS_LOADED",
        "LATE",
        "LETTERS_DROPPED",
    }
    found |= {"windows_refused", "windows_sharpened", "sharpenings_refused", ROWS_LOADED, LATE, LETTERS_DROPPED}
    assert found == COUNTERS.keys()
    assert {
        *COUNTED,
        *SETTLED,
        "events_consumed",
        "watermarks_read",
        "records_missing",
        "events_refused",
    } | OF_A_PROCESS == {
        *COUNTERS,
        "grants",
    }


async def test_every_metric_is_described_to_operators_with_its_labels(worker: Worker) -> None:
    await worker.timers.tick()
    families = list(Exposition(health_of(worker)).collect())
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert names == METRICS.keys()
    for name, counted in COUNTERS.items():
        assert METRICS[f"stream_dp_{name}_total"] == counted.labels


async def test_what_is_stored_stands_on_the_page_by_partition_and_what_the_process_did_beside_it(
    worker: Worker,
) -> None:
    """Another partition has zeros, and what is counted and not stored yet, or in an open window, is not there."""
    (view,) = worker.plan.views
    (source,) = sources_of(worker.plan).values()
    home = worker.host.topics.ledger_partition(worker.plan.views[view].ledger)
    mark = ViewMark(
        b"", 0, None, 0, 0, 0, [], closed=2, counted=7, refused={"late": 2, "clipped": 9}, repeats={"clipped": 1}
    )
    marker = Marker(10, 0, views={view: mark}, consumed=11, watermarks=1, refused={"null_key": 3})
    counts, releases = worker.tables[COUNTS], worker.tables[RELEASES]
    await counts.commit(1, [(MARKER + text(source.name), encode(marker))], counts.owner(1))
    totals = TotalsRow({view: {"windows_released": 5}, "removed": {"windows_released": 4}})
    await releases.commit(home, [(TOTALS, encode(totals))], releases.owner(home))
    worker.counters.add(Increment("events_consumed", 100))
    worker.counters.add(Increment("events_replayed", 4))
    found = parsed(Exposition(health_of(worker)).page().decode())

    def total(name: str, **labels: str) -> float:
        return found[f"stream_dp_{name}_total", tuple(sorted(labels.items()))]

    assert [total("events_consumed", partition=str(at)) for at in range(3)] == [0, 11, 0]
    assert total("watermarks_read", partition="1") == 1
    assert total("events_refused", reason="late", view=view, partition="1") == 2
    assert total("events_refused", reason="clipped", view=view, partition="1") == 1
    assert total("events_refused", reason="null_key", view="", partition="1") == 3
    assert total("events_counted", view=view, partition="1") == 7
    assert [total("windows_closed", view=view, partition=str(at)) for at in range(3)] == [0, 2, 0]
    assert total("windows_released", view=view, partition=str(home)) == 5
    assert total("windows_refused", view=view, partition=str(home)) == 0
    assert total("events_replayed") == 4
    assert total("partials_repeated") == 0
    assert {dict(labels).get("view") for _, labels in found} == {None, "", view}
    assert {name for name, amount in worker.totals().lines().items() if amount} == {
        *("events_consumed", "events_replayed", "watermarks_read", f"windows_released{{view={view}}}"),
        *(f"events_refused{{reason={reason},view={view}}}" for reason in ("late", "clipped")),
        *("events_refused{reason=null_key,view=}", f"events_counted{{view={view}}}", f"windows_closed{{view={view}}}"),
    }


async def test_a_worker_that_runs_says_which_share_it_has_and_when_it_ticked(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = worker.host.clock_ms() // 1000
    await worker.timers.tick()
    found = parsed(Exposition(health_of(worker)).page().decode())

    for name, value in {"ready": 1, "broker_silent": 0, "partitions_owned": 3, "recovering": 0}.items():
        assert found[f"stream_dp_{name}", ()] == value
    assert found["stream_dp_recovery_remaining_records", ()] == 0
    ticked = found["stream_dp_last_tick_timestamp_seconds", ()]
    assert ticked == int(ticked)
    assert before <= ticked <= worker.host.clock_ms() // 1000

    assert found["stream_dp_partitions", ()] == 3
    assert 0 < found["stream_dp_data_dir_free_bytes", ()] <= found["stream_dp_data_dir_size_bytes", ()]

    monkeypatch.setattr(worker.app.outage, "_since", 0.0)
    silent = parsed(Exposition(health_of(worker)).page().decode())
    assert (silent["stream_dp_ready", ()], silent["stream_dp_broker_silent", ()]) == (0, 1)


async def test_before_there_is_a_worker_the_page_says_that_it_is_not_ready(worker: Worker) -> None:
    page = Exposition(Health(Start())).page().decode()
    assert parsed(page) == {("stream_dp_ready", ()): 0, ("stream_dp_broker_silent", ()): 0}


async def test_a_worker_that_has_yet_to_join_is_not_ready_and_has_nothing(
    visits: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Samples] = []
    start = Worker.start

    async def looked_at(worker: Worker) -> None:
        seen.append(parsed(Exposition(health_of(worker)).page().decode()))
        await start(worker)

    monkeypatch.setattr(Worker, "start", looked_at)
    async with application(visits(), tmp_path) as app:
        await app.start()
    (found,) = seen
    assert {found[f"stream_dp_{name}", ()] for name in ("ready", "partitions_owned", "broker_silent")} == {0}
    assert ("stream_dp_last_tick_timestamp_seconds", ()) not in found
    assert found["stream_dp_events_replayed_total", ()] == 0
    assert not [name for name, labels in found if "partition" in dict(labels)]


async def test_the_page_stays_as_it_is_for_ten_seconds(worker: Worker) -> None:
    clock = Clock()
    page = Exposition(health_of(worker), clock)

    def replayed() -> float:
        return parsed(page.page().decode())["stream_dp_events_replayed_total", ()]

    assert replayed() == 0
    worker.counters.add(Increment("events_replayed", 1))
    clock.now += STEP_SECONDS - 0.1
    assert replayed() == 0
    clock.now += 0.1
    assert replayed() == 1
