"""deploy/compose.yaml as the image and Docker Compose read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stream_dp.runtime.localkafka import broker as localkafka

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
PORT = "9092"
CONTROLLER_PORT = "9093"
OPTIONS = frozenset({"KAFKA_HEAP_OPTS", "KAFKA_OPTS"})
"""What the image takes for itself; the other variables become settings of the broker."""


def composed() -> dict[str, Any]:
    """The whole file, with the default port filled in."""
    text = COMPOSE.read_text(encoding="utf-8").replace("${STREAM_DP_KAFKA_PORT:-9092}", PORT)
    assert "$" not in text
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def service() -> dict[str, Any]:
    """That of Kafka."""
    kafka: dict[str, Any] = composed()["services"]["kafka"]
    return kafka


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that the image makes of its environment: KAFKA_A_B is a.b; doubled underscores do not occur."""
    assert not any("__" in name for name in environment)
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name not in OPTIONS
    }


def read_properties(text: str) -> dict[str, str]:
    """The settings of a .properties file without continued lines."""
    lines = [line.strip() for line in text.splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def shipped_settings() -> dict[str, str]:
    """The settings of the local Kafka, with the ports of compose.yaml filled in."""
    file = Path(localkafka.__file__).with_name("server.properties")
    text = file.read_text(encoding="utf-8")
    return read_properties(text.replace("${controller_port}", CONTROLLER_PORT).replace("${port}", PORT))
