"""Windows of panes and running totals past their retention: what a pane's end takes back, wherever crashes cut."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.records.models import Refusal
from stream_dp.releases import expiry
from tests.support.chosen import kept_ordinary
from tests.support.expiring import assert_rows_expired, secrets_of, standing
from tests.support.machine import newest
from tests.support.panes import COUNTS, paned
from tests.support.releasing import Desk
from tests.support.running import running

RETENTION = "retention: 1h"
STARTS = range(0, 12_000, 1000)
COUNTED: Mapping[int, Mapping[str, int]] = {start: COUNTS[start // 1000 % len(COUNTS)] for start in STARTS}

PANED = paned(3, 1, (RETENTION, "retention: 2s"), ('epsilon: "40"', 'epsilon: "11"'))
"""Windows of three panes. A period of four panes pays for all at the start, 8, and for one that is sharpened to fine;
or for two at fine, and refuses the others."""
STEPPED = paned(4, 4, (RETENTION, "retention: 2s"))
"""A window ends with every fourth pane only."""
TOTALS = running((RETENTION, "retention: 1s"), ('epsilon: "40"', 'epsilon: "3"'))
"""Windows of six panes, two in a period, which pays for one at middle and not for the difference to fine."""


def play(desk: Desk) -> Desk:
    """Twelve panes, with grants that are paid for and refused between them, and a last restart."""
    for start in STARTS:
        desk.give("pages", start, COUNTED[start])
        if start in (2000, 4000, 8000):
            desk.grant(start, "public", "fine" if start == 8000 else "middle")
        if start == 5000:
            desk.grant(start, "partner", "fine")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


RUNS: Mapping[str, Plan] = {"paned": PANED, "stepped": STEPPED, "totals": TOTALS}
KEPT = {
    "paned": ({7000, 8000, 9000, 10_000, 11_000}, {"5000-8000", "6000-9000", "7000-10000", "8000-11000", "9000-12000"}),
    "stepped": ({*range(6000, 12_000, 1000)}, {"4000-8000", "8000-12000"}),
    "totals": ({*range(5000, 12_000, 1000)}, {"0-6000", *(f"6000-{end}" for end in range(7000, 13_000, 1000))}),
}
"""By run: the panes that are kept, and the windows of which something stands."""
WHOLE = {name: play(Desk(plan)) for name, plan in RUNS.items()}
each = pytest.mark.parametrize("name", RUNS)


def assert_expired_whole(desk: Desk, name: str) -> None:
    panes, windows = KEPT[name]
    desk.auditor.settled()
    assert {key.decode().split("/")[2] for key in standing(desk)} == windows
    assert_rows_expired(desk, panes)
    assert {len(found) for found in secrets_of(desk).values()} == {1}
    assert len(set().union(*secrets_of(desk).values())) == len(secrets_of(desk))


@each
def test_of_a_pane_that_no_retained_window_needs_no_record_no_table_and_no_secret_stays(name: str) -> None:
    assert_expired_whole(WHOLE[name], name)
    records = WHOLE[name].records("pages", "public") + WHOLE[name].records("pages", "partner")
    kinds = {(isinstance(record, Refusal), record.revision > 1) for record in records}
    assert kinds >= {(False, False), (False, True), *([(True, True)] if name != "stepped" else [])}


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1, 67, 6))])
@pytest.mark.parametrize("name", kept_ordinary(["totals"], RUNS))
def test_a_run_cut_anywhere_expires_the_same_and_leaves_nothing_over(name: str, first: int) -> None:
    plan, whole = RUNS[name], WHOLE[name]
    for cut in range(first, whole.machine.points, 67):
        cuts = [cut, *([cut % 7] if cut % 3 else [])]
        desk = play(Desk(plan, cuts=cuts, back=cut % 4, compacts=cut % 8 > 3))
        assert_expired_whole(desk, name)
        assert desk.machine.rows == whole.machine.rows
        assert newest(desk.published()) == newest(whole.published())


def test_the_newest_window_that_was_told_of_stays_though_windows_became_shorter_since() -> None:
    """Behind a window of four panes two panes more are released, then windows are of two; the next pane ends none."""
    desk = Desk(paned(4, 4, (RETENTION, "retention: 1ms")))
    for start in STARTS[:6]:
        desk.give("pages", start, COUNTED[start])
    desk.change(paned(2, 2, (RETENTION, "retention: 1ms")))
    desk.give("pages", 6000, COUNTED[6000])
    assert {key.decode().split("/")[2] for key in standing(desk)} == {"0-4000"}
    desk.give("pages", 7000, COUNTED[7000])
    assert {key.decode().split("/")[2] for key in standing(desk)} == {"6000-8000"}


def test_a_window_that_became_longer_has_no_pane_that_expires() -> None:
    """It is as if the pane were gone: such a window is not told of."""
    desk = Desk(paned(1, 1, (RETENTION, "retention: 2s")))
    for start in STARTS[:3]:
        desk.give("pages", start, COUNTED[start])
    desk.until_ms = 0
    desk.reader.restart()
    desk.give("pages", 3000, COUNTED[3000])
    assert desk.row("pages", 0).expires
    desk.change(paned(5, 1, (RETENTION, "retention: 2s")))
    desk.give("pages", 4000, COUNTED[4000])
    assert desk.row("pages", 4000).sum is not None
    assert not desk.row("pages", 4000).publishes_window


# -- mutants --------------------------------------------------------------------------------------------------------


def counts_only_the_retention(patch: pytest.MonkeyPatch) -> None:
    real = expiry.Retention._horizon
    patch.setattr(expiry.Retention, "_horizon", lambda self, view: real(self, view) + 1000)


def takes_back_panes(patch: pytest.MonkeyPatch) -> None:
    """The records of every pane, as if it were a window."""
    real = expiry.Retention._tombstones

    def those(self: Any, view: Any, start_ms: int, row: Any) -> Any:
        found = real(self, view, start_ms, row)
        return [(topic, key.rpartition(b"-")[0], None) for topic, key, _ in found]

    patch.setattr(expiry.Retention, "_tombstones", those)


def forgets_refusals(patch: pytest.MonkeyPatch) -> None:
    real = expiry.Retention._tombstones

    def some(*arguments: Any) -> Any:
        return [one for one in real(*arguments) if not one[1].endswith(b"/refusal")]

    patch.setattr(expiry.Retention, "_tombstones", some)


MUTANTS = [counts_only_the_retention, takes_back_panes, forgets_refusals]


@pytest.mark.parametrize("name", ["paned", "totals"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        assert_expired_whole(play(Desk(RUNS[name])), name)
