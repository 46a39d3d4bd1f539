"""deploy/compose.yaml is valid and runs the Kafka that `stream-dp kafka up` runs.

The schema is `schema/compose-spec.json` of the Go module github.com/compose-spec/compose-go/v2 2.10.1 (Apache-2.0).
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from stream_dp.runtime.localkafka import jars
from tests.support.compose import PORT, composed, service, settings_of, shipped_settings

FORM = json.loads((Path(__file__).parents[2] / "vectors" / "compose-spec.json").read_text(encoding="utf-8"))
IN_A_CONTAINER = {
    "log.dirs": ("", ""),
    "listeners": ("PLAINTEXT://127.0.0.1:9092,", "PLAINTEXT://0.0.0.0:9092,CONTAINERS://0.0.0.0:19092,"),
    "advertised.listeners": ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:9092,CONTAINERS://kafka:19092"),
    "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT", "PLAINTEXT:PLAINTEXT,CONTAINERS:PLAINTEXT"),
}
"""The only settings that differ: a volume, and a listener that the other containers reach."""


def test_the_file_is_valid_by_the_schema_of_compose() -> None:
    jsonschema.Draft7Validator(FORM).validate(composed())


@pytest.mark.parametrize(
    ("name", "value"), [("read_onyl", True), ("cap_drop", "ALL"), ("depends_on", {"kafka": {"condition": "healthy"}})]
)
def test_what_compose_would_refuse_is_not_valid(name: str, value: object) -> None:
    changed = composed()
    changed["services"]["worker"][name] = value

    assert not jsonschema.Draft7Validator(FORM).is_valid(changed)


def test_the_image_is_the_official_one_at_the_version_of_the_package() -> None:
    assert service()["image"] == f"apache/kafka:{jars.KAFKA_VERSION}"


def test_every_setting_is_that_of_the_local_kafka_but_for_the_container() -> None:
    found, shipped = settings_of(service()["environment"]), shipped_settings()

    assert found.keys() == shipped.keys()
    differing = {name for name in shipped if found[name] != shipped[name]}
    assert differing == IN_A_CONTAINER.keys()
    for name in differing - {"log.dirs"}:
        assert found[name] == shipped[name].replace(*IN_A_CONTAINER[name])


def test_only_this_machine_can_reach_the_port() -> None:
    assert service()["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    published = [port for one in composed()["services"].values() for port in one.get("ports", ())]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_the_data_of_the_broker_lies_on_the_volume() -> None:
    assert service()["volumes"] == [f"data:{settings_of(service()['environment'])['log.dirs']}"]


def test_an_exhausted_heap_ends_the_broker_as_it_ends_the_local_one() -> None:
    environment = service()["environment"]

    assert environment["KAFKA_HEAP_OPTS"] == "-Xmx1g"
    assert "-XX:+ExitOnOutOfMemoryError" in environment["KAFKA_OPTS"].split()


def test_every_value_is_text_as_compose_wants_it() -> None:
    assert [name for name, value in service()["environment"].items() if not isinstance(value, str)] == []
