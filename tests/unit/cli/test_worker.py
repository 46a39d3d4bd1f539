"""What `stream-dp worker` hands on to the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dp.cli import cli
from stream_dp.cli import worker as command


@pytest.mark.parametrize("options", [[], ["--accept-loss"]])
def test_a_loss_is_accepted_only_where_that_is_asked_for(
    visits_file: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    given: dict[str, Any] = {}

    async def run_worker(*_: Any, **said: Any) -> None:
        given.update(said)

    monkeypatch.setattr(command, "run_worker", run_worker)
    monkeypatch.setenv("STREAM_DP_BROKER", "127.0.0.1:9092")
    result = CliRunner().invoke(cli, ["worker", str(visits_file), *options], catch_exceptions=False)
    assert result.exit_code == 0
    assert given == {"replication": 1, "accept_loss": bool(options)}
