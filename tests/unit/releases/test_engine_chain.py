"""From events to records through all three stages, each cut anywhere: everything ever sent reaches the next one."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.accounting import Cost
from stream_dp.config.plan import ViewPlan
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.rows import LEDGER, merged_key
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import encode
from stream_dp.windows.merging import BucketMerger
from stream_dp.windows.views import CountedView
from tests.support.counting import PARTIALS, Entry, counter, event
from tests.support.feeding import SOURCE, TICKS, Feed
from tests.support.machine import Machine, newest
from tests.support.phases import PHASES
from tests.support.releasing import MERGED as MERGED_TOPIC
from tests.support.releasing import Desk, plan
from tests.support.topics import TopicReader

SHOP = plan()
END = 3000
"""Three windows."""


def counted(view: ViewPlan) -> CountedView:
    return CountedView(
        name=view.name,
        fingerprint=view.fingerprint,
        windows=view.window.shape,
        first_ms=0,
        grace_ms=0,
        clock="wall",
        max_ahead_ms=10 * END,
        idle_ms=END,
        items_per_user=view.items_per_user,
        buckets=view.buckets,
        needed=view.kind.needed,
        retention_ms=view.window.retention_ms,
    )


VIEWS = [counted(view) for view in SHOP.views.values()]


@dataclass(frozen=True)
class Cuts:
    counting: list[list[int]]
    merging: list[int]
    releasing: list[int]


NONE = Cuts([[], []], [], [])


def count(partition: int, log: list[Entry], cuts: list[int], chance: random.Random) -> Machine:
    """Count one partition of the source to its end."""
    feed = Feed(
        log,
        [(END, len(log)), (END + 1, len(log))],
        lambda: counter(*VIEWS, partition=partition),
        cuts=cuts,
        back=(chance.randrange(9), chance.randrange(2)),
    )
    for _ in range(3 * len(log)):
        feed.fetch(chance.choice([SOURCE, TICKS]), chance.randrange(1, 30))
        feed.deliver()
    feed.settle()
    return feed.machine


def merge(sent: list[list[Message]], cuts: list[int], chance: random.Random) -> TopicReader[BucketMerger]:
    """Merge what both partitions ever sent, in any order between them, some of it twice."""
    left = [[message for message in part if message.topic == PARTIALS] for part in sent]
    reader: TopicReader[BucketMerger] = TopicReader(
        PARTIALS,
        lambda: BucketMerger(
            {view.name: view for view in VIEWS},
            dict.fromkeys(SHOP.views, 2),
            outlet=lambda b: Message(MERGED_TOPIC, merged_key(b), encode(b)),
            withdrawal=lambda p: Message(PARTIALS, p.key, None),
        ),
        lambda one, values, rows: one.partials(values, rows),
        cuts=cuts,
        back=chance.randrange(6),
        at_once=chance.randrange(1, 8),
    )
    while any(left):
        part = chance.choice([one for one in left if one])
        batch = [part.pop(0) for _ in range(min(len(part), chance.randrange(1, 4)))]
        reader.write(batch)
        if chance.random() < 0.2:
            reader.write(batch)
    return reader


def release(merged: list[Message], cuts: list[int], chance: random.Random) -> Desk:
    desk = Desk(SHOP, cuts=cuts, back=chance.randrange(5), at_once=chance.randrange(1, 5))
    for message in merged:
        desk.reader.write([message])
        if chance.random() < 0.2:
            desk.reader.write([message])
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


def run(logs: list[list[Entry]], cuts: Cuts, chance: random.Random) -> tuple[TopicReader[BucketMerger], Desk]:
    counts = [count(at, log, cuts.counting[at], chance) for at, log in enumerate(logs)]
    merging = merge([machine.sent for machine in counts], cuts.merging, chance)
    merged = [message for message in merging.machine.sent if message.topic == MERGED_TOPIC]
    return merging, release(merged, cuts.releasing, chance)


CUTS = st.lists(st.integers(0, 40), max_size=4)


@pytest.mark.slow
@settings(derandomize=True, max_examples=40, deadline=None, phases=PHASES)
@given(st.integers(0, 1000), st.builds(Cuts, st.tuples(CUTS, CUTS).map(list), CUTS, CUTS))
def test_whatever_is_cut_where_the_records_and_charges_are_those_of_an_uncut_run(seed: int, cuts: Cuts) -> None:
    chance = random.Random(seed)
    logs: list[list[Entry]] = [[], []]
    for _ in range(120):
        user, item = f"u{chance.randrange(60)}", chance.choice("aaaabbbccd")
        log = logs[hash_of(user)]
        log.append(event(len(log), user, item, chance.randrange(END)))
    _, whole = run(logs, NONE, random.Random(seed))
    merging, desk = run(logs, cuts, chance)

    assert said(desk) == said(whole)
    assert {record.window.start_ms for record in desk.records("tops", "staff")} == {0, 1000, 2000}
    desk.auditor.settled()
    assert settled(desk) == settled(whole)
    assert merging.standing() == set()


def said(desk: Desk) -> dict[tuple[str, int, bytes | None], object]:
    """The newest records, but for what the audience was told so far: a cut may change which view is released first."""
    found = {}
    for key, value in newest(desk.published()).items():
        record = json.loads(value or b"")
        del record["privacy"]["period"]
        found[key] = record
    return found


def settled(desk: Desk) -> tuple[dict[bytes, bytes], dict[bytes, tuple[Cost, Mapping[str, Cost]]]]:
    """All rows but the ledgers', and what the ledgers have charged, whichever call was the last."""
    rows = desk.machine.rows
    ledgers = {key: (ledger.spent, ledger.readers) for key, ledger in read_ledgers(rows.items()).items()}
    return {key: value for key, value in rows.items() if not key.startswith(LEDGER)}, ledgers


def hash_of(user: str) -> int:
    return int(user[1:]) % 2
