"""deploy/README.md names the topics that there are and the Kafka that the tests run on."""

from __future__ import annotations

import re
from pathlib import Path

from stream_dp.config.planner import load_plan
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.localkafka import jars

CHECKOUT = Path(__file__).parents[3]
TEXT = (CHECKOUT / "deploy" / "README.md").read_text(encoding="utf-8")


def test_supported_kafka_versions_are_the_tested_ones() -> None:
    assert (
        f"| Versions {jars.OLDEST_KAFKA_VERSION} to {jars.KAFKA_VERSION}. The tests run on {jars.KAFKA_VERSION};"
        in TEXT
    )


def test_every_topic_that_a_worker_creates_is_named(tmp_path: Path) -> None:
    example = re.findall(r"```yaml\n(.*?)```", (CHECKOUT / "docs" / "configuration.md").read_text("utf-8"), re.DOTALL)[
        0
    ]
    (tmp_path / "flights.yaml").write_text(example, encoding="utf-8")
    plan = load_plan(tmp_path / "flights.yaml", {})
    created = [spec.name for spec in Topics.of(plan).all(plan)]
    changelogs = [name for name in created if name.endswith("-changelog")]
    others = [name for name in created if name.startswith(f"{plan.id}-") and name not in changelogs]
    public = [name for name in created if name.startswith(f"{plan.id}.releases.")]

    assert [name for name in others if f"{name.removeprefix(plan.id)}`" not in TEXT] == []
    assert len(changelogs) == 3
    assert "a changelog for each of three tables" in TEXT
    assert set(created) == {*changelogs, *others, *public, f"{plan.id}.dead-letters.flights"}
    assert "`<id>.dead-letters.<source>`, and `<id>.releases.<view>.<audience>`" in TEXT
