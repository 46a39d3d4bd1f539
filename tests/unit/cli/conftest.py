"""A small application, records as its topics would have them, and the pages of the commands as they are to be.

`WRITE_GOLDEN=1 python -m pytest tests/unit/cli` writes the pages (`golden/*.txt`) anew; read the difference before you
commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.runtime.capacity import MOST_SAID, Computing, measure
from tests.support.published import call, log, refusal, release, visits, visits_file  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def quick_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` finds a machine that does all in time that takes any; `measure` has tests of its own."""

    def measured(plan: Plan) -> list[Computing]:
        figures = {"milliseconds_a_window": 0.1, "microseconds_a_key": 0.1, "microseconds_a_shown_key": 0.1}
        keys = dict.fromkeys(("keys_in_time", "shown_keys_in_time"), MOST_SAID if plan.slots.offset_ms else 0)
        return [one.model_copy(update=figures | keys) for one in measure(plan, seconds=0)]

    monkeypatch.setattr("stream_dp.operations.check.measure", measured)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    """Compares a page, without spaces at the ends of its lines, with the whole of its file."""

    def compare(name: str, page: str) -> None:
        file = Path(__file__).with_name("golden") / f"{name}.txt"
        text = "\n".join(line.rstrip() for line in page.splitlines()) + "\n"
        if os.environ.get("WRITE_GOLDEN"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert text == file.read_text(encoding="utf-8"), f"{file.name}; WRITE_GOLDEN=1 writes it anew"

    return compare
