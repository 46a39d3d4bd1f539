"""A real Apache Kafka on loopback, for a developer's machine, the demo and the tests that need a broker."""

from stream_dp.runtime.localkafka.broker import (
    LocalKafka,
    answers,
    default_folder,
    external_broker,
    start,
    status,
    stop,
)
from stream_dp.runtime.localkafka.jars import (
    KAFKA_VERSION,
    cache_folder,
    java_problem,
    local_kafka_problem,
    maven_problem,
)

__all__ = [
    "KAFKA_VERSION",
    "LocalKafka",
    "answers",
    "cache_folder",
    "default_folder",
    "external_broker",
    "java_problem",
    "local_kafka_problem",
    "maven_problem",
    "start",
    "status",
    "stop",
]
