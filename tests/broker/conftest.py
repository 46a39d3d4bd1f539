"""One real Kafka for all tests that need one: the cluster of STREAM_DP_BROKER, else a local one for this session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stream_dp.runtime import localkafka


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker's address, "host:port". Tests name their topics so that none meets another's."""
    external = localkafka.external_broker()
    if external is not None:
        yield external
        return
    if (problem := localkafka.local_kafka_problem()) is not None:
        pytest.skip(f"no broker: {problem}")
    folder = tmp_path_factory.mktemp("kafka")
    broker = localkafka.start(folder)
    assert broker.address is not None
    try:
        yield broker.address
    finally:
        localkafka.stop(folder)
