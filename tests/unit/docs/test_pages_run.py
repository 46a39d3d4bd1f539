"""The commands of pages for operators are run, in the order of each page, on an embedded log.

Those that go on, or read events, are run elsewhere (`tests/broker/test_first_csv.py`, `tests/broker/test_demo.py`,
`tests/pipeline/test_planning_page.py`, `tests/pipeline/test_client_documents.py`).
"""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import re
import shlex
import time
from pathlib import Path

import pytest

from stream_dp.config.planner import load_plan
from stream_dp.control.editions import first_record
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import post_accepted
from tests.support.published import VISITS, Call, call, log  # noqa: F401 - fixtures

CHECKOUT = Path(__file__).parents[3]
PAGES = ("docs/tuning.md", "docs/gateway.md", "docs/console.md", "docs/operating.md", "deploy/README.md")
RUN_ELSEWHERE = {"worker", "serve", "console", "feed", "reset", "republish"}
ANSWERS = {"tune": ["--yes"], "apply": ["--yes", "--take-back"], "keys retire": ["--yes"]}
IDS = {"3f9c02aa": "token list", "ID": "keys list"}
"""What stands for an id in a page, and the command that lists them."""
NO_WORKER = {"status": 1}
"""The code of a command that finds a problem: no worker runs here."""
NAMES = (
    ("staff: fine", "partner: detailed"),
    ("level: fine,", "level: detailed,"),
    ("searches", "busiest"),
    ("k: 3, kbar: 5", "k: 10, kbar: 40"),
    ("period: 10d}\n", "period: 10d}\nserve: {tokens: readers.tokens}\nconsole: {tokens: operators.tokens}\n"),
)
"""The names of the pages, in place of those of the small application."""


def commands(page: str) -> list[str]:
    """The commands that stand in blocks of a page, without `stream-dp` and what is said beside them."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    found = re.findall(r"^(?:\$ )?stream-dp (.*?)(?: +#.*)?$", blocks, re.MULTILINE)
    return [line for line in found if line.split()[0] not in RUN_ELSEWHERE and "--sample" not in line]


@pytest.fixture
def folder(tmp_path: Path, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an application that runs, with the names that the pages have."""
    text = VISITS
    for old, new in NAMES:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "deploy" / "kubernetes").mkdir(parents=True)
    for name in ("app.yaml", "deploy/kubernetes/app.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    monkeypatch.chdir(tmp_path)
    plan, now_ms = load_plan(tmp_path / "app.yaml"), time.time_ns() // 1_000_000
    for source in {view.source.topic: view.source for view in plan.views.values()}.values():
        log.create(source.topic, source.partitions)
    for topic in ("control", "status", "accounts"):
        log.create(f"visits-{topic}", 1)
    assert asyncio.run(post_accepted(plan, MemoryClient(log), first_record(plan, now_ms - 3_600_000)))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_are_taken_in_its_order(folder: Path, call: Call, page: str) -> None:
    for line in commands(page):
        words, _, file = line.partition(" > ")
        name, *arguments = shlex.split(words)
        if name == "keys" and not (folder / "visits.key").exists() and arguments[0] != "new":
            assert call("keys", "new", "app.yaml").code == 0  # a worker that starts makes it
        for at, word in enumerate(arguments):
            if word in IDS:
                arguments[at] = re.findall(r"\b[0-9a-f]{8,}\b", call(*IDS[word].split(), "app.yaml").out)[0]
        asking = f"{name} {arguments[0]}" if name == "keys" else name
        said = call(name, *arguments, *([] if "--dry-run" in arguments else ANSWERS.get(asking, [])))
        assert said.code == NO_WORKER.get(name, 0), (line, said)
        assert said.out or name == "token", line
        if file:
            (folder / file).write_text(said.out, encoding="utf-8")
