"""One real Kafka for all tests that need one: the cluster of STREAM_DP_BROKER, else a local one for this session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.runtime import localkafka


@pytest.fixture(scope="session")
def kafka_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state folder of this session's local Kafka."""
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="session")
def kafka(kafka_folder: Path) -> Iterator[str]:
    """The broker's address, "host:port". Tests name their topics so that none meets another's."""
    external = localkafka.external_broker()
    if external is not None:
        yield external
        return
    if (problem := localkafka.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    broker = localkafka.start(kafka_folder)
    assert broker.address is not None
    try:
        yield broker.address
    finally:
        localkafka.stop(kafka_folder)


@pytest.fixture
def unique() -> str:
    """A name for what no other test and no earlier run may share on a broker."""
    return f"t{uuid.uuid4().hex[:8]}"
