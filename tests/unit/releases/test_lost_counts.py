"""Counts are lost on their way to a release: each window leaves in its turn, with all its counts or as lost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError
from stream_dp.records.models import Refusal
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.losses import MOST_UNKNOWN
from stream_dp.releases.rows import BUCKET, merged_key
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import decode, encode
from stream_dp.windows.merging import PARTIAL, BucketMerger, MergedBucket, Partial
from tests.support.chosen import examples, kept_ordinary
from tests.support.counting import PARTIALS, Entry, counter, event
from tests.support.machine import Machine
from tests.support.phases import PHASES
from tests.support.releasing import DECLARED_LOST, MERGED, Desk, plan
from tests.support.topics import TopicReader
from tests.unit.releases.test_engine_chain import VIEWS

SHOP = plan()
SIZE, WINDOWS = 1000, 4


@dataclass
class Chain:
    """Two partitions of a source, the merger and the release engine, with the topics between them."""

    seed: int
    partials: list[Message] = field(default_factory=list)
    """On their way to the merger."""
    merged: list[Message] = field(default_factory=list)
    """On their way to the engine."""

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.events: list[list[list[Entry]]] = [[[] for _ in range(WINDOWS)] for _ in range(2)]
        for at, windows in enumerate(self.events):
            for number, entries in enumerate(windows):
                for n in range(10):
                    user, item = f"u{at}{chance.randrange(20)}", chance.choice("aaaabbbccd")
                    entries.append(event(number * 10 + n, user, item, number * SIZE + chance.randrange(SIZE)))
        self.machines = [Machine(), Machine()]
        self.counters: list[PartitionCounter] = [counter(*VIEWS, partition=at) for at in range(2)]
        for one, machine in zip(self.counters, self.machines, strict=True):
            machine.carry_out(one.load(machine))
        self.desk = Desk(SHOP, audit=False, accepts_loss=True)
        self.merger = self._merger(Machine())
        self.asked = 0

    def _merger(self, machine: Machine) -> TopicReader[BucketMerger]:
        return TopicReader(
            PARTIALS,
            lambda: BucketMerger(
                {view.name: view for view in VIEWS},
                dict.fromkeys(SHOP.views, 2),
                outlet=lambda b: Message(MERGED, merged_key(b), encode(b)),
                withdrawal=lambda p: Message(PARTIALS, p.key, None),
            ),
            lambda one, values, rows: one.partials(values, rows),
            machine=machine,
        )

    def count(self, at: int, number: int) -> None:
        """Count a window of a partition, and hand it on."""
        machine, seen = self.machines[at], len(self.machines[at].sent)
        machine.carry_out(self.counters[at].chunk(self.events[at][number], number * SIZE))
        machine.carry_out(self.counters[at].ticks([(number + 1) * SIZE]))
        self.partials += [message for message in machine.sent[seen:] if message.topic == PARTIALS]

    def deliver(self, partials: int, merged: int) -> None:
        """Let the next of what is on its way arrive."""
        seen = len(self.merger.machine.sent)
        self.merger.write(self.partials[:partials])
        self.merged += [message for message in self.merger.machine.sent[seen:] if message.topic == MERGED]
        del self.partials[:partials]
        self.desk.reader.write(self.merged[:merged])
        del self.merged[:merged]

    def lose(self, what: str) -> set[tuple[str, int]]:
        """Lose what stands in a topic, or the rows of a table; the views and windows of which counts stood there."""
        merges, releases = self.merger.machine.rows, self.desk.machine.rows
        stood: list[Partial | MergedBucket] = []
        match what:
            case "partials":
                stood += [decode(Partial, message.value or b"") for message in self.partials]
                self.partials.clear()
            case "merged":
                stood += [decode(MergedBucket, message.value or b"") for message in self.merged]
                self.merged.clear()
            case "merges":
                stood += [decode(Partial, value) for key, value in merges.items() if key.startswith(PARTIAL)]
                self.merger = self._merger(Machine())
            case "releases":
                stood += [decode(MergedBucket, value) for key, value in releases.items() if key.startswith(BUCKET)]
                releases.clear()
        self.desk.gaps = True
        self.desk.reader.restart()
        self.answer()
        return {(one.view, one.start_ms) for one in stood}

    def answer(self) -> None:
        """Let the counters answer what the engine asks."""
        asked = [message for message in self.desk.machine.sent if message.topic == DECLARED_LOST]
        for message in asked[self.asked :]:
            for one, machine in zip(self.counters, self.machines, strict=True):
                seen = len(machine.sent)
                machine.carry_out(one.declare_lost((message.key or b"").decode(), int(message.value or b"")))
                self.partials += [message for message in machine.sent[seen:] if message.topic == PARTIALS]
        self.asked = len(asked)

    def outcomes(self, view: str, audience: str = "staff") -> dict[int, str | tuple[object, ...]]:
        """By window, in the order in which they left: what was released, or why it was not."""
        return {
            record.window.start_ms: record.reason if isinstance(record, Refusal) else record.items
            for record in self.desk.records(view, audience)
        }


def whole(seed: int) -> Chain:
    """Nothing is lost."""
    chain = Chain(seed)
    for number in range(WINDOWS):
        for at in range(2):
            chain.count(at, number)
    chain.deliver(len(chain.partials), 1_000_000)
    return chain


@pytest.mark.parametrize("what", kept_ordinary(["partials", "releases"], ["partials", "merged", "merges", "releases"]))
@examples(3, 8, given(st.integers(0, 1000)), derandomize=True, phases=PHASES)
def test_wherever_counts_are_lost_each_window_is_released_with_all_of_them_or_lost_in_its_turn(
    what: str, seed: int
) -> None:
    chance, chain, truth = random.Random(seed), Chain(seed), whole(seed)
    done = [0, 0]
    at_loss = chance.randrange(2, 2 * WINDOWS - 2)
    for step in range(2 * WINDOWS):
        at = chance.choice([one for one in range(2) if done[one] < WINDOWS])
        chain.count(at, done[at])
        done[at] += 1
        chain.deliver(chance.randrange(0, 12), chance.randrange(0, 4))
        if step == at_loss:
            at_stake = chain.lose(what)
    while chain.partials or chain.merged:
        chain.deliver(chance.randrange(1, 9), chance.randrange(0, 5))

    for view in SHOP.views:
        found, expected = chain.outcomes(view), truth.outcomes(view)
        assert list(found) == [SIZE * number for number in range(WINDOWS)]
        lost = {start for start, outcome in found.items() if outcome == "lost"}
        assert lost == {start for name, start in at_stake if name == view}
        assert {start: found[start] for start in found.keys() - lost}.items() <= expected.items()
    assert not any(key.startswith(PARTIAL) for key in chain.merger.machine.rows), "counts of a lost window are erased"
    assert not any(key.startswith(BUCKET) for key in chain.desk.machine.rows)


def test_a_window_that_waits_in_a_lost_table_is_lost_and_what_comes_behind_it_is_released() -> None:
    """Window 0 is released; of window 1 the engine has some buckets when its table is lost."""
    chain = Chain(1)
    for number in range(2):
        for at in range(2):
            chain.count(at, number)
    buckets = sum(view.buckets for view in VIEWS)
    chain.deliver(len(chain.partials), buckets + 1)
    at_stake = chain.lose("releases")
    for at in range(2):
        chain.count(at, 2)
    chain.deliver(1_000_000, 1_000_000)

    for view in SHOP.views:
        found = chain.outcomes(view)
        assert (found[SIZE] == "lost") == ((view, SIZE) in at_stake)
        assert found[2 * SIZE] not in ("lost", "budget")
    assert at_stake


def test_nothing_is_charged_for_a_window_that_was_lost() -> None:
    chain = Chain(2)
    for at in range(2):
        chain.count(at, 0)
    chain.lose("partials")
    chain.deliver(1_000_000, 1_000_000)
    assert {outcome for view in SHOP.views for outcome in chain.outcomes(view).values()} == {"lost"}
    ledgers = read_ledgers(chain.desk.machine.rows.items()).values()
    assert sum((ledger.spent for ledger in ledgers), Cost.ZERO) == Cost.ZERO
    refusal = chain.desk.records("pages", "staff")[0]
    assert isinstance(refusal, Refusal)
    assert refusal.requested.cost == Cost.ZERO


def test_refusals_without_end_are_not_published_but_an_error_that_says_so() -> None:
    desk = Desk(SHOP)
    desk.unknown_before = {"pages": (MOST_UNKNOWN + 1) * SIZE}
    with pytest.raises(ConfigError, match=r"its exact counts were lost.*Give the view a new name"):
        desk.reader.restart()
    assert not desk.published()


def test_windows_whose_counters_lost_their_counts_are_refused_without_waiting_and_later_ones_released() -> None:
    desk = Desk(SHOP)
    desk.give("pages", 0, {"a": 900})
    desk.unknown_before = {"pages": 3000}
    desk.reader.restart()
    desk.give("pages", 1000, {"a": 900})
    desk.give("pages", 3000, {"a": 900})
    outcomes = [
        (record.window.start_ms, record.reason if isinstance(record, Refusal) else "released")
        for record in desk.records("pages", "public")
    ]
    assert outcomes == [(0, "released"), (1000, "lost"), (2000, "lost"), (3000, "released")]
