"""deploy/compose.yaml runs the Kafka that `stream-dp kafka up` runs."""

from __future__ import annotations

from stream_dp.runtime.localkafka import jars
from tests.support.compose import PORT, service, settings_of, shipped_settings

IN_A_CONTAINER = {"listeners", "log.dirs"}
"""The only settings that differ: inside, the node listens to the world of the container, and has a volume."""


def test_the_image_is_the_official_one_at_the_version_of_the_package() -> None:
    assert service()["image"] == f"apache/kafka:{jars.KAFKA_VERSION}"


def test_every_setting_is_that_of_the_local_kafka_but_for_the_container() -> None:
    composed, shipped = settings_of(service()["environment"]), shipped_settings()

    assert composed.keys() == shipped.keys()
    assert {name for name in shipped if composed[name] != shipped[name]} == IN_A_CONTAINER
    assert composed["listeners"] == shipped["listeners"].replace("PLAINTEXT://127.0.0.1:", "PLAINTEXT://0.0.0.0:")


def test_only_this_machine_can_reach_the_port() -> None:
    assert service()["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert settings_of(service()["environment"])["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:{PORT}"


def test_the_data_of_the_broker_lies_on_the_volume() -> None:
    assert service()["volumes"] == [f"data:{settings_of(service()['environment'])['log.dirs']}"]


def test_an_exhausted_heap_ends_the_broker_as_it_ends_the_local_one() -> None:
    environment = service()["environment"]

    assert environment["KAFKA_HEAP_OPTS"] == "-Xmx1g"
    assert "-XX:+ExitOnOutOfMemoryError" in environment["KAFKA_OPTS"].split()


def test_every_value_is_text_as_compose_wants_it() -> None:
    assert [name for name, value in service()["environment"].items() if not isinstance(value, str)] == []
