"""Workers under a supervisor that starts them again, and a schedule of what happens to them."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.processes import SESSION_SECONDS, WorkerProcess
from tests.support.proxy import Proxy

TRAPPED_WITHIN_S = 4.0
LEAVES_WITHIN_S = 40.0
"""A worker that is told to end gives its agents half a minute."""


@dataclass
class Member:
    """A worker, its network, and whether it is meant to run."""

    worker: WorkerProcess
    proxy: Proxy
    wanted: bool = False
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something happens to it."""

    def start(self) -> None:
        self.worker.start()
        self.wanted = True

    async def kill(self, *, fresh: bool = False) -> None:
        """End it with SIGKILL, or find it dead.

        Args:
            fresh: its folder is deleted.
        """
        self.wanted = False
        if self.worker.pid is not None:
            self.worker.signal(signal.SIGKILL)
            await asyncio.to_thread(self.worker.wait, 10)
        if fresh:
            shutil.rmtree(self.worker.data_dir, ignore_errors=True)

    async def leave(self) -> int:
        """End it with SIGTERM; its exit code, that of SIGKILL if it did not listen."""
        self.wanted = False
        if self.worker.pid is None:
            return 0
        self.worker.signal(signal.SIGTERM)
        for _ in range(round(LEAVES_WITHIN_S / 0.1)):
            if (code := self.worker.ended()) is not None:
                return code
            await asyncio.sleep(0.1)
        await self.kill()
        return -signal.SIGKILL

    async def stand_still(self, seconds: float) -> None:
        """Stop it with SIGSTOP for a while, if it runs, or go on with it where it stopped itself."""
        if self.worker.pid is not None and not self.worker.is_trapped():
            self.worker.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.worker.clear_trap()
        if self.worker.pid is not None:
            self.worker.signal(signal.SIGCONT)

    async def trapped(self, topic: str, number: int, seconds: float) -> bool:
        """Let it stop itself with something unsent for a topic, for a while; whether that came to pass."""
        self.worker.set_trap(topic, number)
        for _ in range(round(TRAPPED_WITHIN_S / 0.05)):
            if self.worker.is_trapped():
                break
            await asyncio.sleep(0.05)
        was = self.worker.is_trapped()
        await self.stand_still(seconds)
        return was


class Crew:
    """Members that are started again whenever they end by themselves, as a supervisor does."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.ends: Counter[str] = Counter()
        """How often a member ended by itself, by what it said."""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _supervise(self) -> None:
        while True:
            for member in self.members:
                if member.wanted and member.worker.pid is not None and (code := member.worker.ended()) is not None:
                    self.ends[f"{code}: {member.worker.reason()}"] += 1
                    member.worker.start()
            await asyncio.sleep(0.2)

    async def leave(self) -> None:
        """Let everybody go, in order."""
        for member in self.members:
            assert await member.leave() in (0, 1), member.worker.said()


@dataclass(frozen=True)
class Act:
    """Something that happens to a member: what, how long it is held down, how long the next act waits."""

    what: str
    member: int
    seconds: float
    wait_s: float
    fresh: bool = False
    topic: str = ""
    number: int = 1

    def __str__(self) -> str:
        extra = f" {self.topic}:{self.number}" if self.topic else " fresh" if self.fresh else ""
        return f"{self.what} {self.member}{extra} {self.seconds:.1f} +{self.wait_s:.1f}"


WEIGHTS = {"kill": 32, "leave": 18, "stop": 10, "stop long": 8, "trap": 14, "freeze": 8, "freeze and kill": 5, "cut": 5}
TRAPS = ["counts-changelog", "merges-changelog", "releases-changelog", "releases-changelog/r"]
TRAPS += ["releases-changelog/t", "-partials", "-merged", "-pages.public", "-top.partner", "-orders"]


def schedule(seed: int, members: int, acts: int) -> list[Act]:
    """So many acts on so many members; equal seeds give equal schedules."""
    chance = random.Random(seed)
    longer = SESSION_SECONDS + 1

    def one() -> Act:
        what = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        member = chance.randrange(members)
        wait = chance.uniform(8, 12) if chance.random() < 0.12 else chance.uniform(0, 3)
        long = chance.random() < 0.25 if what in ("kill", "leave", "cut") else what != "stop"
        held = chance.uniform(longer, longer + 4) if long else chance.uniform(0, 2.5)
        fresh = what in ("kill", "leave", "freeze and kill") and chance.random() < 0.3
        topic, number = (chance.choice(TRAPS), chance.randrange(1, 4)) if what == "trap" else ("", 1)
        return Act(what, member, held, wait, fresh, topic, number)

    return [one() for _ in range(acts)]


async def carry_out(crew: Crew, acts: Sequence[Act], told: Callable[[int, Act], None]) -> Counter[str]:
    """Let all acts happen, several members' at once.

    Args:
        crew: its members run.
        acts: in order; one waits until its member is done with the one before.
        told: called before every act, with its number.

    Returns:
        What happened how often.
    """
    done: Counter[str] = Counter()
    under_way: set[asyncio.Task[None]] = set()
    for number, act in enumerate(acts):
        member = crew.members[act.member]
        await member.busy.acquire()
        told(number, act)
        task = asyncio.create_task(_happen(member, act, done))
        under_way.add(task)
        task.add_done_callback(lambda _, member=member: member.busy.release())  # type: ignore[misc]
        await asyncio.sleep(act.wait_s)
        for ended in [one for one in under_way if one.done()]:
            under_way.discard(ended)
            ended.result()
    await asyncio.gather(*under_way)
    return done


async def _happen(member: Member, act: Act, done: Counter[str]) -> None:
    done[act.what] += 1
    match act.what:
        case "kill":
            await member.kill(fresh=act.fresh)
            await asyncio.sleep(act.seconds)
        case "leave":
            done["left only by SIGKILL"] += await member.leave() == -signal.SIGKILL
            await member.kill(fresh=act.fresh)
            await asyncio.sleep(act.seconds)
        case "stop" | "stop long":
            await member.stand_still(act.seconds)
        case "trap":
            done["trapped"] += await member.trapped(act.topic, act.number, act.seconds)
        case "freeze":
            member.proxy.freeze()
            await asyncio.sleep(act.seconds)
            member.proxy.thaw()
        case "freeze and kill":
            member.proxy.freeze()
            await asyncio.sleep(0.3)
            await member.kill(fresh=act.fresh)
            await asyncio.sleep(act.seconds)
            member.proxy.thaw()
        case "cut":
            member.proxy.cut()
            await asyncio.sleep(act.seconds)
            member.proxy.mend()
    if not member.wanted:
        member.start()
        done["join"] += 1
        done["fresh folder"] += act.fresh


def lines(acts: Sequence[Act], per_line: int = 6) -> Iterator[str]:
    """A schedule for people."""
    for at in range(0, len(acts), per_line):
        yield "; ".join(map(str, acts[at : at + per_line]))
