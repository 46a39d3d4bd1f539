"""Speed of this machine: the time that windows of a view take, and the windows a second that ledgers release.

`check` measures made-up windows; a worker that runs says only whether its windows leave at their slots, because how
long a real window takes depends on its data.

The windows of a ledger are released by one worker, those that are at hand together; so are those of ledgers that share
a partition. What falls behind there never catches up, however many workers there are.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from pathlib import Path
from secrets import token_bytes
from statistics import median
from tempfile import TemporaryDirectory

import rocksdict
from pydantic import BaseModel, Field

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.exact.bits import system_entropy
from stream_dp.kinds.public_lists import KeyList
from stream_dp.releases.engine import RELEASED_AT_ONCE
from stream_dp.releases.keyring import KeyRing
from stream_dp.releases.rows import BUCKET
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.kafka.list_topics import Lists
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.storage import open_database
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
LONG_SECONDS = 0.5
"""A window that takes longer is timed once, so that `check` ends soon."""
RARE, COMMON = 1, 1_000_000
"""Counts that no level shows, and that all do."""


class Computing(BaseModel):
    """Time that the windows of a view take, from the exact counts of the partitions to the stored records."""

    view: str
    milliseconds_a_window: float = Field(description="However many keys it has.")
    microseconds_a_key: float = Field(0, description="For every distinct key of a window.")
    microseconds_a_shown_key: float = Field(0, description="For every one that all audiences are shown.")
    keys_in_time: int = Field(MOST_SAID, description="How many keys a window may have that takes half of the offset.")
    shown_keys_in_time: int = Field(MOST_SAID, description="The same if all of them are shown.")
    is_constant: bool = Field(False, description="True if all windows take the same time.")

    def words(self, offset: str) -> str:
        """A sentence for operators; whoever says it knows the offset."""
        if self.is_constant:
            return (
                f"On this machine, the noise of a window of {self.view} takes {self.milliseconds_a_window:,.0f} ms, "
                f"however many keys the window has. It should be at most half of release.offset ({offset})"
            )
        return (
            f"On this machine, a window of {self.view} takes {self.milliseconds_a_window:.3g} ms to compute, and for "
            f"each key another {_microseconds(self.microseconds_a_key)}, or "
            f"{_microseconds(self.microseconds_a_shown_key)} if the key is shown. Half of release.offset ({offset}) is "
            f"enough for {_keys(self.keys_in_time)} keys, or {_keys(self.shown_keys_in_time)} if all are shown"
        )

    def advised(self, offset_ms: int) -> bool:
        """Return True if half of the offset covers what windows usually have."""
        if self.is_constant:
            return self.milliseconds_a_window * SHARE <= offset_ms
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
    if view.kind.made_up_keys is not None and not view.kind.topics:
        full = _least(plan, view, view.kind.made_up_keys, RARE)
        return Computing(view=view.name, milliseconds_a_window=round(full * 1e3, 2), is_constant=True)
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
    first = _timed(plan, view, keys, users)
    return first if first > LONG_SECONDS else min(first, *(_timed(plan, view, keys, users) for _ in range(TIMES - 1)))


def _timed(plan: Plan, view: ViewPlan, keys: int, users: int) -> float:
    """Computing seconds from the counts of the partitions to a stored release; every key has the same count.

    The keys are those of the view's list as far as it has so many.
    """
    kind, others = view.kind, (f"{number:012d}" for number in count())
    window = replace(view.window, shape=view.window.shape.each_pane)  # adding the others up is little beside that
    plan = replace(plan, views={view.name: replace(view, window=window)})  # of others, a window takes little more
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
    releases.carry_out(engine.buckets(values))
    releases.carry_out(engine.due())
    return time.thread_time() - began


class _Memory(dict[bytes, bytes]):
    """Rows in memory, and what steps do to them; nothing is sent."""

    def scan(self, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.items() if first <= key < last))

    def carry_out(self, step: Step) -> list[Message]:
        """Do what a step asks for, and return what it would send."""
        sent: list[Message] = []
        for effect in step:
            match effect:
                case Commit(rows):
                    for key, value in rows:
                        self.pop(key, None)
                        if value is not None:
                            self[key] = value
                case Send(messages):
                    sent += messages
        return sent


RATE_SHARE = 2
"""A plan that asks for more than one part in so many of what the machine does is warned of."""
ACKNOWLEDGEMENTS = 5
"""Of the broker, for windows that are released together: counts, their withdrawal, reservations, results, outboxes."""
ACKNOWLEDGED_MS = 5.0
"""Assumed time of each: the broker is not asked."""
_STORED, _ERASURES = 1000, 5


class Rate(BaseModel):
    """Load of the ledgers of one partition, and the capacity of this machine; windows without keys."""

    ledgers: list[str]
    windows_a_second: float = Field(description="That the views on them ask for.")
    records_a_second: float = Field(description="The same, one for each audience of a window.")
    computing_ms: float = Field(description="Measured: of a window without keys.")
    erasing_ms: float = Field(description="Measured: a window's share of a flush and a compaction on this disk.")
    acknowledging_ms: float = Field(description="Assumed: waiting for the broker.")
    windows_possible: float = Field(description="A second, from the three times.")

    @property
    def is_safe(self) -> bool:
        """True if the machine has the capacity, with a margin."""
        return self.windows_a_second * RATE_SHARE <= self.windows_possible

    def words(self) -> str:
        """A sentence for operators."""
        return (
            f"{'Ledger' if len(self.ledgers) == 1 else 'Ledgers'} {', '.join(self.ledgers)}: "
            f"{self.windows_a_second:.3g} windows and {self.records_a_second:.3g} records a second are needed. This "
            f"machine releases about {self.windows_possible:.3g} windows a second. A window takes "
            f"{self.computing_ms:.3g} ms to compute and {self.erasing_ms:.3g} ms to erase (measured), and "
            f"{self.acknowledging_ms:.3g} ms for the broker (assumed). Its keys take more time"
        )


def rates(plan: Plan, computing: Iterable[Computing]) -> list[Rate]:
    """Return load and capacity of every partition that has ledgers.

    Args:
        plan: the views.
        computing: what their windows take (`stream_dp.runtime.capacity.measure`).
    """
    took = {found.view: found.milliseconds_a_window for found in computing}
    erasing_ms = _erasing_ms() / RELEASED_AT_ONCE
    together: dict[int, list[ViewPlan]] = {}
    for view in plan.views.values():
        together.setdefault(Topics.of(plan).ledger_partition(view.ledger), []).append(view)
    return [_rate(views, took, erasing_ms) for _, views in sorted(together.items())]


def _rate(views: Sequence[ViewPlan], took: dict[str, float], erasing_ms: float) -> Rate:
    asked = {view.name: float(view.window.shape.per_second) for view in views}
    windows = sum(asked.values())
    computing_ms = sum(took[view.name] * asked[view.name] for view in views) / windows
    acknowledging_ms = ACKNOWLEDGEMENTS * ACKNOWLEDGED_MS / RELEASED_AT_ONCE
    return Rate(
        ledgers=list(dict.fromkeys(view.ledger.name for view in views)),
        windows_a_second=windows,
        records_a_second=sum(float(view.window.shape.told.per_second) * len(view.audiences) for view in views),
        computing_ms=round(computing_ms, 2),
        erasing_ms=round(erasing_ms, 2),
        acknowledging_ms=round(acknowledging_ms, 2),
        windows_possible=round(1000 / (computing_ms + erasing_ms + acknowledging_ms), 1),
    )


def _erasing_ms() -> float:
    """Time an erasure of a row amid stored ones, in a folder that vanishes again."""
    with TemporaryDirectory() as folder:
        database = open_database(Path(folder), rocksdict.Cache(0))
        for number in range(_STORED):
            database.put(b"%d" % number, token_bytes(1000))
        took = []
        for number in range(_ERASURES):
            key = BUCKET + b"%d" % number
            database.put(key, b"")
            begun = time.perf_counter()
            database.erase([(key, key + b"\0")])
            took.append(time.perf_counter() - begun)
        del database
    return 1000 * median(took)
