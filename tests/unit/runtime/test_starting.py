"""A start has a deadline for everything that it waits for, and says what that is."""

from __future__ import annotations

import asyncio
import logging

import pytest

from stream_dp.errors import BrokerError, OutageError
from stream_dp.runtime.kafka import outages
from stream_dp.runtime.worker import health as starting
from stream_dp.runtime.worker.health import Start
from stream_dp.testing.application import WITHIN_SECONDS


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_thing_is_waited_for_until_the_deadline_and_the_next_one_anew(clock: Clock) -> None:
    start = Start(60, clock)
    start.wait_for("the broker")
    assert start.look()
    clock.now += 59
    assert start.look()
    start.wait_for("the group")
    assert start.look()
    clock.now += 59
    assert start.look()
    clock.now += 1
    assert not start.look()
    assert start.waiting_for == "the group"


def test_a_recovery_that_goes_on_is_not_cut_off_and_one_that_stands_is(clock: Clock) -> None:
    rows = 1000
    start = Start(60, clock)
    start.wait_for(lambda: f"{rows} rows")
    for _ in range(10):
        rows -= 1
        clock.now += 59
        assert start.look()
    clock.now += 60
    assert not start.look()
    assert start.waiting_for == "990 rows"


def test_every_ten_seconds_it_says_what_it_waits_for(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stream_dp.worker")
    start = Start(3600, clock)
    start.wait_for("the broker at here:9092")
    for _ in range(250):
        clock.now += 0.1
        start.look()
    assert caplog.messages == ["waiting for the broker at here:9092"] * 2


async def test_overdue_comes_back_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LOOK_SECONDS", 0.001)
    start = Start(0.05)
    start.wait_for("the broker")
    await asyncio.wait_for(start.overdue(), WITHIN_SECONDS)


async def test_the_broker_is_asked_again_and_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "RETRY_SECONDS", 0.001)
    answers: list[Exception] = [BrokerError("refused"), OutageError("gone"), OutageError("gone")]

    async def ask() -> None:
        raise answers.pop()

    with pytest.raises(BrokerError, match="refused"):
        await outages.patiently(ask)
    assert not answers
