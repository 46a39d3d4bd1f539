"""What was spent belongs to a population and a time: no new name or period forgets it, and none counts it twice."""

from __future__ import annotations

from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, StateError
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Refusal
from stream_dp.releases.accounts import Accounts, ledger_key, promise_key
from stream_dp.releases.rows import PROMISE
from stream_dp.windows.shapes.shape import Interval
from tests.support.chosen import ordinarily
from tests.support.machine import newest
from tests.support.releasing import SECOND, Desk, add_reservations
from tests.support.shapes import HOME, Shape, opened, stored

WINDOW = Cost(Fraction(2), Fraction(1, 100))
"""What a window costs at the clearances of the start."""


def give(desk: Desk, *seconds: int, view: str = "pages") -> list[str]:
    """Release windows, and say what became of them: "4 to 8" is the period that paid, "no 4 to 8" that it could not."""
    for second in seconds:
        desk.give(view, second * SECOND, HOME)
    return said(desk, *seconds, view=view)


def said(desk: Desk, *seconds: int, view: str = "pages") -> list[str]:
    """What the newest record of a window says to staff, who have the finest level."""
    found = {record.window.start_ms: record for record in desk.records(view, "staff")}
    return [words(found[second * SECOND]) for second in seconds]


def words(record: AnyRecord) -> str:
    period = record.ledger.period
    return f"{'no ' * isinstance(record, Refusal)}{period.start_ms // SECOND} to {period.end_ms // SECOND}"


def spent(desk: Desk) -> dict[str, Fraction]:
    """The epsilon that stands in the rows themselves, by period."""
    return {words_of(period): ledger.spent.epsilon for period, ledger in stored(desk).items()}


def words_of(period: Interval) -> str:
    return f"{period.start_ms // SECOND} to {period.end_ms // SECOND}"


def epsilons(*values: int) -> list[Fraction]:
    return [Fraction(value) for value in values]


def left(desk: Desk, second: int) -> Fraction:
    """The epsilon that is left for a window of the first view, as a process that starts now sees it."""
    accounts = Accounts(desk.plan.views)
    desk.machine.carry_out(accounts.load(desk.machine))
    return accounts.left(next(iter(desk.plan.views.values())), second * SECOND).epsilon


# -- names ----------------------------------------------------------------------------------------------------------


def test_a_renamed_view_has_no_more_left_than_it_had() -> None:
    """A budget of 4 pays for two windows in a period."""
    desk = opened(Shape(4))
    assert give(desk, 0, 1, 2) == ["0 to 4", "0 to 4", "no 0 to 4"]
    desk.change(Shape(4, views=("others",)).plan())
    assert give(desk, 0, 1, 2, 3, 4, view="others") == ["no 0 to 4"] * 4 + ["4 to 8"]
    assert spent(desk) == {"0 to 4": 4, "4 to 8": 2}


def test_a_renamed_ledger_has_no_more_left_than_it_had_and_its_period_goes_on() -> None:
    desk = opened(Shape(4))
    give(desk, 0, 1)
    desk.change(Shape(4, ledger="readers", budget=40).plan())
    assert give(desk, 2, 3, 4, 5, 6) == ["no 0 to 4"] * 2 + ["4 to 8"] * 3
    assert [record.ledger.name for record in desk.records("pages", "staff")] == ["visitors"] * 2 + ["readers"] * 5
    assert spent(desk) == {"0 to 4": 4, "4 to 8": 6}


def test_what_a_view_that_is_gone_has_spent_is_missing_from_the_other_views_of_its_population() -> None:
    desk = opened(Shape(4, views=("pages", "others")))
    give(desk, 0)
    desk.change(Shape(4, views=("others",)).plan())
    assert give(desk, 0, 1, view="others") == ["0 to 4", "no 0 to 4"]


def test_a_reservation_of_a_view_that_is_gone_counts_in_every_period_it_overlaps() -> None:
    desk = opened(Shape(4, budget=10, views=("pages", "others")))
    give(desk, 0)
    key = ledger_key(desk.plan.views["pages"], 0)
    add_reservations(desk, key, {"others 1000  -1 -1 -1": WINDOW})
    desk.change(Shape(6, budget=10).plan())
    assert left(desk, 4) == 10 - 2 - 2
    assert give(desk, 1, 2, 3, 4) == ["0 to 4", "0 to 4", "0 to 4", "no 0 to 6"]
    assert dict(stored(desk)[Interval(0, 4000)].reserved) == {"others 1000  -1 -1 -1": WINDOW}


def test_another_wording_is_another_population_which_a_view_does_not_pass_to_unnoticed() -> None:
    desk = opened(Shape(4))
    give(desk, 0, 1)
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        desk.change(Shape(4, population="guests").plan())
    desk.change(Shape(4, population="guests", views=("others",)).plan())
    assert give(desk, 0, 1, 2, view="others") == ["0 to 4", "0 to 4", "no 0 to 4"]


# -- periods --------------------------------------------------------------------------------------------------------


def test_a_changed_period_gives_nothing_back_and_needs_no_renamed_view() -> None:
    desk = opened(Shape(4))
    give(desk, 0, 1, 2, 3, 4, 5)
    desk.change(Shape(3).plan())
    assert give(desk, 6, 7, 8, 9) == ["no 4 to 8", "no 4 to 8", "no 6 to 9", "9 to 12"]
    assert spent(desk) == {"0 to 4": 4, "4 to 8": 4, "9 to 12": 2}


def test_a_period_that_has_begun_keeps_its_length_and_its_budget_until_it_ends() -> None:
    for other in (Shape(2, budget=40), Shape(6, budget=40), Shape(4, start=2, budget=40), Shape(4, budget=40)):
        desk = opened(Shape(4, budget=6))
        give(desk, 0)
        desk.change(other.plan())
        assert give(desk, 1, 2, 3) == ["0 to 4", "0 to 4", "no 0 to 4"]
        records = desk.records("pages", "staff")
        assert {(words(record)[-6:], record.ledger.budget.epsilon.exact) for record in records} == {("0 to 4", "6")}
        desk.change(Shape(4, budget=6).plan())
        assert spent(desk) == {"0 to 4": 6}


def test_a_new_period_is_charged_all_that_it_overlaps() -> None:
    """Periods of 2 s with 2 to spend, each of which is spent; then others with 14."""
    desk = opened(Shape(2, budget=2))
    give(desk, 0, 1, 2, 3, 4)
    desk.change(Shape(5, start=1, budget=14).plan())
    assert [left(desk, 5), left(desk, 6)] == epsilons(0, 14), "[4, 6) is spent and has begun; [6, 11) overlaps none"
    desk.change(Shape(7, budget=14).plan())
    assert left(desk, 6) == 14 - 6
    assert give(desk, 5, 6) == ["no 4 to 6", "0 to 7"]
    assert left(desk, 6) == 14 - 6 - 2
    assert spent(desk) == {"0 to 2": 2, "2 to 4": 2, "4 to 6": 2, "0 to 7": 2}


def test_nothing_is_lost_to_overlap_where_the_new_periods_begin_as_the_running_one_ends() -> None:
    desk = opened(Shape(4))
    give(desk, 0)
    desk.change(Shape(6, start=4).plan())
    assert give(desk, 1, 2, 3, 4, 5, 6) == ["0 to 4", *["no 0 to 4"] * 2, "4 to 10", "4 to 10", "no 4 to 10"]


def test_periods_of_one_start_and_other_lengths_are_two() -> None:
    desk = opened(Shape(2, budget=10))
    give(desk, 0, 1)
    desk.change(Shape(4, budget=10).plan())
    assert give(desk, 2) == ["0 to 4"]
    assert spent(desk) == {"0 to 2": 4, "0 to 4": 2}
    assert left(desk, 3) == 10 - 4 - 2


def test_a_period_that_what_it_overlaps_has_overdrawn_does_not_begin() -> None:
    """[0, 8) would promise 6, and 8 was spent in it; the epsilon that it would ask for is not even the definition."""
    desk = opened(Shape(2))
    give(desk, 0, 1, 2, 3)
    desk.change(Shape(8, budget=6).plan())
    rows = set(desk.machine.rows)
    assert left(desk, 4) == 0
    assert give(desk, 4, 5, 6, 7, 8) == ["no 0 to 8"] * 4 + ["8 to 16"]
    assert {key for key in desk.machine.rows if key.startswith(PROMISE)} - rows == {
        promise_key(ledger_key(desk.plan.views["pages"], 8000))
    }


def test_changing_there_and_back_counts_nothing_twice_and_forgets_nothing() -> None:
    desk = opened(Shape(4, budget=10))
    give(desk, 0)
    for _ in range(3):
        for shape in (Shape(3, budget=10), Shape(4, budget=10), Shape(5, start=1, budget=10)):
            desk.change(shape.plan())
            assert left(desk, 1) == 8
    desk.change(Shape(3, budget=10).plan())
    assert give(desk, 1, 2, 3, 4, 5) == ["0 to 4"] * 3 + ["3 to 6", "no 3 to 6"], "8 in [0, 4), 2 in [3, 6)"
    desk.change(Shape(4, budget=10).plan())
    assert left(desk, 6) == 10 - 2, "[4, 8) overlaps [3, 6)"
    assert give(desk, 6, 7, 8) == ["4 to 8", "4 to 8", "8 to 12"]
    assert [left(desk, 7), left(desk, 8)] == epsilons(10 - 2 - 4, 10 - 2)
    assert spent(desk) == {"0 to 4": 8, "3 to 6": 2, "4 to 8": 4, "8 to 12": 2}


def test_a_window_has_to_fit_under_every_period_that_has_begun_and_that_it_is_in() -> None:
    """[2, 6) has 40 to spend and has begun, [0, 4) has 6, of which 4 are kept for pages: a window at 3 is in both."""
    desk = opened(Shape(4, budget=6, views=("pages", "others")))
    give(desk, 0)
    desk.change(Shape(4, start=2, budget=40, views=("pages", "others")).plan())
    assert give(desk, 0, 1, 2, 3, 4, view="others") == ["0 to 4"] + ["no 0 to 4"] * 3 + ["2 to 6"]
    assert give(desk, 1, 2, 3, 4) == ["no 0 to 4", "no 2 to 6", "no 2 to 6", "2 to 6"]
    assert spent(desk) == {"0 to 4": 4, "2 to 6": 4}


def test_what_a_period_pays_counts_at_once_in_the_former_one_that_it_overlaps() -> None:
    """All that [2, 6) pays counts in [0, 4), which has 12: the rows do not say which windows it paid for.

    Half of the 12 are kept for each view.
    """
    both = ("pages", "others")
    desk = opened(Shape(4, budget=12, views=both))
    assert give(desk, 0, 1, 2, 3, view="others") == ["0 to 4"] * 3 + ["no 0 to 4"]
    desk.change(Shape(4, start=2, budget=40, views=both).plan())
    assert give(desk, 0) == ["0 to 4"]
    assert give(desk, 4, view="others") == ["2 to 6"]
    assert give(desk, 1, 2, 3, 4) == ["0 to 4", "no 2 to 6", "no 2 to 6", "2 to 6"]


def test_a_window_that_straddles_the_end_of_a_former_period_has_to_fit_under_it() -> None:
    """Windows of 2 s tile periods of 4 s; one of them lies half in the former period of 3 s."""
    desk = opened(Shape(3, budget=4, views=("pages",)))
    give(desk, 0, 1)
    desk.change(Shape(4, budget=40, views=("wide",)).plan())
    assert give(desk, 0, 2, 4, view="wide") == ["no 0 to 3", "no 0 to 4", "4 to 8"]
    assert spent(desk) == {"0 to 3": 4, "4 to 8": 2}


def test_a_sharper_revision_is_paid_by_the_period_that_its_window_is_in_and_never_above_its_caps() -> None:
    """From 2 to 4: [0, 2) affords one such step, though [0, 8) is overdrawn; what it pays counts in later periods."""
    desk = opened(Shape(2, budget=6))
    give(desk, 0, 1, 2, 3)
    desk.change(Shape(8, budget=8).plan())
    assert give(desk, 4) == ["no 0 to 8"]
    desk.grant(1, "staff", "fine")
    assert said(desk, 0, 1, 2, 3) == ["0 to 2", "no 0 to 2", "2 to 4", "no 2 to 4"]
    assert spent(desk) == {"0 to 2": 6, "2 to 4": 6}
    desk.grant(2, "public", "middle")
    records = [record for record in desk.records("pages", "public") if record.revision == 2]
    assert [(words(record), record.type) for record in records] == [
        (period, "release") for period in ("0 to 2", "0 to 2", "2 to 4", "2 to 4")
    ], "what others have already costs nothing"
    desk.change(Shape(12, start=3, budget=20).plan())
    assert left(desk, 5) == 20 - 6


def test_parts_come_and_go_with_the_first_period_that_overlaps_no_spending_of_the_former() -> None:
    """Rho for which there is no cap, and epsilon for which there was none: nothing is released meanwhile."""
    for before, behind in ((True, False), (False, True)):
        desk = opened(Shape(4, budget=20, pooled=before))
        give(desk, 0)
        desk.change(Shape(6, budget=20, pooled=behind, views=("others",)).plan())
        found = give(desk, *range(7), view="others")
        assert found == ["no 0 to 4"] * 4 + ["no 0 to 6"] * 2 + ["6 to 12"]


def test_a_ledger_with_a_damaged_key_stops_the_engine() -> None:
    desk = opened(Shape(4))
    give(desk, 0)
    key = ledger_key(desk.plan.views["pages"], 0)
    desk.machine.rows[key[:-1]] = desk.machine.rows.pop(key)
    with pytest.raises(StateError, match="damaged key"):
        desk.reader.restart()


CHANGES = [Shape(4, budget=8), Shape(3, budget=8), Shape(5, start=1, budget=8), Shape(4, budget=8)]


@pytest.mark.slow
@pytest.mark.parametrize("back", ordinarily(1, [0, 2]))
def test_a_crash_at_any_point_around_changes_of_the_period_leaves_the_same_spending(back: int) -> None:
    def run(cut: int) -> Desk:
        desk = Desk(CHANGES[0].plan(), audit=False, cuts=[cut], back=back)
        for at, shape in enumerate(CHANGES):
            desk.change(shape.plan())
            give(desk, 2 * at, 2 * at + 1)
            desk.grant(at + 1, "staff", "fine")
        desk.machine.cut_after = None
        return desk

    whole = run(10**9)
    points = whole.machine.points
    for cut in range(0, points, 3):
        desk = run(cut)
        assert stored(desk) == stored(whole)
        assert newest(desk.published()) == newest(whole.published())
    assert points > 100
