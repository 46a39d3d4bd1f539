"""The release engine on windows that hop: each by itself, as far as one period pays for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.releases.accounts import read_ledgers
from stream_dp.releases.rows import BUCKET, WINDOW
from stream_dp.windows.encoding import window_key
from tests.support.machine import newest
from tests.support.oracle import expected_records
from tests.support.releasing import KEY, ONLY_PAGES, Desk, keyed, plan, promise_of

HOPS = ("window: {size: 1s,", "window: {size: 2s, step: 1s,")
DIRECT = plan(HOPS)
"""Both views hop: of the windows of a period of 4s, those from 0, 1000 and 2000 are whole in it."""
COUNTS = [{"home": 40, "cart": 12, "rare": 1}, {}, {"home": 9}, {"home": 30, "cart": 30}, {"cart": 5}, {"home": 2}]


def play(desk: Desk, starts: Sequence[int] = range(0, 6000, 1000)) -> Desk:
    """Six windows of both views; a grant behind the second, and one behind the last."""
    for start in starts:
        for name in ("tops", "pages"):
            desk.give(name, start, COUNTS[start // 1000])
        if start == 1000:
            desk.grant(5, "partner", "middle")
    desk.grant(6, "public", "fine")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


WHOLE = play(Desk(DIRECT))


def starts(desk: Desk, view: str = "pages") -> list[int]:
    return sorted({record.window.start_ms for record in desk.records(view, "staff")})


def test_windows_that_cross_the_end_of_a_period_are_neither_released_nor_charged_nor_kept() -> None:
    WHOLE.auditor.settled()
    for view in ("pages", "tops"):
        assert starts(WHOLE, view) == [0, 1000, 2000, 4000, 5000]
        assert window_key(WINDOW, view, 3000) not in WHOLE.machine.rows
    assert WHOLE.reader.standing() == set()
    assert not [key for key in WHOLE.machine.rows if key.startswith(BUCKET)]
    windows = {record.window.start_ms: record.window.end_ms for record in WHOLE.records("pages", "staff")}
    assert windows == {start: start + 2000 for start in windows}


@pytest.mark.parametrize("view", ["pages", "tops"])
def test_releases_of_windows_that_hop_equal_the_oracle_and_each_is_charged_once(view: str) -> None:
    """Two windows are noised apart however much they overlap: their records are those of the pure functions."""
    planned = DIRECT
    desk = Desk(planned)
    for start in range(0, 6000, 1000):
        desk.give(view, start, COUNTS[start // 1000])
    windows = {start: COUNTS[start // 1000] for start in (0, 1000, 2000, 4000, 5000)}
    expected = expected_records(planned.views[view], windows, prf_key=KEY, entropy=keyed)
    assert {audience: desk.records(view, audience) for audience in planned.views[view].audiences} == expected
    desk.auditor.settled()


@pytest.mark.slow
def test_a_run_with_hopping_windows_that_is_cut_ends_with_the_rows_and_records_of_an_uncut_one() -> None:
    for cut in range(0, WHOLE.machine.points, 17):
        desk = play(Desk(DIRECT, cuts=[cut, *([3] if cut % 2 else [])], back=5 * (cut % 4 // 2), compacts=cut % 8 > 3))
        desk.auditor.settled()
        assert desk.machine.rows == WHOLE.machine.rows
        assert newest(desk.published()) == newest(WHOLE.published())


def longer(period: str) -> Plan:
    return plan(ONLY_PAGES, HOPS, ("period: 4s", f"period: {period}"))


def test_after_a_change_of_the_period_windows_go_on_in_order_and_each_is_whole_in_the_period_that_pays() -> None:
    """The period from 0 that began with 4s goes on; behind it those of 3s are 6000 to 9000, 9000 to 12000."""
    desk = Desk(longer("4s"), audit=False)
    for start in range(0, 4000, 1000):
        desk.give("pages", start, COUNTS[start // 1000])
    desk.change(longer("3s"))
    for start in range(4000, 10000, 1000):
        desk.give("pages", start, {"home": start})
    view = desk.plan.views["pages"]
    spent = [ledger.spent for ledger in read_ledgers(desk.machine.rows.items()).values()]
    assert sum(spent, Cost.ZERO) == view.cost(view.start_level) * 7
    assert starts(desk) == [0, 1000, 2000, 4000, 6000, 7000, 9000]
    found = [record.window.start_ms for record in desk.records("pages", "staff")]
    assert found == sorted(found)
    for record in desk.records("pages", "staff"):
        assert record.ledger.period.start_ms <= record.window.start_ms
        assert record.window.end_ms <= record.ledger.period.end_ms
        assert promise_of(record).epsilon == "40"
