"""The official parser of AsyncAPI finds nothing wrong with what `stream-dp asyncapi` prints."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.published import VISITS, Call, call, visits_file  # noqa: F401 - fixtures
from tests.support.stock import install_node, made

pytestmark = [pytest.mark.package, pytest.mark.slow]

PARSER = "@asyncapi/parser@3.6.6"
CHECKOUT = Path(__file__).parents[2]
PROGRAM = """
const { Parser } = require("@asyncapi/parser");
new Parser().parse(require("fs").readFileSync(0, "utf8")).then(({ document, diagnostics }) => {
  const found = diagnostics.filter((one) => one.severity < 2);
  console.log(JSON.stringify([document !== undefined, found.map((one) => one.message)]));
});
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with made("asyncapi", (PARSER,), install_node) as found:
        yield found


def parsed(folder: Path, text: str) -> Any:
    """Whether a document is read, and errors and warnings."""
    done = subprocess.run(
        ["node", "-e", PROGRAM], cwd=folder, input=text, capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [(), ("--audience", "public"), ("--json",)], ids=" ".join)
@pytest.mark.parametrize("example", ["visits", "pages", "searches"])
def test_the_official_parser_finds_nothing(
    folder: Path, visits_file: Path, call: Call, example: str, words: tuple[str, ...]
) -> None:
    file = CHECKOUT / "docs" / f"{example}.yaml"
    text = VISITS.replace("memory://", "one:9092") if example == "visits" else file.read_text(encoding="utf-8")
    visits_file.write_text(text, encoding="utf-8")
    said = call("asyncapi", visits_file, *words)

    assert parsed(folder, said.out) == [True, []]


def test_it_finds_what_is_wrong(folder: Path, visits_file: Path, call: Call) -> None:
    visits_file.write_text(VISITS.replace("memory://", "one:9092"), encoding="utf-8")
    text = call("asyncapi", visits_file).out

    is_read, faults = parsed(folder, text.replace("action: receive", "action: recieve", 1))
    assert (is_read, faults != []) == (False, True)
