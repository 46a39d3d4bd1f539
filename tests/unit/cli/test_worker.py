"""What `stream-dp worker` hands on to the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dp.cli import cli
from stream_dp.cli import worker_command as command
from stream_dp.runtime.worker.assembly import Options


@pytest.fixture(autouse=True)
def levels_of_loggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stay as they are: they are those of the whole process, and other tests listen."""
    monkeypatch.setattr(command, "speak", lambda *_, **__: None)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands on; no worker runs."""
    handed: dict[str, Any] = {}

    async def run_worker(_plan: Any, _agents: Any, options: Options, **said: Any) -> None:
        handed.update(said, options=options)

    monkeypatch.setattr(command, "run_worker", run_worker)
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:9092")
    return handed


@pytest.mark.parametrize("options", [[], ["--accept-loss"], ["--backfill"], ["--unchecked-data"]])
def test_a_loss_or_unchecked_data_is_accepted_only_where_that_is_asked_for(
    visits_file: Path, given: dict[str, Any], options: list[str]
) -> None:
    result = CliRunner().invoke(cli, ["worker", str(visits_file), *options], catch_exceptions=False)
    assert result.exit_code == 0
    accepted = Options(
        accept_loss="--accept-loss" in options,
        backfill="--backfill" in options,
        unchecked_data="--unchecked-data" in options,
    )
    assert given == {"start_within_s": 300, "http": None, "options": accepted}


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h", 3600)])
def test_a_start_may_wait_as_long_as_is_asked_for(
    visits_file: Path, given: dict[str, Any], text: str, seconds: float
) -> None:
    asked = ["worker", str(visits_file), "--start-within", text]
    assert CliRunner().invoke(cli, asked, catch_exceptions=False).exit_code == 0
    assert given["start_within_s"] == seconds


def test_a_time_that_is_none_is_refused(visits_file: Path) -> None:
    result = CliRunner().invoke(cli, ["worker", str(visits_file), "--start-within", "soon"])
    assert result.exit_code == 2
    assert "write a duration as whole numbers with units" in result.output


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9102", ("127.0.0.1", 9102)),
        ("0.0.0.0:9102", ("0.0.0.0", 9102)),
        ("[::1]:9102", ("::1", 9102)),
        ("::1:9102", ("::1", 9102)),
        ("0", ("127.0.0.1", 0)),
    ],
)
def test_http_is_answered_on_loopback_unless_another_host_is_given(
    visits_file: Path, given: dict[str, Any], text: str, address: tuple[str, int]
) -> None:
    asked = ["worker", str(visits_file), "--http", text]
    assert CliRunner().invoke(cli, asked, catch_exceptions=False).exit_code == 0
    assert given["http"] == address


@pytest.mark.parametrize("text", ["", "here", "here:", "65536", "-1", "127.0.0.1:http", "٣"])
def test_a_port_that_is_none_is_refused(visits_file: Path, text: str) -> None:
    result = CliRunner().invoke(cli, ["worker", str(visits_file), "--http", text])
    assert result.exit_code == 2
    assert "write PORT or HOST:PORT, with a port of at most 65535" in result.output


@pytest.mark.parametrize(("options", "said"), [([], ("text", False)), (["--log-format", "json", "-v"], ("json", True))])
def test_the_log_has_the_form_that_is_asked_for(
    visits_file: Path,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    said: tuple[str, bool],
) -> None:
    asked: list[tuple[str, bool]] = []
    monkeypatch.setattr(command, "speak", lambda form, verbose: asked.append((form, verbose)))
    assert CliRunner().invoke(cli, ["worker", str(visits_file), *options], catch_exceptions=False).exit_code == 0
    assert asked == [said]
    assert given
