"""A run: rounds in which things happen, calms in which everything has to be released, and an audit of what is left."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stream_dp.errors import OutageError
from tests.chaos.acts import DEEDS, MOST_AHEAD_S
from tests.chaos.liveness import Calm, check_liveness
from tests.chaos.schedule import ROUND_S, Act, Kind, Round, schedule
from tests.chaos.world import FINEST, World, ends, world
from tests.support.audit import Report

BOUND_S = 90.0
"""How long everything that was fed may take to be released, once nothing happens any more."""
TOLD_EVERY_S = 30.0

Say = Callable[[str], None]


@dataclass
class Result:
    """What a run came to."""

    seed: int
    report: Report
    happened: Counter[str]
    told: Counter[str]
    """What more there is to tell of what happened."""
    ended: Mapping[str, int]
    """How often workers ended by themselves, by what they said."""
    slowest_s: float
    calms: Sequence[Calm] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [f"  {count:6}  {what}" for what, count in sorted(self.happened.items())]
        rows += ["of which:", *(f"  {count:6}  {what}" for what, count in sorted(self.told.items()))]
        rows += ["workers that ended by themselves:"] if self.ended else []
        rows += [f"  {count:6}  {why}" for why, count in self.ended.items()]
        rows += [f"slowest release after a disturbance: {self.slowest_s:.1f} s, in {len(self.calms)} calms"]
        return "\n".join(["what happened:", *rows, str(self.report), f"seed {self.seed}"])


async def run(
    folder: Path,
    kinds: Mapping[str, Kind],
    *,
    seed: int,
    minutes: float,
    workers: tuple[int, int],
    say: Say,
    brokers: int = 1,
) -> Result:
    """Let things happen for some minutes, then audit what is left.

    Args:
        folder: an empty folder for everything.
        kinds: what may happen.
        seed: of the schedule.
        minutes: as many rounds begin as should be over by then, at least one.
        workers: the least and the most of them.
        say: told about progress.
        brokers: of the cluster, one or three.
    """
    began = time.monotonic()
    chance, calms = random.Random(seed), list[Calm]()
    async with world(folder, workers[1], brokers) as here:
        say(f"{time.monotonic() - began:.0f} s: the cluster is up at {here.app.plan.broker}, everything is in {folder}")
        endless = [here.watch.run(), here.feed_without_end(chance), _tell(here, began, say)]
        tasks = [asyncio.create_task(one) for one in endless]
        try:
            await here.begin()
            start = time.monotonic()
            for number, planned in enumerate(schedule(kinds, seed, workers)):
                if number and time.monotonic() + ROUND_S > start + minutes * 60:
                    break
                say(f"round {number}: {planned}")
                await _play(here, planned)
                calm = await _calm(here)
                calms.append(calm)
                took = calm.ended_s - calm.began_s
                say(f"calm: {here.watch.shown()} of {here.stream.windows} windows released, {took:.1f} s")
                for ended in [task for task in tasks if task.done()]:
                    ended.result()
                if here.watch.shown() < here.stream.windows:
                    say(
                        "windows are missing for so long that nothing more is done; the logs say where the workers wait"
                    )
                    for member in here.crew.members:
                        if member.worker.pid is not None:
                            member.worker.signal(signal.SIGUSR1)
                    await asyncio.sleep(2)
                    break
            report = await _end(here)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        report.faults += here.faults
        slowest = check_liveness(here.fed, here.watch.seen, calms, BOUND_S, report)
        return Result(seed, report, here.done, here.told, ends(here.crew), slowest, calms)


async def _play(here: World, planned: Round) -> None:
    """Let a round happen, at all its places at once; afterwards all its workers run."""
    here.feeding.set()
    leaving = []
    for at, member in enumerate(here.crew.members):
        if at < planned.workers and not member.wanted:
            member.start()
            here.done["join"] += 1
        elif at >= planned.workers and member.wanted:
            here.done["leave for a round"] += 1
            leaving.append(here.leave(member))
    places = [_at(here, place, acts) for place, acts in planned.acts.items()]
    await asyncio.gather(*leaving, *places)


async def _at(here: World, place: str, acts: Sequence[Act]) -> None:
    member = here.crew.members[int(place.split()[1])] if place.startswith("worker ") else None
    for act in acts:
        await asyncio.sleep(act.after_s)
        here.done[act.what] += 1
        if member is None:
            try:
                await DEEDS[act.what](here, act)
            except OutageError:  # one broker of three may be gone while operators and producers work
                here.told[f"{act.what}: met an outage"] += 1
            continue
        async with here.lock(member):
            await DEEDS[act.what](here, act, member)
            if not member.wanted:
                member.start()


async def _calm(here: World) -> Calm:
    """Leave everything alone until all that was fed is released, or until it is too late for that."""
    here.feeding.clear()
    began = time.monotonic()
    await here.feed(2)
    await here.all_shown(BOUND_S + 1)
    return Calm(began, time.monotonic())


async def _end(here: World) -> Report:
    """Wait for what unlocks, let every window be read at the finest level, send everybody away, audit what is left."""
    await asyncio.sleep(MOST_AHEAD_S)  # then no grant waits any more
    deadline = time.monotonic() + BOUND_S
    while (locked := await here.locked()) and time.monotonic() < deadline:
        await asyncio.sleep(1)
    here.faults += [("locked", where) for where in locked]
    for audience, level in FINEST.items():
        await here.app.grant(audience, level)
    if here.watch.shown() == here.stream.windows:
        with suppress(TimeoutError):  # the audit tells which windows are too coarse
            await here.stream.wait_until_sharpened(FINEST, BOUND_S)
    await asyncio.gather(*map(here.leave, here.crew.members))
    return await here.stream.audit(FINEST)


async def _tell(here: World, began: float, say: Say) -> None:
    while True:
        await asyncio.sleep(TOLD_EVERY_S)
        happened = sum(here.done.values())
        say(
            f"{time.monotonic() - began:5.0f} s: {happened} acts, {here.stream.windows} windows fed, "
            f"{here.watch.shown()} released, {sum(here.crew.ends.values())} workers ended by themselves"
        )
