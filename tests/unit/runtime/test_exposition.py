"""The page of metrics: every counter with its meaning, and how the worker is; for ten seconds it stays as it is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import stream_dp
from stream_dp.runtime import exposition
from stream_dp.runtime.exposition import COUNTERS, STEP_SECONDS, Exposition
from stream_dp.runtime.health import Health
from stream_dp.runtime.starting import Start
from stream_dp.runtime.worker import Worker
from stream_dp.testing import application
from stream_dp.windows.effects import ROWS_LOADED, Increment
from tests.support.operating import METRICS
from tests.support.probes import Samples, parsed

SOURCES = [path for path in Path(stream_dp.__file__).parent.rglob("*.py") if path != Path(exposition.__file__)]


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def health_of(worker: Worker) -> Health:
    health = Health(Start())
    health.worker = worker
    return health


def counted_in_the_package() -> set[tuple[str, tuple[str, ...]]]:
    """Name and labels of every `Increment` that is written with them."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Increment":
                name, _, *labels = map(ast.unparse, node.args)
                keys = [ast.unparse(pair.elts[0]) for pair in node.args[2].elts] if labels else []  # type: ignore[attr-defined]
                found.add((name.strip("'"), tuple(key.strip("'") for key in keys)))
    return found


def test_every_counter_of_the_package_is_described_and_nothing_else() -> None:
    found = counted_in_the_package() - {("name", ("view",)), ("ROWS_LOADED", ())}
    found |= {(name, ("view",)) for name in ("windows_sharpened", "sharpenings_refused")} | {(ROWS_LOADED, ())}
    assert found == {(name, counted.labels) for name, counted in COUNTERS.items()}


async def test_every_metric_is_described_to_operators_with_its_labels(worker: Worker) -> None:
    await worker._timers.tick()
    families = list(Exposition(health_of(worker)).collect())
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in families}
    assert names == METRICS.keys()
    for name, counted in COUNTERS.items():
        assert METRICS[f"stream_dp_{name}_total"] == counted.labels


async def test_counters_stand_on_the_page_with_their_labels_and_begin_at_zero(worker: Worker) -> None:
    (view,) = worker.plan.views
    worker.counters.add(Increment("events_consumed", 11))
    worker.counters.add(Increment("events_refused", 2, (("reason", "late"), ("view", view))))
    worker.counters.add(Increment("events_refused", 3, (("reason", "null_key"), ("view", ""))))
    worker.counters.add(Increment("windows_released", 5, (("view", view),)))
    found = parsed(Exposition(health_of(worker)).page().decode())

    assert found["stream_dp_events_consumed_total", ()] == 11
    assert found["stream_dp_events_refused_total", (("reason", "late"), ("view", view))] == 2
    assert found["stream_dp_events_refused_total", (("reason", "null_key"), ("view", ""))] == 3
    assert found["stream_dp_windows_released_total", (("view", view),)] == 5
    assert found["stream_dp_windows_refused_total", (("view", view),)] == 0
    assert found["stream_dp_events_replayed_total", ()] == 0


async def test_a_worker_that_runs_says_which_share_it_has_and_when_it_ticked(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = worker.host.clock_ms() // 1000
    await worker._timers.tick()
    found = parsed(Exposition(health_of(worker)).page().decode())

    for name, value in {"ready": 1, "broker_silent": 0, "partitions_owned": 3, "recovering": 0}.items():
        assert found[f"stream_dp_{name}", ()] == value
    assert found["stream_dp_recovery_remaining_records", ()] == 0
    ticked = found["stream_dp_last_tick_timestamp_seconds", ()]
    assert ticked == int(ticked)
    assert before <= ticked <= worker.host.clock_ms() // 1000

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
    assert found["stream_dp_events_consumed_total", ()] == 0


async def test_the_page_stays_as_it_is_for_ten_seconds(worker: Worker) -> None:
    clock = Clock()
    page = Exposition(health_of(worker), clock)

    def consumed() -> float:
        return parsed(page.page().decode())["stream_dp_events_consumed_total", ()]

    assert consumed() == 0
    worker.counters.add(Increment("events_consumed", 1))
    clock.now += STEP_SECONDS - 0.1
    assert consumed() == 0
    clock.now += 0.1
    assert consumed() == 1
