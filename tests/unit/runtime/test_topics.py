"""Topics: who may see what, how soon a deleted row is gone, and that nothing moves when it must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.file_schema import NAME_LENGTH, PREFIX_LENGTH, TopicsConfig
from stream_dp.config.plan import LedgerPlan, Plan
from stream_dp.runtime.faust.membership import instance_id
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, sources_of
from stream_dp.testing import plan_from
from stream_dp.windows.encoding import BATCH_BYTES, BROKER_BYTES, MESSAGE_BYTES
from stream_dp.windows.shapes.tumbling import Tiling


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
        "app-status": 1,
        "app-counts-changelog": 5,
        "app-merges-changelog": 5,
        "app-releases-changelog": 5,
        "app.dead-letters.visits": 5,
        "app.releases.app-pages.public": 1,
        "app.releases.app-pages.partner": 1,
        "app.releases.app-pages.internal": 1,
    }
    assert len(Topics.of(plan).all(plan)) == len(specs)


def test_topics_with_counts_are_erased_and_others_keep_what_they_hold(plan: Plan) -> None:
    topics = Topics.of(plan)
    raw = {topics.partials, topics.merged, *(topics.changelog(table) for table in (COUNTS, MERGES, RELEASES))}

    for spec in topics.all(plan):
        compacted = spec.config.get("cleanup.policy") == "compact"
        public = spec.name.startswith("app.releases.")
        quarter = str(plan.erase_within_ms // 4) if spec.name in raw else str(86_400_000) if public else None
        assert spec.config.get("max.compaction.lag.ms") == quarter, spec.name
        assert compacted or spec.name in (topics.ticks, topics.status, "app.dead-letters.visits"), spec.name
        assert "retention.ms" not in spec.config or spec.name in (topics.ticks, topics.status)


def test_broker_sets_the_time_of_ticks_control_records_and_internal_records(plan: Plan) -> None:
    """Records of other topics bear the time of their slot."""
    topics = Topics.of(plan)
    others = {topics.accounts}
    for spec in topics.all(plan):
        slotted = spec.name in others or spec.name.startswith("app.releases.")
        assert spec.config.get("message.timestamp.type") == (None if slotted else "LogAppendTime"), spec.name


@pytest.mark.parametrize(("within", "quarter"), [("10s", 2500), ("20s", 5000), ("15m", 225_000)])
def test_segment_and_cleaning_take_half_of_the_stated_time(
    visits: Callable[..., str], tmp_path: Path, within: str, quarter: int
) -> None:
    config = Topics.of(plan_from(visits(("erase_within: 20s", f"erase_within: {within}")), tmp_path)).erasing

    assert config["cleanup.policy"] == "compact"
    assert int(config["segment.ms"]) == int(config["max.compaction.lag.ms"]) == quarter


def test_no_time_and_no_size_deletes_re_keyed_events(visits: Callable[..., str], tmp_path: Path) -> None:
    plan = plan_from(visits(("user: user, time", "key: user, time")), tmp_path)
    topics = Topics.of(plan)
    spec = next(spec for spec in topics.all(plan) if spec.name == topics.rekeyed("visits"))

    assert spec.partitions == plan.partitions
    assert spec.config["cleanup.policy"] == "delete"
    assert (spec.config["retention.ms"], spec.config["retention.bytes"]) == ("-1", "-1")
    assert int(spec.config["segment.ms"]) == plan.erase_within_ms // 4


def test_places_of_buckets_and_ledgers_never_move() -> None:
    """Recorded: another place would leave the counts of a running application where nobody looks for them."""
    topics = Topics("app", 8, 60_000, TopicsConfig())

    places = [topics.partial_partition("pages", 1_704_067_200_000, bucket) for bucket in range(6)]
    assert places == [1, 7, 5, 3, 0, 6]
    ledgers = [
        LedgerPlan(name, words, Cost.ZERO, Cost.ZERO, Tiling(1000))
        for name, words in (("a", "visitors"), ("b", "visitors"), ("a", "readers"), ("a", "passengers"))
    ]
    assert [topics.ledger_partition(ledger) for ledger in ledgers] == [0, 0, 7, 4]


def test_buckets_of_a_window_are_spread_over_the_partitions() -> None:
    topics = Topics("app", 4, 60_000, TopicsConfig())

    places = Counter(topics.partial_partition("pages", 60_000 * at, bucket) for at in range(50) for bucket in range(16))

    assert sorted(places) == [0, 1, 2, 3]
    assert min(places.values()) > 150


def test_every_topic_takes_the_batches_that_are_sent_to_it_whatever_the_cluster_admits(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    plan = plan_from(visits(), tmp_path)
    topics = Topics.of(plan)
    specs = [topics.owners, *topics.all(plan)]
    assert {spec.config["max.message.bytes"] for spec in specs} == {"1048588"}
    assert MESSAGE_BYTES < BATCH_BYTES < BROKER_BYTES


def test_what_others_read_stays_as_it_was_written_whatever_the_cluster_compresses(plan: Plan) -> None:
    as_written = {spec.name for spec in Topics.of(plan).all(plan) if spec.config.get("compression.type") == "producer"}

    assert as_written == {
        "app.dead-letters.visits",
        *(f"app.releases.app-pages.{name}" for name in ("public", "partner", "internal")),
    }


COPIES = ("sources:\n", "topics: {prefix: acme., replication: 3, min_insync_replicas: 2}\nsources:\n")


def test_a_prefix_stands_before_everything_that_the_application_makes(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    plan = plan_from(visits(COPIES), tmp_path)
    topics = Topics.of(plan)

    assert plan.id == f"acme.{plan.name}"
    assert topics.owners.name == "acme.stream-dp-owners"
    assert {spec.name.removeprefix("acme.").removeprefix(plan.name)[:1] for spec in topics.all(plan)} == {"-", "."}
    assert all(spec.name.startswith(f"acme.{plan.name}") for spec in topics.all(plan))
    assert instance_id(plan).startswith(f"acme.{plan.name}-")
    (source,) = sources_of(plan)
    assert source == f"{plan.name}.visits"


def test_every_topic_has_the_copies_that_are_asked_for_or_those_that_the_cluster_makes(
    visits: Callable[..., str], tmp_path: Path
) -> None:
    for changes, copies, least in (([COPIES], 3, "2"), ([], -1, None)):
        plan = plan_from(visits(*changes), tmp_path)
        specs = [Topics.of(plan).owners, *Topics.of(plan).all(plan)]
        assert {spec.replication for spec in specs} == {copies}
        assert {spec.config.get("min.insync.replicas") for spec in specs} == {least}


def test_no_name_of_a_topic_is_longer_than_kafka_takes(visits: Callable[..., str], tmp_path: Path) -> None:
    long = "n" * NAME_LENGTH
    names = [("name: NAME", f"name: {long}"), ("NAME-pages", long), ("  visits: {topic", f"  {long}: {{topic")]
    more = [("source: visits", f"source: {long}"), ("partner: standard", f"{long}: standard")]
    prefix = ("sources:\n", f"topics: {{prefix: {'p' * (PREFIX_LENGTH - 1)}.}}\nsources:\n")
    plan = plan_from(visits(*names, *more, prefix), tmp_path)

    assert max(len(spec.name) for spec in Topics.of(plan).all(plan)) == 249
