"""Where logs end, as the leaders of a cluster say it: asked on a connection of its own, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from faust.types import TP

from stream_dp.errors import BrokerError
from stream_dp.runtime import client
from stream_dp.runtime.client import KafkaClient

PLACES = [TP("visits", 0), TP("visits", 1)]


def answering(answer: Callable[[list[Any]], Awaitable[Any]]) -> KafkaClient:
    nobody: Any = None
    idle: Any = SimpleNamespace(end_offsets=answer)
    return KafkaClient("here:9092", nobody, nobody, idle)


async def test_ends_are_those_that_the_leaders_name() -> None:
    async def answer(places: list[Any]) -> dict[Any, int]:
        return {place: 7 + place.partition for place in places}

    assert await answering(answer).ends(PLACES) == {PLACES[0]: 7, PLACES[1]: 8}


@pytest.mark.parametrize("error", [KafkaTimeoutError, UnknownTopicOrPartitionError])
async def test_leaders_that_refuse_are_a_broker_that_does_not_answer(error: type[Exception]) -> None:
    async def answer(_: list[Any]) -> None:
        raise error

    with pytest.raises(BrokerError, match="here:9092 does not answer"):
        await answering(answer).ends(PLACES)


async def test_leaders_that_say_nothing_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ENDS_SECONDS", 0.01)

    async def answer(_: list[Any]) -> None:
        await asyncio.Event().wait()

    with pytest.raises(BrokerError, match="no answer in time"):
        await answering(answer).ends(PLACES)
