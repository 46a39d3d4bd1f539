"""The page "Your CSV in ten minutes" does what it says: its commands are run, in its order, on a real Kafka."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from stream_dp.testing.application import WITHIN_SECONDS

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "first-csv.md").read_text(encoding="utf-8")
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
WEEKS = ["2024-01-01", "2024-01-08", "2024-01-15", "2024-01-22"]


def blocks(text: str, kind: str) -> list[str]:
    """What is fenced in a document, of one kind of fence."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [inside for fence, inside in fenced if fence == kind]


@contextmanager
def started(command: str, folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A command that runs until somebody presses Ctrl-C."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        # A background job, and all it starts, ignores SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no other thread runs)
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WITHIN_SECONDS)


def test_the_readme_has_the_file_and_the_commands_of_the_page() -> None:
    commands = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("stream-dp")]
    assert blocks(README, "yaml") == blocks(PAGE, "yaml")
    assert len(blocks(README, "yaml")[0].splitlines()) == 10
    short = [line.partition("  ")[0] for block in blocks(README, "sh") for line in block.splitlines()]
    assert [line for line in short if line.startswith("stream-dp")] == [one for one in commands if "down" not in one]


@pytest.mark.broker
def test_every_command_of_the_page_does_what_it_says(kafka: str, tmp_path: Path) -> None:
    """Kafka is that of the tests: what starts and stops one has tests of its own."""
    name = f"shop-{os.urandom(4).hex()}"
    (text,) = blocks(PAGE, "yaml")
    text = text.replace("name: shop", f"name: {name}").replace("topic: orders", f"topic: {name}")
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STREAM_DP_BROKER": kafka,
        "COLUMNS": "100",
    }
    (make, *rest) = [block.strip() for block in blocks(PAGE, "sh") if "kafka" not in block]
    check, feed, sample, worker, tail = rest

    def run(command: str) -> str:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=tmp_path, env=environment, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run(make) == ""
    checked, said, sampled, releases = (block.splitlines() for block in blocks(PAGE, "")[1:5])
    assert [line.rstrip() for line in run(check).splitlines()][1 : len(checked)] == checked[1:], "but for the broker"
    assert run(feed).replace(name, "orders").splitlines()[: len(said)] == said
    assert [line.rstrip() for line in run(sample).splitlines()][-len(sampled) :] == sampled
    found: list[str] = []
    with started(f"{worker} 2>worker.log", tmp_path, environment) as working:
        while len(found) <= len(WEEKS):
            assert working.poll() is None, (tmp_path / "worker.log").read_text(encoding="utf-8")
            with started(f"{tail} 2>>tail.log", tmp_path, environment) as reader:  # ends where there is no topic yet
                assert reader.stdout is not None
                found = list(islice(reader.stdout, 1 + len(WEEKS)))
    form = re.compile(
        r"(\S+) revision 1: standard, epsilon 1, ±6; \w+ \d+(?:, \w+ \d+)*; period total epsilon (\d), delta .*"
    )
    assert found.pop(0).strip() == releases.pop(0), "the view itself"
    weeks = [form.fullmatch(line.strip()) for line in found]
    assert [(week[1], week[2]) for week in weeks if week] == [*zip(WEEKS, "1234", strict=True)]
    assert all(form.fullmatch(line) for line in releases)
    assert all(" tea 1" in line for line in found), "about 133 in each week"
