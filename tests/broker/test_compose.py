"""The broker's own set-up code, which the image of deploy/compose.yaml runs first, takes what stands there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from stream_dp.runtime.localkafka.jars import fetch_jars, java_command, local_kafka_problem
from tests.support.compose import read_properties, service, settings_of

pytestmark = pytest.mark.broker

LOGGING = "Configuration: {Loggers: {Root: {level: INFO}, Logger: []}}\n"


def test_the_image_turns_the_environment_into_settings_that_kafka_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAM_DP_KAFKA_VERSION", raising=False)  # the version of the image is fixed
    if (problem := local_kafka_problem()) is not None:
        pytest.skip(f"no jars of Kafka: {problem}")
    default, mounted, final = (tmp_path / name for name in ("default", "mounted", "final"))
    for folder in (default, mounted, final):
        folder.mkdir()
    (final / "server.properties").touch()
    for name in ("log4j2.yaml", "tools-log4j2.yaml"):
        (default / name).write_text(LOGGING, encoding="utf-8")
    environment = {**service()["environment"], "KAFKA_LOG_DIRS": str(tmp_path / "data")}

    command = [java_command(), "-cp", f"{fetch_jars()}/*", "kafka.docker.KafkaDockerWrapper", "setup"]
    command += ["-D", str(default), "-M", str(mounted), "-F", str(final)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    done = subprocess.run(
        command,
        env={**inherited, **environment, "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert read_properties((final / "server.properties").read_text(encoding="utf-8")) == settings_of(environment)
    assert (tmp_path / "data" / "meta.properties").is_file(), "formatted, so Kafka has read the settings"
