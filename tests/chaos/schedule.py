"""What is going to happen, and when: fixed by a seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Place = Literal["worker", "broker", "operator", "producer"]
Seconds = tuple[float, float]

ROUND_S = 40.0
"""How long things happen before everything is left alone for a while, and every window has to be released."""
BETWEEN: Mapping[Place, Seconds] = {"worker": (0, 4), "broker": (5, 50), "operator": (3, 12), "producer": (1, 6)}
"""How long nothing happens to a place before the next act on it."""


@dataclass(frozen=True)
class Kind:
    """A kind of act.

    Attributes:
        place: whom it is done to, or who does it.
        group: what it is called where a run is restricted to some.
        weight: how often it is chosen among the kinds of its place.
        seconds: how long it lasts.
        long: how long it lasts one time out of four, if another time matters.
    """

    place: Place
    group: str
    weight: int
    seconds: Seconds = (0, 2.5)
    long: Seconds | None = None


@dataclass(frozen=True)
class Act:
    """Something that happens: so long after the act before it at this place, for so long."""

    what: str
    after_s: float
    seconds: float
    draw: int
    """What else there is to choose is chosen by this."""

    def chance(self) -> random.Random:
        """For whatever else there is to choose."""
        return random.Random(self.draw)

    def __str__(self) -> str:
        return f"+{self.after_s:.1f} {self.what} {self.seconds:.1f}"


@dataclass(frozen=True)
class Round:
    """What happens between two calms, at several places at once."""

    workers: int
    """How many there are; the others have left, or join."""
    acts: Mapping[str, Sequence[Act]]
    """By place, a worker's number behind the word: `worker 0`."""

    def __str__(self) -> str:
        lines = [f"{self.workers} workers"]
        lines += [f"  {place}: {'; '.join(map(str, acts))}" for place, acts in self.acts.items() if acts]
        return "\n".join(lines)


def schedule(kinds: Mapping[str, Kind], seed: int, workers: tuple[int, int]) -> Iterator[Round]:
    """Rounds without end; equal seeds give equal rounds.

    Args:
        kinds: what may happen.
        seed: whatever decides the rest.
        workers: the least and the most workers there are.
    """
    chance = random.Random(seed)
    while True:
        count = chance.randint(*workers)
        places = [*(f"worker {at}" for at in range(count)), "broker", "operator", "producer"]
        yield Round(count, {place: list(_acts(kinds, place, chance)) for place in places})


def _acts(kinds: Mapping[str, Kind], place: str, chance: random.Random) -> Iterator[Act]:
    here = {name: kind for name, kind in kinds.items() if kind.place == place.split(maxsplit=1)[0]}
    left = ROUND_S
    while here:
        (what,) = chance.choices(list(here), [kind.weight for kind in here.values()])
        kind = here[what]
        after = chance.uniform(8, 12) if chance.random() < 0.12 else chance.uniform(*BETWEEN[kind.place])
        seconds = chance.uniform(*(kind.long if kind.long and chance.random() < 0.25 else kind.seconds))
        left -= after + seconds
        if left < 0:
            return
        yield Act(what, after, seconds, chance.getrandbits(32))


def chosen(kinds: Mapping[str, Kind], only: Collection[str]) -> dict[str, Kind]:
    """The kinds whose names or groups are among the given ones; all if none is given.

    Raises:
        ValueError: there is no such name or group.
    """
    known = kinds.keys() | {kind.group for kind in kinds.values()}
    if strange := sorted(set(only) - known):
        raise ValueError(f"no act or group is called {', '.join(strange)}; there are {', '.join(sorted(known))}")
    return {name: kind for name, kind in kinds.items() if not only or {name, kind.group} & set(only)}
