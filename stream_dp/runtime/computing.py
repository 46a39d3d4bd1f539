"""How long the windows of a view take on this machine: what an offset between close and release has to cover."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice

import rocksdict
from pydantic import BaseModel, Field

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.lists import KeyList
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.bootstrap import Settled
from stream_dp.runtime.factory import Factory
from stream_dp.runtime.kafka.lists import Lists
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.effects import Commit, Message, Send, Step
from stream_dp.windows.encoding import bucket_of, encode
from stream_dp.windows.merging import Partial

SHARE = 2
"""Of the offset a window may take one part in so many; the rest is for the way between the topics, and other views."""
ADVISED_KEYS = 100_000
"""An offset that covers fewer keys is warned of."""
FEWEST_KEYS, MOST_KEYS = 512, 65_536
MOST_SAID = 10_000_000
"""More keys than this are not told apart: what a key takes is too little to be measured then."""
TIMES = 3
"""Each measurement is the least of so many: other work of the machine only ever adds to it."""
RARE, COMMON = 1, 1_000_000
"""Counts that no level shows, and that all do."""


class Computing(BaseModel):
    """What the windows of a view take, from the exact counts of the partitions to the stored records."""

    view: str
    milliseconds_a_window: float = Field(description="However many keys it has.")
    microseconds_a_key: float = Field(description="For every distinct key of a window.")
    microseconds_a_shown_key: float = Field(description="For every one that all audiences are shown.")
    keys_in_time: int = Field(description="How many keys a window may have that takes half of the offset.")
    shown_keys_in_time: int = Field(description="The same if all of them are shown.")

    def words(self, offset: str) -> str:
        """A sentence for operators; whoever says it knows the offset."""
        return (
            f"On this machine a window of {self.view} takes {self.milliseconds_a_window:.3g} ms, "
            f"{_microseconds(self.microseconds_a_key)} for every key and "
            f"{_microseconds(self.microseconds_a_shown_key)} for one that is shown: half of the offset of {offset} "
            f"covers {_keys(self.keys_in_time)} keys, or {_keys(self.shown_keys_in_time)} that are all shown"
        )

    @property
    def advised(self) -> bool:
        """Whether the offset covers what windows usually have."""
        return self.keys_in_time >= ADVISED_KEYS


def _microseconds(amount: float) -> str:
    return f"{amount:.3g} us" if amount >= 0.01 else "less than 0.01 us"


def _keys(number: int) -> str:
    """A number of keys, rounded down to two digits: no measurement says more."""
    if number >= MOST_SAID:
        return "more than 10 million"
    unit = 10 ** max(0, len(str(number)) - 2)
    return f"{number // unit * unit:,}"


def measure(plan: Plan, seconds: float = 0.5) -> list[Computing]:
    """Time windows of made-up keys, more and more of them.

    Args:
        plan: the views.
        seconds: about how long it may take for all views together; small windows are timed in any case.
    """
    return [_measured(plan, view, seconds / len(plan.views)) for view in plan.views.values()]


def _measured(plan: Plan, view: ViewPlan, seconds: float) -> Computing:
    _timed(plan, view, 1, COMMON)  # whatever is done once in a process
    empty = _least(plan, view, 0, RARE)
    rare, shown = (_seconds_a_key(plan, view, count, empty, seconds / 2) for count in (RARE, COMMON))
    left = plan.slots.offset_ms / 1000 / SHARE - empty
    return Computing(
        view=view.name,
        milliseconds_a_window=round(empty * 1e3, 2),
        microseconds_a_key=round(rare * 1e6, 2),
        microseconds_a_shown_key=round(shown * 1e6, 2),
        keys_in_time=min(max(0, int(left / rare)), MOST_SAID),
        shown_keys_in_time=min(max(0, int(left / shown)), MOST_SAID),
    )


def _seconds_a_key(plan: Plan, view: ViewPlan, count: int, empty: float, seconds: float) -> float:
    until = time.perf_counter() + seconds
    keys = FEWEST_KEYS
    taken = _least(plan, view, keys, count)
    while keys < MOST_KEYS and time.perf_counter() + 2 * TIMES * taken < until:
        keys *= 2
        taken = _least(plan, view, keys, count)
    return max(taken - empty, 1e-9 * keys) / keys


def _least(plan: Plan, view: ViewPlan, keys: int, users: int) -> float:
    return min(_timed(plan, view, keys, users) for _ in range(TIMES))


def _timed(plan: Plan, view: ViewPlan, keys: int, users: int) -> float:
    """Computing seconds from the counts of the partitions to a stored release; every key has the same count.

    The keys are those of the view's list as far as it has so many.
    """
    kind, others = view.kind, (f"{number:012d}" for number in count())
    window = replace(view.window, shape=view.window.shape.each_pane)  # adding the others up is little beside that
    plan = replace(plan, views={**plan.views, view.name: replace(view, window=window)})
    listed = () if kind.topics else kind.domain({}) or ()
    names = list(islice(chain(listed, others), keys))
    start = view.window.first_ms or 0
    spare = islice(others, kind.fewest_keys)
    lists = Lists({view.name: {topic: KeyList.of([*names, *spare]) for topic in kind.topics}})
    settled = Settled(plan.begun(dict.fromkeys(plan.views, start)), lists)
    factory = Factory(settled, keys=KeyRing.of(bytes(32)), entropy=system_entropy, cache=rocksdict.Cache(0))
    counts: list[dict[str, int]] = [{} for _ in range(view.buckets)]
    for name in names:
        counts[bucket_of(name, view.buckets)][name] = users
    merges, releases = _Memory(), _Memory()
    engine = factory.engine(Topics.of(plan).ledger_partition(view.ledger))
    releases.carry_out(engine.load(releases, now_ms=0))
    began = time.thread_time()
    partials = [
        encode(Partial(view.name, start, bucket, partition, 0, 0, 1, {} if partition else part))
        for bucket, part in enumerate(counts)
        for partition in range(plan.partitions)
    ]
    merged = merges.carry_out(factory.merger().partials(partials, merges))
    values = [message.value for message in merged if message.topic == Topics.of(plan).merged]
    releases.carry_out(engine.buckets(values, releases))
    releases.carry_out(engine.due(releases))
    return time.thread_time() - began


class _Memory:
    """Rows in memory, and what steps do to them; nothing is sent."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self._rows.items() if first <= key < last))

    def carry_out(self, step: Step) -> list[Message]:
        """Do what a step asks for, and return what it would send."""
        sent: list[Message] = []
        for effect in step:
            match effect:
                case Commit(rows):
                    self._write(dict(rows))
                case Send(messages):
                    sent += messages
        return sent

    def _write(self, rows: Mapping[bytes, bytes | None]) -> None:
        for key, value in rows.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
