"""What `check` and `apply` accept can be built, is read back from the control topic as it was, and counts an event."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.control.editions import SETTINGS, decode_posted, encode_posted, first_record, plan_holding, plan_of
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import system_entropy
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.construction import MADE_UP_TOPIC, construct_file
from stream_dp.runtime.embedded import LogRecord
from stream_dp.runtime.factory import Factory, Settled
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.testing import Event, SourceWriter
from stream_dp.windows.effects import Message
from tests.support.generated import FILE, KEYS, START_MS, generated
from tests.support.machine import Machine

SEED = 16
"""Of a configuration with one source and one view that is accepted."""
FEWEST_ACCEPTED = 0.2
"""Of all generated configurations, so that the test is about something."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text("\n".join(KEYS), encoding="utf-8")
    return tmp_path


def count_one(plan: Plan, source: SourcePlan) -> Machine:
    """Count an event of a source with the parts of a worker, on a table in memory; return where it was counted."""
    topics = Topics.of(plan)
    lives = {spec.name: MADE_UP_TOPIC for spec in topics.all(plan)}
    parts = Factory(
        Settled(plan, topics=lives), keys=KeyRing.of(bytes(32)), entropy=system_entropy, cache=rocksdict.Cache(0)
    )
    (record,) = SourceWriter(plan, source.name).records([Event("u1", KEYS[0], START_MS + 1)])
    if source.key_field is not None:
        rekeyer, machine = parts.rekeyer(source.topic, record.partition or 0), Machine()
        machine.carry_out(rekeyer.load(machine))
        machine.carry_out(rekeyer.chunk([_consumed(record)], START_MS + 2))
        (record,) = [message for message in machine.sent if message.topic == topics.rekeyed(source.name)]
    counter, machine = parts.counter(record.topic, record.partition or 0), Machine()
    machine.carry_out(counter.load(machine))
    machine.carry_out(counter.chunk([_consumed(record)], START_MS + 2))
    return machine


def _consumed(record: Message) -> Any:
    return LogRecord(record.topic, record.partition or 0, 0, record.key, record.value, 0, [*record.headers.items()])


def complaint(seed: int, folder: Path) -> str | None:
    """Return what is wrong with an accepted configuration, None if it is refused; empty if nothing is wrong."""
    try:
        plan = build_plan(generated(random.Random(seed)), folder)
        construct_file(plan)
    except ConfigError as error:
        return None if all(fault.path for fault in error.faults) else f"{seed}: a fault without a path: {error}"
    try:
        posted = first_record(plan, START_MS)
        read = decode_posted(SETTINGS, encode_posted(posted))
        again = {} if read is None else plan_of(read, plan).views
        if read != posted or _without_kind(again) != _without_kind(plan.views):
            return f"{seed}: it is not read back as it was"
        held = plan_holding([posted], plan)
        for source in sources_of(held).values():
            counts = count_one(held, source).counts
            became = {name for (name, _), number in counts.items() if number} - {"events_consumed"}
            if not became or not became <= {"events_counted", "events_unknown"}:  # unknown: it is not on a list
                return f"{seed}: an event of {source.name} is not counted: {counts}"
    except Exception as error:
        return f"{seed}: {type(error).__name__}: {error}"
    return ""


def _without_kind(views: Mapping[str, ViewPlan]) -> dict[str, dict[str, Any]]:
    """Return views without the plans of their kinds: some hold samplers, which are equal to themselves only."""
    return {
        name: {one.name: getattr(view, one.name) for one in fields(view) if one.name != "kind"}
        for name, view in views.items()
    }


def complaints(seeds: range, folder: Path) -> list[str]:
    found = [complaint(seed, folder) for seed in seeds]
    accepted = [one for one in found if one is not None]
    assert len(accepted) >= FEWEST_ACCEPTED * len(seeds)
    return [one for one in accepted if one]


@pytest.mark.parametrize("field", ['$["a\\"b"]', 'a"b', '$["a\\\\b"]', '$["a\\u0001b"]', "$" + ".deep" * 65])
def test_field_that_no_decoder_reads_is_refused_by_its_path(folder: Path, field: str) -> None:
    data = generated(random.Random(SEED))
    (name,) = data["views"]
    data["views"][name]["item"] = field
    with pytest.raises(ConfigError) as refused:
        construct_file(build_plan(data, folder))
    assert [fault.path for fault in refused.value.faults] == [f"views.{name}.item"]


def test_topics_whose_names_collide_in_kafka_are_refused(folder: Path) -> None:
    data = generated(random.Random(SEED))
    (source,) = data["sources"].values()
    data["sources"]["other"] = {**source, "topic": source["topic"].replace(".", "_")}
    (view,) = data["views"].values()
    data["views"]["other"] = {**view, "source": "other"}
    with pytest.raises(ConfigError, match=r"^sources\.other\.topic: Kafka refuses to create topic"):
        construct_file(build_plan(data, folder))


def test_accepted_configuration_counts_an_event(folder: Path) -> None:
    assert complaints(range(200), folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_accepted_configurations_count_an_event(folder: Path, part: int) -> None:
    assert complaints(range(part * 1000, (part + 1) * 1000), folder) == []
