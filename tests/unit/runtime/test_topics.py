"""Topics: who may see what, how soon a deleted row is gone, and that nothing moves when it must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import LedgerPlan, Plan
from stream_dp.runtime.owners import OWNERS
from stream_dp.runtime.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.testing import plan_from
from stream_dp.windows.shape import Tiling
from stream_dp.windows.sizes import BATCH_BYTES, BROKER_BYTES, MESSAGE_BYTES


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    text = visits(("partitions: 3", "partitions: 5"))
    name = text.splitlines()[0].removeprefix("name: ")
    return plan_from(text.replace(name, "app"), tmp_path)


def test_every_topic_is_created_once_under_its_name(plan: Plan) -> None:
    specs = {spec.name: spec.partitions for spec in Topics.of(plan).all(plan)}

    assert specs == {
        "app-ticks": 5,
        "app-partials": 5,
        "app-merged": 5,
        "app-control": 1,
        "app-orders": 5,
        "app-accounts": 1,
        "app-counts-changelog": 5,
        "app-merges-changelog": 5,
        "app-releases-changelog": 5,
        "app.visits.dlq": 5,
        "releases.app-pages.public": 1,
        "releases.app-pages.partner": 1,
        "releases.app-pages.internal": 1,
    }
    assert len(Topics.of(plan).all(plan)) == len(specs)


def test_topics_with_counts_are_erased_and_others_keep_what_they_hold(plan: Plan) -> None:
    topics = Topics.of(plan)
    raw = {topics.partials, topics.merged, *(topics.changelog(table) for table in (COUNTS, MERGES, RELEASES))}

    for spec in topics.all(plan):
        compacted = spec.config.get("cleanup.policy") == "compact"
        assert ("max.compaction.lag.ms" in spec.config) == (spec.name in raw), spec.name
        assert compacted or spec.name in (topics.ticks, "app.visits.dlq"), spec.name
        assert "retention.ms" not in spec.config or spec.name == topics.ticks


@pytest.mark.parametrize(("within", "quarter"), [("10s", 2500), ("20s", 5000), ("15m", 225_000)])
def test_segment_and_cleaning_take_half_of_the_stated_time(
    visits: Callable[..., str], tmp_path: Path, within: str, quarter: int
) -> None:
    config = Topics.of(plan_from(visits(("erase_within: 20s", f"erase_within: {within}")), tmp_path)).erasing

    assert config["cleanup.policy"] == "compact"
    assert int(config["segment.ms"]) == int(config["max.compaction.lag.ms"]) == quarter


def test_places_of_buckets_and_ledgers_never_move() -> None:
    """Recorded: another place would leave the counts of a running application where nobody looks for them."""
    topics = Topics("app", 8, 60_000)

    places = [topics.partial_partition("pages", 1_704_067_200_000, bucket) for bucket in range(6)]
    assert places == [1, 7, 5, 3, 0, 6]
    ledgers = [
        LedgerPlan(name, words, Cost.ZERO, Cost.ZERO, Tiling(1000))
        for name, words in (("a", "visitors"), ("b", "visitors"), ("a", "readers"), ("a", "passengers"))
    ]
    assert [topics.ledger_partition(ledger) for ledger in ledgers] == [0, 0, 7, 4]


def test_buckets_of_a_window_are_spread_over_the_partitions() -> None:
    topics = Topics("app", 4, 60_000)

    places = Counter(topics.partial_partition("pages", 60_000 * at, bucket) for at in range(50) for bucket in range(16))

    assert sorted(places) == [0, 1, 2, 3]
    assert min(places.values()) > 150


def test_every_topic_takes_the_batches_that_are_sent_to_it_whatever_the_cluster_admits(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    plan = plan_from(visits(), tmp_path)
    specs = [OWNERS, *Topics.of(plan).all(plan)]
    assert {spec.config["max.message.bytes"] for spec in specs} == {"1048588"}
    assert MESSAGE_BYTES < BATCH_BYTES < BROKER_BYTES


def test_what_others_read_stays_as_it_was_written_whatever_the_cluster_compresses(plan: Plan) -> None:
    as_written = {spec.name for spec in Topics.of(plan).all(plan) if spec.config.get("compression.type") == "producer"}

    assert as_written == {
        "app.visits.dlq",
        *(f"releases.app-pages.{name}" for name in ("public", "partner", "internal")),
    }
