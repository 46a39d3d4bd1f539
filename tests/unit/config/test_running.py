"""Running views in a configuration: what their windows come to, what is refused and offered, what is explained."""

from __future__ import annotations

import re

import pytest

from stream_dp.config.explanation import describe
from stream_dp.config.forecast import closed
from stream_dp.config.plan import ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.windows.shapes.running_totals import Running
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.running import running

PANES = "{size: 6s, pane: 1s,"
START = ", start: 1970-01-01T00:00:00Z"


def fault(window: str, *changes: tuple[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        running((PANES, window), *changes)
    (found,) = raised.value.faults
    return str(found).removeprefix("views.pages.window.")


def view(*changes: tuple[str, str]) -> ViewPlan:
    return running(*changes).views["pages"]


def test_panes_are_counted_and_windows_are_charged() -> None:
    one = view()
    assert one.window.shape == Running(Tiling(1000), Tiling(6000))
    assert one.window.shape.counted == Tiling(1000)
    assert one.window.shape.released == one.charged.shape == Tiling(6000)
    assert [one.window.pays(start) for start in range(0, 12000, 1000)] == [True, *[False] * 5] * 2
    assert one.window.kept_ms == one.window.retention_ms + 5000
    assert one.kind.sensitivity == 3


def test_size_and_pane_are_part_of_the_definition() -> None:
    windows = [PANES, "{size: 6s, pane: 2s,", "{size: 12s, pane: 1s,", "{size: 4s, pane: 1s,"]
    assert len({view((PANES, window)).fingerprint for window in windows}) == 4


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("{size: 6s,", "pane: is required by running: how often a total is told in a window of 6s"),
        ("{size: 6s, pane: 4s,", "pane: 6s is no whole number of panes of 4s; give pane: 3s or 6s, or another size"),
        ("{size: 6s, pane: 1s, step: 3s,", "step: has no meaning for running: each window begins where the one before"),
        ("{size: 5s, pane: 1s,", "size: windows of 5s from 1970-01-01T00:00:00Z on do not tile the periods of ledger"),
        ("{size: 12h, pane: 1s,", "pane: windows of 12h would be of 43200 panes of 1s, .* give pane: 5s or more"),
    ],
)
def test_windows_that_cannot_be_told_of_pane_by_pane_are_refused(window: str, expected: str) -> None:
    period = [("period: 12s", "period: 12h")] if "12h" in window else []
    found = fault(window, *period)
    assert re.match(expected, found), found


def test_a_window_is_asked_for_once_whatever_its_panes() -> None:
    (ledger,) = describe(running()).ledgers
    (share,) = ledger.shares
    assert (share.windows_asked, ledger.asked.epsilon.exact) == (2, "4")
    assert ledger.affords_schedule


def test_the_noise_that_is_told_is_that_of_the_total_with_the_most_blocks() -> None:
    (found,) = describe(running()).views
    one = view()
    assert [level.noise_interval_95 for level in found.levels] == [level.interval_of(2) for level in one.levels]
    assert (found.window, found.step, found.when) == ("6s", "1s", "since the start of each 6s, told every 1s")
    details = found.explanation.details
    assert (details["height"], details["most_blocks"]) == (3, 2)
    for level in found.levels:
        assert details["expected_errors"][level.name][-1] == level.expected_error
    assert "noised counts" in found.protection


def test_windows_that_are_due_to_be_paid_for_are_those_whose_first_pane_is_over() -> None:
    one = view()
    assert [closed(one, now) for now in (0, 999, 1000, 5000, 6999, 7000, 13000)] == [0, 0, 1, 1, 1, 2, 3]
