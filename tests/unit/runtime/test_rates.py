"""What a plan asks for a second, and what is said of it; that a machine is fast is not tested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.runtime import capacity as module
from stream_dp.runtime.capacity import Computing, Rate, rates
from stream_dp.testing import plan_from


def computing(view: str, milliseconds: float) -> Computing:
    return Computing(
        view=view,
        milliseconds_a_window=milliseconds,
        microseconds_a_key=1,
        microseconds_a_shown_key=1,
        keys_in_time=1,
        shown_keys_in_time=1,
    )


@pytest.fixture
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes 80 ms for an erasure."""
    monkeypatch.setattr(module, "_erasing_ms", lambda: 80.0)


@pytest.mark.usefixtures("_known")
def test_views_of_a_ledger_are_added_up(tmp_path: Path, visits: Callable[..., str]) -> None:
    text = visits(("size: 1m", "size: 2s"))
    view = text[text.index("views:\n") + 7 :]
    slow = view.replace("-pages:", "-slow:").replace("size: 2s", "size: 1s")
    alone = view.replace("-pages:", "-alone:").replace("ledger: visitors", "ledger: others")
    ledgers = '  others: {population: guests, epsilon: "100", delta: "1/100", period: 366d}\nladders:\n'
    text = (text + slow + alone).replace("ladders:\n", ledgers)
    plan = plan_from(text, tmp_path)
    pages, slower, other = plan.views

    shared, single = sorted(
        rates(plan, [computing(pages, 4), computing(slower, 7), computing(other, 30)]),
        key=lambda rate: rate.windows_a_second,
        reverse=True,
    )

    assert shared == Rate(
        ledgers=["visitors"],
        windows_a_second=0.5 + 1,
        records_a_second=3 * (0.5 + 1),
        computing_ms=(0.5 * 4 + 1 * 7) / 1.5,
        erasing_ms=0.31,
        acknowledging_ms=0.1,
        windows_possible=156.0,
    )
    assert shared.is_safe
    assert (single.ledgers, single.windows_a_second, single.windows_possible) == (["others"], 0.5, 32.9)
    assert shared.words() == (
        "Ledger visitors: 1.5 windows and 4.5 records a second are needed. This machine releases about 156 windows a "
        "second. A window takes 6 ms to compute and 0.31 ms to erase (measured), and 0.1 ms for the broker "
        "(assumed). Its keys take more time"
    )


def test_more_than_half_of_what_the_machine_does_is_not_safe() -> None:
    rate = Rate(
        ledgers=["a", "b"],
        windows_a_second=10,
        records_a_second=10,
        computing_ms=1,
        erasing_ms=1,
        acknowledging_ms=10,
        windows_possible=20,
    )
    assert rate.is_safe
    assert not rate.model_copy(update={"windows_possible": 19.9}).is_safe
    assert rate.words().startswith("Ledgers a, b: 10 windows")


def test_erasing_is_measured() -> None:
    assert module._erasing_ms() > 0
