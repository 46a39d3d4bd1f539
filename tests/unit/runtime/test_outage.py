"""An outage is said once when it begins and once when it is over, however many wait for it."""

from __future__ import annotations

import asyncio
import logging

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
from stream_dp.runtime import outage
from stream_dp.runtime.outage import Outage, answering

GONE = "the broker at here:9092 does not answer; the worker waits for it"
BACK = "the broker at here:9092 answers again, after"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is logged; a broker is silent as soon as the event loop has run for a second."""
    monkeypatch.setattr(outage, "NOTICED_SECONDS", 1)
    monkeypatch.setattr(outage, "RETRY_SECONDS", 0.01)
    caplog.set_level(logging.INFO, "stream_dp.worker")
    return caplog.messages


async def wait_for(event: asyncio.Event, shared: Outage) -> None:
    async with shared.waiting():
        await event.wait()


async def test_what_is_answered_soon_is_no_outage(said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    async with Outage("here:9092").waiting():
        await asyncio.sleep(0.1)
    assert not caplog.messages


async def test_an_outage_that_many_wait_for_is_said_once_and_is_over_when_the_last_of_them_has_its_answer(
    said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    shared, first, others = Outage("here:9092"), asyncio.Event(), asyncio.Event()
    waiting = [asyncio.create_task(wait_for(event, shared)) for event in (first, others, others)]
    await asyncio.sleep(1.2)
    assert caplog.messages == [GONE]

    first.set()
    async with shared.waiting():  # something else is answered, by another broker of the cluster
        await asyncio.sleep(0)
    assert caplog.messages == [GONE]
    others.set()
    await asyncio.gather(*waiting)
    gone, back = caplog.messages
    assert (gone, back) == (GONE, f"{BACK} 1 s; the worker goes on")


async def test_who_gives_up_says_nothing_and_the_next_answer_ends_the_outage(
    said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    shared = Outage("here:9092")
    waiting = asyncio.create_task(wait_for(asyncio.Event(), shared))
    await asyncio.sleep(1.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert caplog.messages == [GONE]

    async with shared.waiting():
        await asyncio.sleep(0)
    assert len(caplog.messages) == 2


async def test_a_process_that_stood_still_has_seen_no_outage(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outage, "NOTICED_SECONDS", 2)
    loop, ahead = asyncio.get_running_loop(), 0.0
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + ahead)
    async with Outage("here:9092").waiting():
        ahead = 60.0
        await asyncio.sleep(0.1)
    assert not caplog.messages


async def test_a_question_is_asked_until_it_is_answered(said: list[str]) -> None:
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
