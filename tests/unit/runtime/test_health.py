"""What probes are told, from the beginning of a process to its end."""

from __future__ import annotations

import pytest

from stream_dp.errors import StateError
from stream_dp.runtime.worker.assembly import Worker
from stream_dp.runtime.worker.health import Health, Start
from stream_dp.runtime.worker.process import Stop
from tests.support.probes import loaded


@pytest.fixture
async def worker(worker: Worker) -> Worker:
    """One that is ready."""
    return await loaded(worker)


@pytest.fixture
def health(worker: Worker) -> Health:
    made = Health(Start())
    made.worker = worker
    return made


def test_a_process_without_a_worker_waits_for_what_its_start_waits_for() -> None:
    start = Start()
    health = Health(start)
    start.wait_for("the broker at here:9092")
    assert (health.is_alive, health.is_silent, health.waiting_for) == (True, False, "the broker at here:9092")


async def test_a_worker_that_runs_waits_for_nothing(health: Health) -> None:
    assert (health.is_alive, health.is_silent, health.waiting_for) == (True, False, "")


async def test_a_worker_that_was_left_out_of_the_group_waits_for_it(health: Health, worker: Worker) -> None:
    await worker.app.on_partitions_revoked.send(set())
    assert health.waiting_for == "the group: the session of a worker that died may last up to 60 s"
    await worker.app.on_partitions_assigned.send(set())
    assert health.waiting_for == "the stored state of 3 partitions, which is read and checked"
    await worker.timers.tick()
    await worker.loaded()
    assert health.waiting_for == ""


async def test_a_worker_that_recovers_waits_for_its_tables(health: Health, worker: Worker) -> None:
    worker.app.tables.recovery.completed.clear()
    assert worker.is_recovering
    assert health.waiting_for == "the recovery of the tables: 0 rows of the changelogs to go"


async def test_a_worker_that_is_cut_off_waits_for_the_broker_and_lives(
    health: Health, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker.app.outage, "_since", 0.0)
    assert (health.is_alive, health.is_silent) == (True, True)
    assert health.waiting_for == f"the broker at {worker.app.outage.address}, which does not answer"


async def test_a_worker_that_has_crashed_lives_no_more(health: Health, worker: Worker) -> None:
    await worker.app.crash(StateError("the counts of zelda"))
    assert (health.is_alive, health.waiting_for) == (False, "its end, since it has crashed")


async def test_a_worker_that_was_told_to_stop_is_not_ready_and_lives(worker: Worker) -> None:
    stop = Stop()
    health = Health(Start(), stop)
    health.worker = worker
    assert health.waiting_for == ""
    stop.given = True
    assert (health.is_alive, health.waiting_for) == (True, "its end, since it was told to stop")
