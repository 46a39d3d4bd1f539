"""An outage is said once when it begins and once when it is over, however many wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)

from stream_dp.errors import AccessError, BrokerError, OutageError
from stream_dp.runtime.kafka import outages as outage
from stream_dp.runtime.kafka.outages import Outage, answering

GONE = "the broker at here:9092 does not answer; the worker waits for it"
Said = Callable[[], list[str]]
BACK = "the broker at here:9092 answers again, after"


class Clock:
    """Time of the event loop and of the module, which only passes where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def passes(self, seconds: float) -> None:
        """Let time pass at once, and do what is due."""
        self.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: made.now)
    monkeypatch.setattr(outage, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Said:
    """What is logged; a broker is silent as soon as the event loop has run for a second."""
    monkeypatch.setattr(outage, "NOTICED_SECONDS", 1)
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "stream_dp.worker")
    return lambda: caplog.messages


async def wait_for(event: asyncio.Event, shared: Outage) -> None:
    async with shared.waiting():
        await event.wait()


async def test_what_is_answered_soon_is_no_outage(said: Said, clock: Clock) -> None:
    async with Outage("here:9092").waiting():
        await clock.passes(0.9)
    assert not said()


async def test_an_outage_that_many_wait_for_is_said_once_and_is_over_when_the_last_of_them_has_its_answer(
    said: Said, clock: Clock
) -> None:
    shared, first, others = Outage("here:9092"), asyncio.Event(), asyncio.Event()
    waiting = [asyncio.create_task(wait_for(event, shared)) for event in (first, others, others)]
    await clock.passes(0)
    await clock.passes(1)
    assert said() == [GONE]

    first.set()
    async with shared.waiting():  # something else is answered, by another broker of the cluster
        await clock.passes(2)
    assert said() == [GONE]
    others.set()
    await asyncio.gather(*waiting)
    assert said() == [GONE, f"{BACK} 3 s; the worker goes on"]


async def test_who_gives_up_says_nothing_and_the_next_answer_ends_the_outage(said: Said, clock: Clock) -> None:
    shared = Outage("here:9092")
    waiting = asyncio.create_task(wait_for(asyncio.Event(), shared))
    await clock.passes(0)
    await clock.passes(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert said() == [GONE]

    async with shared.waiting():
        await asyncio.sleep(0)
    assert len(said()) == 2


async def test_a_process_that_stood_still_has_seen_no_outage(
    said: Said, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "NOTICED_SECONDS", 2)
    async with Outage("here:9092").waiting():
        await clock.passes(60)
        assert not said()
        await clock.passes(1)
        assert said() == [GONE]


async def test_a_question_is_asked_until_it_is_answered(said: Said) -> None:
    left = [OutageError("gone"), OutageError("gone")]

    async def ask() -> int:
        if left:
            raise left.pop()
        return 7

    assert await Outage("here:9092").patiently(ask) == 7


async def test_a_refusal_is_an_answer() -> None:
    async def ask() -> None:
        raise BrokerError("no such topic")

    with pytest.raises(BrokerError, match="no such topic"):
        await Outage("here:9092").patiently(ask)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KafkaConnectionError("gone"), OutageError, "does not answer"),
        (KafkaTimeoutError(), OutageError, "does not answer"),
        (TimeoutError(), OutageError, "does not answer: no answer in time"),
        (ConnectionResetError("reset"), OutageError, "does not answer"),
        (InvalidTopicError("visits"), BrokerError, "refuses"),
    ],
)
def test_silence_is_told_from_a_refusal(error: Exception, kind: type[BrokerError], words: str) -> None:
    with pytest.raises(BrokerError, match=f"the cluster at here:9092 {words}") as raised, answering("here:9092"):
        raise error
    assert type(raised.value) is kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TopicAuthorizationFailedError("visits"), "use topic visits"),
        (TopicAuthorizationFailedError({"visits", "hits"}), "use topic hits, visits"),
        (GroupAuthorizationFailedError("Unable to get coordinator id for shop"), "use group shop"),
        (TransactionalIdAuthorizationFailed("shop-counts-0"), "use transactional id shop-counts-0"),
        (ClusterAuthorizationFailedError(), "write to any topic"),
        (KafkaError(f"Unexpected error: {GroupAuthorizationFailedError('shop')!r}"), "use a group that it needs"),
    ],
)
def test_account_that_lacks_a_right_is_told_which_however_the_client_hides_it(error: KafkaError, words: str) -> None:
    words = f"the cluster at here:9092 does not let this account {words};"
    with pytest.raises(AccessError, match=words), answering("here:9092"):
        raise error
    assert not issubclass(AccessError, BrokerError)  # after such an error whoever waits for a broker goes on
