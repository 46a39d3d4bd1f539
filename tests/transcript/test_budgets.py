"""The simulator's accounts, keys and records about views, against examples that were worked out by hand."""

from __future__ import annotations

from fractions import Fraction

from stream_dp.accounting import Cost
from tests.transcript.simulator import simulate
from tests.transcript.tapes import PEOPLE, SECOND, accepted, first_settings, lines, predict, shop, tape
from tests.transcript.transcript import Grant, KeyAdded, KeyRetired, LossAccepted

ONE_READER = {"public": "coarse"}
UNLOCKING = {"public": {"level": "coarse", "unlock": [{"level": "fine", "after": "6s"}]}}


def epsilons(prediction_entries: object) -> list[Fraction]:
    return [entry.charge.epsilon for entry in prediction_entries]  # type: ignore[attr-defined]


# Charges


def test_window_is_charged_for_its_finest_level_once() -> None:
    found = predict(tape(first_settings(shop()), ticks=range(13)))
    assert epsilons(found.entries) == [3]


def test_step_is_charged_for_the_difference() -> None:
    control = [*first_settings(shop(audiences=ONE_READER)), (13, Grant("g", "public", "fine"))]
    found = predict(tape(control, ticks=range(14)))
    assert epsilons(found.entries) == [1, 2]
    assert [entry.spent.epsilon for entry in found.entries] == [1, 3]


def test_result_is_charged_at_its_price() -> None:
    """The worst case has to fit before; what the result did not need is there for the next window."""
    plan = shop(audiences=ONE_READER, ledger={"epsilon": "2", "period": "40s"})
    transcript = tape(first_settings(plan), ticks=range(43))
    assert [line.split()[1] for line in lines(predict(transcript))] == ["release", "release", "refusal", "refusal"]

    def half(_view: str, _start_ms: int, _level: str) -> Cost:
        return Cost(Fraction(1, 2), Fraction(0))

    cheap = simulate(transcript, half)[PEOPLE]
    assert [line.split()[1] for line in lines(cheap)] == ["release", "release", "release", "refusal"]


def test_short_budget_refuses_or_takes_a_coarser_level() -> None:
    found: dict[str, list[str]] = {}
    for when_short in ("refuse", "coarser"):
        plan = shop(ledger={"epsilon": "5", "period": "20s"}, view={"when_short": when_short})
        found[when_short] = lines(predict(tape(first_settings(plan), ticks=range(23))))
    assert found["refuse"][2:] == ["22.2 refusal pages/public 10 budget", "22.2 refusal pages/staff 10 budget"]
    assert found["coarser"] == [
        "12.2 release pages/public 0 coarse r1",
        "12.2 release pages/staff 0 fine r1",
        "22.2 release pages/public 10 coarse r1",
        "22.2 release pages/staff 10 coarse r1",
    ]


def test_budget_that_is_kept_for_other_views_is_not_taken() -> None:
    """The step fits under the cap of 4 at 13, but not besides the windows of the second view."""
    plan = shop(views={"first": {}, "second": {}}, audiences=ONE_READER, ledger={"epsilon": "4", "period": "20s"})
    control = [*first_settings(plan), (13, Grant("g", "public", "fine", views=("first",), scope="retained"))]
    assert lines(predict(tape(control, ticks=range(23))))[2:] == [
        "13.1 refusal first/public 0 budget",
        "22.2 release first/public 10 coarse r1",
        "22.2 release second/public 10 coarse r1",
    ]


def test_user_pays_for_the_dearest_windows() -> None:
    plan = shop(audiences=ONE_READER, view={"windows_per_user": 2}, ledger={"epsilon": "2"})
    found = predict(tape(first_settings(plan), ticks=range(63)))
    assert [line.split()[1] for line in lines(found)] == ["release"] * 6
    assert [entry.spent.epsilon for entry in found.entries] == [1, 2, 2, 2, 2, 2]


def test_unlocks_are_kept_from_leftovers() -> None:
    """Budget 6 and two windows with an unlock each: nothing is left for the other audience."""
    readers = {**UNLOCKING, "staff": "coarse"}
    for epsilon, sharpened in (("6", 0), ("8", 1)):
        levels = [{"level": name, "epsilon": at} for name, at in (("coarse", "1"), ("fine", "3"), ("exact", "5"))]
        view = {"sharpen": {"audience": "staff", "level": "exact", "every": "23s"}}
        ladders = {"standard": levels}
        plan = shop(audiences=readers, view=view, ladders=ladders, ledger={"epsilon": epsilon, "period": "20s"})
        found = lines(predict(tape(first_settings(plan), ticks=range(24))))
        assert sum("exact" in line for line in found) == sharpened


def test_reserve_is_kept_from_leftovers() -> None:
    for reserve, sharpened in (("0", 2), ("1/2", 0)):
        view = {"sharpen": {"audience": "public", "level": "fine", "every": "23s", "reserve": reserve}}
        plan = shop(audiences=ONE_READER, view=view, ledger={"epsilon": "6", "period": "20s"})
        found = lines(predict(tape(first_settings(plan), ticks=range(24))))
        assert sum("fine" in line for line in found) == sharpened


def test_leftovers_leave_out_periods_that_ended_before_the_time_before() -> None:
    """Settings bring leftovers at 45. The run of 60 is about the periods that end at 40 and 60, not at 20."""
    ledger = {"period": "20s"}
    view = {"sharpen": {"audience": "public", "level": "fine", "every": "20s"}}
    control = first_settings(shop(audiences=ONE_READER, ledger=ledger))
    control += accepted(2, shop(audiences=ONE_READER, ledger=ledger, view=view), {}, at=45)
    found = lines(predict(tape(control, ticks=range(62))))
    assert [line for line in found if line.startswith("60.4")] == [
        f"60.4 release pages/public {start} fine r2" for start in (40, 30, 20)
    ]


def test_budget_is_asked_before_a_loss_is_known() -> None:
    plan = shop(audiences=ONE_READER, ledger={"epsilon": "1", "period": "20s"})
    placed = {0: [(5, LossAccepted(("pages",), 10_000, 20_000))]}
    assert lines(predict(tape(first_settings(plan), ticks=range(23), placed=placed))) == [
        "12.2 release pages/public 0 coarse r1",
        "22.2 refusal pages/public 10 budget",
    ]


def test_two_populations_have_two_sequences() -> None:
    ledger = {"epsilon": "9", "delta": "0", "period": "1m", "start": "1970-01-01T00:00:00Z"}
    ledgers = {name: {**ledger, "population": name} for name in ("people", "firms")}
    plan = shop(views={"pages": {}, "orders": {"ledger": "firms"}}, ledgers=ledgers, audiences=ONE_READER)
    found = simulate(tape(first_settings(plan), ticks=range(13), ledgers={"people": 0, "firms": 1}))
    assert lines(found["people"]) == ["12.2 release pages/public 0 coarse r1"]
    assert lines(found["firms"]) == ["12.2 release orders/public 0 coarse r1"]


# Keys and records about views


def test_windows_of_a_retired_key_are_not_sharpened() -> None:
    plan = shop(audiences=ONE_READER)
    control = [(0, KeyAdded("one")), *first_settings(plan), (15, KeyAdded("two")), (23, KeyRetired("one"))]
    control.append((24, Grant("g", "public", "fine")))
    assert lines(predict(tape(control, ticks=range(25))))[2:] == ["24.1 release pages/public 10 fine r2"]


def test_record_about_a_view_follows_what_it_says() -> None:
    """The level of staff is not in the record of public, so a change of it brings none."""
    former = shop(audiences={"public": "coarse", "staff": "coarse"})
    control = first_settings(former) + accepted(2, shop(), {}, at=5)
    assert lines(predict(tape(control, ticks=range(9))), kind="view") == [
        "0.1 view pages/public",
        "0.1 view pages/staff",
        "5.1 view pages/staff",
    ]


def test_edition_that_never_begins_is_taken_back() -> None:
    plan = shop(audiences=ONE_READER)
    changed = shop(audiences=ONE_READER, view={"items_per_user": 2})
    control = first_settings(plan) + accepted(2, changed, {"pages": 40}, at=5)
    control += accepted(3, plan, {"pages": 30}, at=8)
    found = predict(tape(control, ticks=range(10)))
    assert [(one.place.tick_ms // SECOND, one.kind, one.edition) for one in found.records] == [
        (0, "view", 1),
        (5, "view", 1),
        (5, "view", 2),
        (8, "view", 1),
        (8, "view", 3),
        (8, "tombstone", 2),
    ]
