"""No output ends a command with a traceback, even without Unicode or without a reader."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.cli import _COMMANDS, main
from stream_dp.cli.output import CLOSED, announce, guarded_output
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.config.yaml_data import parse_yaml
from stream_dp.control.editions import first_record
from stream_dp.records.codec import encode
from stream_dp.records.models import Release
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import post_accepted
from stream_dp.runtime.kafka.topics import Topics

WORDS = "visitörs 漢字"


@pytest.fixture
def commands(
    visits_file: Path, visits: Plan, log: MemoryLog, release: Callable[..., Release], monkeypatch: pytest.MonkeyPatch
) -> list[list[str]]:
    """Commands that print much, of an application whose words and keys are not ASCII."""
    monkeypatch.chdir(visits_file.parent)
    visits_file.write_text(visits_file.read_text().replace("visitors of the site", WORDS))
    topics = Topics.of(visits)
    for name, partitions in (
        (topics.control, 1),
        (topics.accounts, 1),
        (topics.status, 1),
        (topics.release("pages", "public"), 1),
    ):
        log.create(name, partitions)
    made = release({"café": 90, "漢字": 70})
    log.append(topics.release("pages", "public"), 0, b"key", encode(made))
    plan = load_plan(visits_file)
    asyncio.run(post_accepted(plan, MemoryClient(log), first_record(plan, 0)))
    Path("orders.csv").write_text("wer,was,at\na,tee,2024-01-01\nb,tee,2024-01-02\n" * 20, encoding="utf-8")
    file = str(visits_file)
    lines = f"""\
check {file}
check {file} --explain
check {file} --json
check nothing-ö.yaml
acl {file}
asyncapi {file}
schema
tail {file} pages public --until-end
tail {file} pages public --until-end --json
lookup {file} pages public café
ledger {file}
status {file}
settings {file}
settings {file} --show 1
grants {file}
apply {file} --dry-run
kafka status
init orders.csv --yes --epsilon 40
"""
    return [line.split() for line in lines.splitlines()]


def run(words: list[str], out: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run the console script with an output; return its exit code. Any other exception is a traceback."""
    monkeypatch.setattr(sys, "argv", ["stream-dp", *words])
    monkeypatch.setattr(sys, "stdout", out)
    try:
        main()
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


def test_ascii_output_has_a_stand_in_for_every_character(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: dict[str, bytes] = {}
    for words in [["--help"], *([name, "--help"] for name in _COMMANDS), *commands]:
        raw = io.BytesIO()
        code = run(words, io.TextIOWrapper(raw, encoding="ascii", write_through=True), monkeypatch)
        printed[" ".join(words[:1] + words[2:])] = raw.getvalue()
        assert code in range(4), words
    assert b"+-" in printed["check --explain"]
    assert "café".encode() in printed["tail pages public --until-end"]
    assert json.loads(printed["check --json"])["ledgers"][0]["population"] == WORDS
    settings: Any = parse_yaml(printed["settings --show 1"].decode())[0]
    assert settings["ledgers"]["visitors"]["population"] == WORDS


def test_closed_pipe_ends_every_command_in_silence(
    commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in commands:
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "w", encoding="utf-8") as out:
            code = run(words, out, monkeypatch)
        said = capfd.readouterr()
        assert (code in range(4), "Traceback" in said.err) == (True, False), (words, said.err)


def test_program_goes_on_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with guarded_output(), os.fdopen(write_end, "w", encoding="utf-8", closefd=False) as out:
        monkeypatch.setattr(sys, "stdout", out)
        announce("it listens")
        announce("nobody may read yet")
        os.dup2(os.open(os.devnull, os.O_WRONLY), write_end)


def test_process_without_a_reader_leaves_no_word(visits_file: Path) -> None:
    """At its end Python flushes what is left, which must not fail again."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "stream_dp.cli", "acl", str(visits_file)]
    done = subprocess.run(
        command, stdout=write_end, stderr=subprocess.PIPE, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (CLOSED, b"")
