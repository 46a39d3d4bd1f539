"""Dead letters for a topic that takes none are dropped and counted, and do not hold up counting."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from stream_dp.runtime.faust import letters
from stream_dp.runtime.faust.delivery import Counters
from stream_dp.runtime.faust.letters import LETTERS_DROPPED, DeadLetterBox
from stream_dp.windows.effects import Message


class Owner:
    """Writer whose topics without a leader acknowledge nothing."""

    def __init__(self) -> None:
        self.has_leader = asyncio.Event()
        self.sent: list[Message] = []

    async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
        if messages[0].topic == "headless":
            await self.has_leader.wait()
        self.sent += messages

    async def publish_at(self, messages: Sequence[tuple[int | None, Message]]) -> None: ...

    async def write(self, rows: Sequence[tuple[bytes, bytes | None]]) -> int:
        return 0

    def give_up(self, topics: Collection[str]) -> None: ...

    async def renew(self) -> None: ...

    async def close(self) -> None: ...


def letter(topic: str, number: int) -> Message:
    return Message(topic, None, b"%d" % number)


async def test_topic_without_leader_drops_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LETTERS_SECONDS", 0.01)
    owner = Owner()
    counters = Counters()
    box = DeadLetterBox(counters.add)
    await box.send([letter("headless", 1)], owner)
    await box.send([letter("headless", 2), letter("headless", 3)], owner)
    await box.send([letter("other", 4)], owner)
    assert [message.value for message in owner.sent] == [b"4"]
    assert counters.total(LETTERS_DROPPED) == 2
    owner.has_leader.set()
    while len(owner.sent) < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await box.send([letter("headless", 5)], owner)
    assert [message.value for message in owner.sent] == [b"4", b"1", b"5"]
    assert counters.total(LETTERS_DROPPED) == 2


async def test_refused_letter_ends_the_worker() -> None:
    class Refusing(Owner):
        async def publish(self, messages: Sequence[Message], timestamp_ms: int | None = None) -> None:
            raise ValueError("no right to write")

    with pytest.raises(ValueError, match="no right"):
        await DeadLetterBox(Counters().add).send([letter("headless", 1)], Refusing())


async def test_forgotten_letters_are_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "LETTERS_SECONDS", 0.01)
    owner = Owner()
    box = DeadLetterBox(Counters().add)
    await box.send([letter("headless", 1)], owner)
    box.forget()
    await asyncio.sleep(0)
    owner.has_leader.set()
    await asyncio.sleep(0)
    assert not owner.sent
