"""`stream-dp kafka`: exit codes and the shape of `--json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dp.cli.kafka_command import kafka


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path / "cache"))


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(kafka, arguments, catch_exceptions=False)
    return result.exit_code, result.output


def test_status_of_nothing_exits_with_three_and_says_where_it_would_be(tmp_path: Path) -> None:
    code, said = run("status", "--json", "--dir", str(tmp_path / "state"))
    assert code == 3
    assert json.loads(said) == {
        "address": None,
        "external": False,
        "running": False,
        "ready": False,
        "started": False,
        "pid": None,
        "data": str(tmp_path / "state" / "data"),
        "log": str(tmp_path / "state" / "kafka.log"),
    }
    assert run("status")[0] == 3


def test_down_of_nothing_is_fine(tmp_path: Path) -> None:
    assert run("down") == (0, "Kafka was not running\n")
    code, said = run("down", "--json")
    assert (code, json.loads(said)) == (0, {"stopped": False})
    assert not (tmp_path / "cache").exists()


def test_up_with_a_named_cluster_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "kafka://127.0.0.1:1")
    assert run("up") == (0, "STREAM_DP_BROKER names 127.0.0.1:1: using it, nothing started\n")
    assert json.loads(run("up", "--json")[1]) == {"address": "127.0.0.1:1", "external": True, "started": False}
    assert not (tmp_path / "cache").exists()


def test_status_of_a_named_cluster_that_is_silent_exits_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:1")
    code, said = run("status")
    assert code == 1
    assert "it does not answer" in said


def test_fault_is_a_message_not_a_traceback(call: Callable[..., Any], tmp_path: Path) -> None:
    said = call("kafka", "up", "--heap", "lots", "--dir", tmp_path / "state")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: heap 'lots' is not a size")
