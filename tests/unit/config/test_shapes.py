"""Windows that overlap in a configuration: how they cut the time, what is refused and offered, what is explained."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from stream_dp.config.explanation import describe
from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError
from stream_dp.windows.shapes.hopping import Hopping
from stream_dp.windows.shapes.paned import Paned
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.panes import CATALOGUE
from tests.support.releasing import plan

SECOND, DAY = 1000, 86_400_000
START = "1970-01-01T00:00:00Z"


def shop(window: str, *changes: tuple[str, str], kind: str = "catalogue") -> Plan:
    listed = CATALOGUE if kind == "catalogue" else CATALOGUE[:1]
    return plan(*listed, ("window: {size: 1s,", f"window: {{{window},"), *changes)


def fault(window: str, *changes: tuple[str, str], kind: str = "catalogue") -> str:
    with pytest.raises(ConfigError) as raised:
        shop(window, *changes, kind=kind)
    (found,) = raised.value.faults
    return str(found)


def test_the_shape_follows_from_size_step_and_pane() -> None:
    def shapes(window: str) -> tuple[object, object, int]:
        found = shop(window, ("period: 4s", "period: 60s")).views["pages"].window
        return found.shape, found.shape.released, found.shape.panes

    assert shapes("size: 4s") == (Tiling(4000), Tiling(4000), 1)
    assert shapes("size: 4s, step: 4s") == (Tiling(4000), Tiling(4000), 1)
    assert shapes("size: 4s, step: 2s") == (Hopping(4000, 2000), Hopping(4000, 2000), 1)
    assert shapes("size: 4s, step: 2s, pane: 1s") == (Paned(Tiling(1000), 4000, 2000), Hopping(4000, 2000, -4000), 4)
    assert shapes("size: 4s, pane: 1s") == (Paned(Tiling(1000), 4000, 4000), Hopping(4000, 4000, -4000), 4)
    assert shapes("size: 4s, pane: 4s") == (Tiling(4000), Tiling(4000), 1)
    assert shapes("size: 3s, step: 2s, pane: 1s") == (Paned(Tiling(1000), 3000, 2000), Hopping(3000, 2000, -3000), 3)


def test_size_and_step_are_part_of_the_definition_of_direct_windows_and_not_of_windows_of_panes() -> None:
    def fingerprint(window: str) -> bytes:
        return shop(window, ("period: 4s", "period: 60s")).views["pages"].fingerprint

    direct = [fingerprint(window) for window in ("size: 4s", "size: 4s, step: 2s", "size: 4s, step: 1s", "size: 2s")]
    assert len({*direct}) == 4
    panes = ["size: 4s, pane: 2s", "size: 6s, step: 2s, pane: 2s", "size: 6s, step: 4s, pane: 2s"]
    assert {fingerprint(window) for window in panes} == {fingerprint("size: 2s")}


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("size: 4s, step: 3s", "window.step: 3s does not divide the size of the windows, 4s; give step: 2s or 4s, or"),
        (
            "size: 4s, step: 5s",
            "window.step: 5s does not divide the size of the windows, 4s; give step: 4s, or another",
        ),
        (
            "size: 1h, step: 2s",
            "window.step: by steps of 2s an event is in 1800 windows of 1h, .* give step: 4s or more",
        ),
        ("size: 8s, step: 2s", "window.size: windows of 8s do not fit into a period of ledger 'visitors', 4s; "),
        ("size: 6s, step: 3s", "window.size: windows of 6s do not fit into a period"),
        (
            "size: 5s, pane: 2s",
            "window.size: 5s is no whole number of panes of 2s; give size: 4s or 6s, or another pane",
        ),
        (
            "size: 4s, step: 1s, pane: 2s",
            "window.step: 1s is no whole number of panes of 2s; give step: 2s, or another",
        ),
        ("size: 4s, step: 6s, pane: 2s", "window.step: 6s is longer than windows of 4s: .* give step: 4s or less"),
        ("size: 20m, pane: 1s", "window.pane: windows of 20m would be of 1200 panes of 1s, .* give pane: 3s or more"),
        ("size: 6s, pane: 3s", "window.pane: panes of 3s from .* do not tile the periods .* give the window pane: 1s"),
    ],
)
def test_lengths_that_do_not_go_together_are_refused_with_what_would_fit(window: str, expected: str) -> None:
    assert re.search(expected, found := fault(window)), found


def test_steps_that_do_not_tile_the_periods_are_refused_with_steps_that_divide_the_windows_as_well() -> None:
    found = fault("size: 6s, step: 2s", ("period: 4s", "period: 9s"))
    assert found == (
        f"views.pages.window.step: steps of 2s from {START} on do not tile the periods of ledger 'visitors', 9s from "
        f"{START} on: the first window of a period begins with it, and the last ends with it; give the window step: "
        "1s, or ledger 'visitors' period: 8s or 10s"
    )
    shop("size: 6s, step: 1s", ("period: 4s", "period: 9s"))
    shop("size: 6s, step: 2s", ("period: 4s", "period: 8s"))


def test_what_is_offered_for_lengths_that_do_not_go_together_is_accepted() -> None:
    for window in ("size: 4s, step: 2s", "size: 4s, step: 4s", "size: 4s, pane: 2s", "size: 4s, step: 2s, pane: 2s"):
        shop(window)
    for window in ("size: 1h, step: 4s", "size: 20m, pane: 3s"):
        shop(window, ("period: 4s", "period: 10h"))
    shop("size: 6s, pane: 1s")


def test_kinds_whose_windows_are_no_sums_of_panes_say_why_and_offer_what_they_can() -> None:
    said = fault("size: 4s, step: 2s, pane: 1s", kind="histogram")
    assert said == (
        "views.pages.window.pane: windows of a histogram are not made of panes: which keys it shows of a window does "
        "not follow from those that it shows of the parts. Leave pane out: with step: 2s each window is counted and "
        "noised by itself, at the price of a window each"
    )
    shop("size: 4s, step: 2s", kind="histogram")
    listed = ("catalogue: [cart, help, home, rare]", "catalogue: {topic: keys}")
    shop("size: 4s, pane: 1s", listed)
    assert "its list may change, and is fixed with the first pane" in fault("size: 4s, step: 2s, pane: 1s", listed)


def test_windows_that_cross_the_end_of_a_period_are_neither_asked_for_nor_paid() -> None:
    """A period of 10s has the 9 windows of 2s that begin in its seconds 0 to 8."""
    (ledger,) = describe(shop("size: 2s, step: 1s", ("period: 4s", "period: 10s"))).ledgers
    assert [share.windows_asked for share in ledger.shares] == [9]
    assert ledger.asked.epsilon.exact == "18"


@pytest.mark.parametrize("window", ["size: 4s, step: 2s", "size: 4s, step: 2s, pane: 1s"])
def test_both_ways_are_explained_and_priced_side_by_side(window: str) -> None:
    planned = shop(window, ("period: 4s", "period: 60s"))
    (described,), view = describe(planned).views, planned.views["pages"]
    by_panes = "pane" in window
    panes, direct = described.modes
    assert (panes.mode, panes.configured) == ("panes", by_panes)
    assert (direct.mode, direct.configured) == ("direct", not by_panes)
    count = 4 if by_panes else 2
    for at, level in enumerate(view.levels):
        seconds = DAY // SECOND
        assert Fraction(direct.day_costs[at].epsilon.exact) == level.epsilon * seconds / 2
        assert Fraction(panes.day_costs[at].epsilon.exact) == level.epsilon * seconds * count / 4
        assert direct.noise_intervals_95[at] == level.noise_interval
        assert panes.noise_intervals_95[at] == level.interval_of(count) >= level.noise_interval
        assert float(panes.expected_errors[at]) > float(direct.expected_errors[at])
        of_view = panes if by_panes else direct
        assert described.levels[at].noise_interval_95 == of_view.noise_intervals_95[at]
        assert described.levels[at].expected_error == of_view.expected_errors[at]
    if by_panes:
        assert "the sum of 4 panes of 1s" in described.hops
        assert "A user counts in each pane anew" in described.hops
        assert "One pane costs a user at most epsilon 2 " in described.coalition
        assert "at most 1 published count of a pane" in described.protection
    else:
        assert "an event is in 2 of them" in described.hops
        assert "the first release of a period comes 4s after the period begins" in described.hops
        assert "One window costs a user at most epsilon 2 " in described.coalition


def test_windows_one_after_another_have_nothing_to_compare() -> None:
    (described,) = describe(shop("size: 4s")).views
    assert (described.hops, described.modes, described.unit) == ("", [], "window")
    (histogram,) = describe(shop("size: 4s, step: 2s", kind="histogram")).views
    assert histogram.modes == []
    assert histogram.hops
