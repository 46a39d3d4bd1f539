"""The simulator against examples that were worked out by hand, paragraph by paragraph (sections 2 to 4, 6 and 8).

"Issue" marks a public decision that once followed from data or timing. Limits that users share (large batches, schema
numbers, the sample of a first start) decide what a record contributes, so they are not in a transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.transcript.simulator import simulate
from tests.transcript.tapes import (
    SECOND,
    accepted,
    first_settings,
    lines,
    predict,
    shop,
    tape,
)
from tests.transcript.transcript import (
    Control,
    DeclaredLoss,
    Gap,
    Grant,
    LossAccepted,
    Scope,
    Settings,
    Tick,
    TranscriptError,
    Verdict,
    Watermark,
    Withdrawal,
)

ONE_READER = {"public": "coarse"}
EVENT = {"window": {"clock": "event", "idle": "1h", "max_ahead": "10s"}}


def budget(epsilon: str) -> dict[str, str]:
    return {"epsilon": epsilon}


# Section 2: ticks


def test_window_is_decided_at_the_first_tick_after_its_grace() -> None:
    found = predict(tape(first_settings(shop()), ticks=[0, 4, 8, 11, 15, 20, 25]))
    assert lines(found) == [
        "15.2 release pages/public 0 coarse r1",
        "15.2 release pages/staff 0 fine r1",
        "25.2 release pages/public 10 coarse r1",
        "25.2 release pages/staff 10 fine r1",
    ]
    assert [record.slot_ms for record in found.of_topic("pages", "public")] == [2000, 17000, 27000]


def test_only_rising_ticks_count() -> None:
    """A tick that does not rise changes nothing, and neither does its part below a second."""
    transcript = tape(first_settings(shop()), ticks=[0, 5, 10, 13, 18])
    events = transcript.partitions[0]
    about = frozenset({"visits"})
    odd = (*events[:3], Tick(4000, 9, about), Tick(13_999, 2, about), Tick(13_000, 2, about), *events[4:])
    assert predict(replace(transcript, partitions={**transcript.partitions, 0: odd})) == predict(transcript)


# Section 2: control records


def test_settings_take_effect_at_the_tick_that_knows_their_acceptance() -> None:
    """The place of the settings themselves does not matter."""
    plan = shop(audiences=ONE_READER)
    control: list[tuple[int, Control]] = [(0, Settings(1, plan, {"pages": 0})), (25, Verdict(1, accepted=True))]
    assert lines(predict(tape(control, ticks=range(36)))) == [
        "25.2 release pages/public 0 coarse r1",
        "25.2 release pages/public 10 coarse r1",
        "32.2 release pages/public 20 coarse r1",
    ]


def test_refused_settings_do_nothing() -> None:
    other = shop(audiences=ONE_READER)
    refused: list[tuple[int, Control]] = [(5, Settings(2, other, {"pages": 20})), (6, Verdict(2, accepted=False))]
    control = first_settings(shop())
    assert predict(tape(control + refused)).records == predict(tape(control)).records


def test_lead_below_ten_seconds_cannot_be_accepted() -> None:
    changed = shop(view={"items_per_user": 2})
    control = first_settings(shop()) + accepted(2, changed, {"pages": 20}, at=11)
    with pytest.raises(TranscriptError, match="10 s"):
        predict(tape(control))


def test_changed_view_counts_again_from_its_boundary() -> None:
    changed = shop(view={"items_per_user": 2}, audiences=ONE_READER)
    control = first_settings(shop(audiences=ONE_READER)) + accepted(2, changed, {"pages": 20}, at=5)
    found = predict(tape(control, ticks=range(33)))
    assert [(one.start_ms, one.edition) for one in found.records if one.kind == "release"] == [
        (0, 1),
        (10_000, 1),
        (20_000, 2),
    ]


def test_window_is_lost_where_a_counter_learned_of_its_view_too_late() -> None:
    """A partition whose ticks know the settings at 21 did not count before; the next window is complete."""
    plan = shop(view={}, audiences=ONE_READER)
    both = shop(views={"pages": {}, "added": {}}, audiences=ONE_READER)
    control = first_settings(plan) + accepted(2, both, {"added": 20}, at=5)
    late = [*range(5), *range(21, 43)]
    found = predict(tape(control, ticks={0: range(43), 1: late}))
    assert lines(found, view="added") == [
        "32.2 refusal added/public 20 lost",
        "42.2 release added/public 30 coarse r1",
    ]


def test_view_added_to_a_counted_source_is_complete_after_the_tick() -> None:
    """Whether anyone sent a record is not in the transcript, so it cannot matter."""
    both = shop(views={"pages": {}, "added": {}}, audiences=ONE_READER)
    control = first_settings(shop(audiences=ONE_READER)) + accepted(2, both, {"added": 10}, at=10)
    assert lines(predict(tape(control, ticks=range(33))), view="added") == [
        "22.2 refusal added/public 10 lost",
        "32.2 release added/public 20 coarse r1",
    ]


def test_returning_definition_counts_again_what_it_had_lost() -> None:
    """Settings 3 take back what settings 2 would have changed from 40 on. Partition 1 learns of it at 41."""
    plan = shop(audiences=ONE_READER)
    other = shop(audiences=ONE_READER, view={"items_per_user": 2})
    control = first_settings(plan) + accepted(2, other, {"pages": 40}, at=5) + accepted(3, plan, {"pages": 30}, at=15)
    found = predict(tape(control, ticks={0: range(99), 1: [*range(15), *range(41, 99)]}))
    assert [line.split()[1] for line in lines(found)[3:6]] == ["release", "refusal", "release"]


def test_source_that_is_new_is_counted_from_the_start_of_its_log() -> None:
    sources = {name: {"topic": name, "partitions": 2} for name in ("visits", "orders")}
    one = shop(audiences=ONE_READER, sources=sources)
    both = shop(views={"pages": {}, "added": {"source": "orders"}}, audiences=ONE_READER, sources=sources)
    control = first_settings(one) + accepted(2, both, {"added": 0}, at=15)
    found = predict(tape(control, ticks=range(23), sources=sources))
    assert lines(found, view="added") == [
        "15.2 release added/public 0 coarse r1",
        "22.2 release added/public 10 coarse r1",
    ]


def test_tick_without_the_source_closes_nothing_there() -> None:
    """A partition without a leader moves the closing, so the slot, and not the place in the order."""
    found = predict(
        tape(
            first_settings(shop(audiences=ONE_READER)),
            ticks=range(20),
            silent={(1, second): {"visits"} for second in range(11, 15)},
        )
    )
    assert lines(found) == ["12.2 release pages/public 0 coarse r1"]
    assert found.records[-1].slot_ms == 17_000


# Section 2: lists


def listed() -> list[str | None]:
    plan = shop(view={"catalogue": {"topic": "keys"}}, audiences=ONE_READER)
    versions = [(0, "old"), (22, "new"), (23, "newest")]
    found = predict(tape(first_settings(plan), ticks=range(34), lists={"keys": versions}))
    return [record.list_version for record in found.records if record.kind == "release"]


def test_window_uses_the_list_of_the_latest_tick_up_to_its_own() -> None:
    assert listed() == ["keys=old", "keys=new", "keys=newest"]


def test_list_of_releases_needs_a_slot_strictly_before_the_tick() -> None:
    """The release of 0 to 10 has slot 14. A window whose tick is 14 does not use it, one at 15 does."""
    for grace, expected in (("4s", 1), ("5s", 2)):
        reading = {"catalogue": {"from": "found", "audience": "public"}, "window": {"grace": grace}}
        plan = shop(views={"found": {}, "pages": reading}, audiences=ONE_READER)
        found = predict(tape(first_settings(plan), ticks=range(16)))
        release = next(one for one in found.records if one.kind == "release" and one.view == "pages")
        assert release.list_version == f"shop.releases.found.public#{expected}"


# Section 3: order


def test_views_that_end_together_are_charged_by_name() -> None:
    """Issue: with 5 keys in a window the first view was refused, with 20,000 keys the other one."""
    for names in (["first", "second"], ["second", "first"]):
        views = {name: {"window": {"size": "20s", "step": "10s"}} for name in names}
        plan = shop(views=views, audiences=ONE_READER, ledger={"epsilon": "3", "period": "40s"})
        found = predict(tape(first_settings(plan), ticks=range(43)))
        assert lines(found) == [
            "22.2 release first/public 0 coarse r1",
            "22.2 release second/public 0 coarse r1",
            "32.2 release first/public 10 coarse r1",
            "32.2 refusal second/public 10 budget",
            "42.2 refusal first/public 20 budget",
            "42.2 refusal second/public 20 budget",
        ]


def test_windows_of_one_tick_are_ordered_by_end_then_start() -> None:
    views = {"a": {}, "b": {"window": {"size": "20s"}}, "c": {"window": {"size": "5s"}}}
    plan = shop(views=views, audiences=ONE_READER)
    found = predict(tape(first_settings(plan), ticks=[0, *range(22, 60)]))
    at_once = [line for line in lines(found) if line.startswith("22.2")]
    assert [line.split()[2:4] for line in at_once] == [
        ["c/public", "0"],
        ["a/public", "0"],
        ["c/public", "5"],
        ["c/public", "10"],
        ["b/public", "0"],
        ["a/public", "10"],
        ["c/public", "15"],
    ]


def test_running_figures_follow_the_order() -> None:
    """Issue: `privacy.period` was written in the order of arrival."""
    plan = shop(views={"b": {}, "a": {}})
    entries = predict(tape(first_settings(plan), ticks=range(23))).entries
    assert [(one.view, one.start_ms // SECOND, int(one.spent.epsilon)) for one in entries] == [
        ("a", 0, 3),
        ("b", 0, 6),
        ("a", 10, 9),
        ("b", 10, 12),
    ]


def test_numbers_rise_in_each_topic_and_slots_never_fall() -> None:
    found = predict(tape(first_settings(shop())))
    for audience in ("public", "staff"):
        records = found.of_topic("pages", audience)
        assert [record.number for record in records] == list(range(1, len(records) + 1))
        assert [record.slot_ms for record in records] == sorted(record.slot_ms for record in records)


@pytest.mark.parametrize("times", [(14, 20, 26), (26, 20, 14), (20, 26, 14)])
def test_closing_is_the_latest_over_source_partitions(times: tuple[int, int, int]) -> None:
    """Issue: closing times of 14, 20 and 26 gave any of them, by the order of arrival."""
    sources = {"visits": {"topic": "visits", "partitions": 3}}
    plan = shop(audiences=ONE_READER, sources=sources, view={"window": {"grace": "40s"}})
    ticks = {number: [0, 20, 40, 48, 40 + time, 80] for number, time in enumerate(times)}
    found = predict(tape(first_settings(plan), ticks=ticks))
    release = next(one for one in found.records if one.kind == "release")
    assert release.place.tick_ms == (40 + times[0]) * SECOND
    assert release.slot_ms == 68 * SECOND


def test_offset_of_zero_moves_slots_only() -> None:
    plans = [shop(audiences=ONE_READER, release={"offset": offset}) for offset in ("0s", "2s")]
    bare, usual = (predict(tape(first_settings(plan), ticks=range(23))).records for plan in plans)
    assert [one.slot_ms + 2 * SECOND for one in bare] == [one.slot_ms for one in usual]
    assert [replace(one, slot_ms=0) for one in bare] == [replace(one, slot_ms=0) for one in usual]


# Section 3: grants


def grant_at(second: int, scope: Scope) -> list[str]:
    control = [*first_settings(shop(audiences=ONE_READER)), (second, Grant("g", "public", "fine", scope=scope))]
    return lines(predict(tape(control, ticks=range(24))))


def test_future_grant_covers_windows_decided_at_its_tick() -> None:
    """Issue: a window that was being computed got `coarse` with 5 keys and `fine` with 400,000."""
    assert grant_at(12, "future") == ["12.2 release pages/public 0 fine r1", "22.2 release pages/public 10 fine r1"]
    assert grant_at(13, "future") == ["12.2 release pages/public 0 coarse r1", "22.2 release pages/public 10 fine r1"]


def test_retained_grant_covers_windows_decided_before_its_tick() -> None:
    assert grant_at(12, "retained") == [
        "12.2 release pages/public 0 coarse r1",
        "22.2 release pages/public 10 coarse r1",
    ]
    assert grant_at(13, "retained") == [
        "12.2 release pages/public 0 coarse r1",
        "13.1 release pages/public 0 fine r2",
        "22.2 release pages/public 10 coarse r1",
    ]


def test_newest_grant_decides() -> None:
    """Grants rank by the tick that carries them out, then by offset: `at` delays the first one."""
    late = Grant("late", "public", "fine", at_ms=9 * SECOND)
    control = first_settings(shop(audiences=ONE_READER))
    control += [(3, late), (4, Grant("early", "public", "coarse", scope="future"))]
    assert lines(predict(tape(control, ticks=range(13)))) == ["12.2 release pages/public 0 fine r1"]


def test_withdrawn_grant_is_not_carried_out() -> None:
    grant = Grant("g", "public", "fine", at_ms=9 * SECOND)
    control = [*first_settings(shop(audiences=ONE_READER)), (3, grant)]
    for second, level in ((9, "coarse"), (10, "fine")):
        withdrawn = [*control, (second, Withdrawal("g"))]
        assert lines(predict(tape(withdrawn, ticks=range(13)))) == [f"12.2 release pages/public 0 {level} r1"]


def test_open_grants_are_paid_by_offset_not_by_audience() -> None:
    """Issue: a restart between two open grants swapped which audience was refused."""
    readers = {"left": "coarse", "right": "coarse"}
    plan = shop(audiences=readers, ledger={"epsilon": "4", "period": "20s"})
    older = Grant("l", "left", "fine", until_ms=10_000)
    newer = Grant("r", "right", "fine", from_ms=10_000)
    control = first_settings(plan)
    assert lines(predict(tape([*control, (23, older), (23, newer)], ticks=range(24))))[4:] == [
        "23.1 release pages/left 0 fine r2",
        "23.1 refusal pages/right 10 budget",
    ]
    assert lines(predict(tape([*control, (23, newer), (23, older)], ticks=range(24))))[4:] == [
        "23.1 release pages/right 10 fine r2",
        "23.1 refusal pages/left 0 budget",
    ]


def test_what_became_free_follows_directly() -> None:
    """A grant for staff pays for a level that a guest has by right and could not be given unasked."""
    guests = shop(audiences={"public": "coarse", "guest": "fine"})
    control = first_settings(shop(audiences=ONE_READER))
    control += accepted(2, guests, {}, at=13)
    control += [(15, Grant("g", "public", "fine", scope="retained"))]
    assert lines(predict(tape(control, ticks=range(17)))) == [
        "12.2 release pages/public 0 coarse r1",
        "15.1 release pages/public 0 fine r2",
        "15.1 release pages/guest 0 fine r1",
    ]


def test_audiences_that_came_later_get_what_is_free() -> None:
    """The order is by audience, then by window, whatever the order in the file."""
    guests = ["zoe", "max", "eva", "ben"]
    added = shop(audiences={"public": "coarse", **dict.fromkeys(guests, "coarse")})
    control = first_settings(shop(audiences=ONE_READER)) + accepted(2, added, {}, at=23)
    assert lines(predict(tape(control, ticks=range(24))))[2:] == [
        f"23.1 release pages/{name} {start} coarse r1" for name in sorted(guests) for start in (0, 10)
    ]


# Section 3: lowerings


def revoked(second: int) -> list[str]:
    plan = shop(audiences=ONE_READER, release={"slot": "5s", "offset": "2s"})
    control = [*first_settings(plan), (second, Grant("stop", "public", "none"))]
    return lines(predict(tape(control, ticks=range(20))))


def test_revocation_voids_by_planned_slot_alone() -> None:
    """Issue: a revocation erased a late release and left one on time. The slot of 12 is 15, and 13 + 2 voids it."""
    assert revoked(13) == ["12.2 release pages/public 0 coarse r1 void"]
    assert revoked(14) == ["12.2 release pages/public 0 coarse r1"]


def test_revocation_stops_later_windows_without_a_trace() -> None:
    control = [*first_settings(shop()), (5, Grant("stop", "public", "none"))]
    found = predict(tape(control, ticks=range(14)))
    assert lines(found) == ["12.2 release pages/staff 0 fine r1"]


def test_window_that_nobody_may_see_costs_nothing() -> None:
    control = [*first_settings(shop(audiences=ONE_READER)), (5, Grant("stop", "public", "none"))]
    control += [(14, Grant("more", "public", "fine"))]
    found = predict(tape(control, ticks=range(24)))
    assert lines(found) == ["22.2 release pages/public 10 fine r1"]
    assert [one.start_ms for one in found.entries] == [10_000]


def test_removed_audience_gets_nothing_with_a_later_slot() -> None:
    release = {"slot": "5s", "offset": "2s"}
    less = shop(audiences=ONE_READER, release=release)
    control = first_settings(shop(release=release)) + accepted(2, less, {}, at=13)
    found = predict(tape(control, ticks=range(15)))
    assert lines(found) == ["12.2 release pages/public 0 coarse r1", "12.2 release pages/staff 0 fine r1 void"]


# Section 3: unlocks, leftovers, expiry

UNLOCKING = {"public": {"level": "coarse", "unlock": [{"level": "fine", "after": "6s"}]}}


def test_unlock_comes_at_the_first_tick_at_its_time() -> None:
    found = predict(tape(first_settings(shop(audiences=UNLOCKING)), ticks=range(18)))
    assert lines(found) == ["12.2 release pages/public 0 coarse r1", "16.3 release pages/public 0 fine r2"]
    assert [one.charge.epsilon for one in found.entries] == [1, 2]


def test_unlocks_are_ordered_by_time_view_and_audience() -> None:
    early = {"level": "coarse", "unlock": [{"level": "fine", "after": "5s"}]}
    late = {"level": "coarse", "unlock": [{"level": "fine", "after": "6s"}]}
    plan = shop(audiences={"b": late, "c": early, "a": late}, views={"second": {}, "first": {}})
    found = lines(predict(tape(first_settings(plan), ticks=[*range(13), 17])))
    assert [line.split()[:3] for line in found[6:]] == [
        ["17.3", "release", "first/c"],
        ["17.3", "release", "second/c"],
        ["17.3", "release", "first/a"],
        ["17.3", "release", "first/b"],
        ["17.3", "release", "second/a"],
        ["17.3", "release", "second/b"],
    ]


def test_unlock_never_comes_before_its_window() -> None:
    plan = shop(audiences=UNLOCKING, view={"window": {"grace": "9s"}})
    assert lines(predict(tape(first_settings(plan), ticks=range(21)))) == [
        "19.2 release pages/public 0 coarse r1",
        "19.3 release pages/public 0 fine r2",
    ]


def test_unlock_that_settings_bring_is_due_at_once() -> None:
    control = first_settings(shop(audiences=ONE_READER)) + accepted(2, shop(audiences=UNLOCKING), {}, at=18)
    assert lines(predict(tape(control, ticks=range(19)))) == [
        "12.2 release pages/public 0 coarse r1",
        "18.3 release pages/public 0 fine r2",
    ]


def test_unlock_by_watermark_follows_the_window_that_reaches_its_time() -> None:
    plan = shop(audiences=UNLOCKING, view=EVENT)
    placed = {number: [(5, Watermark("visits", 13_000)), (7, Watermark("visits", 25_000))] for number in (0, 1)}
    assert lines(predict(tape(first_settings(plan), ticks=range(30, 40)))) == []
    placed = {number: [(35, Watermark("visits", 13_000)), (37, Watermark("visits", 25_000))] for number in (0, 1)}
    assert lines(predict(tape(first_settings(plan), ticks=range(30, 40), placed=placed))) == [
        "35.2 release pages/public 0 coarse r1",
        "37.2 release pages/public 10 coarse r1",
        "37.2 release pages/public 0 fine r2",
    ]


def sharpening(grace: str, ticks: Sequence[int], epsilon: str = "100", every: str = "12s") -> list[str]:
    view = {"sharpen": {"audience": "public", "level": "fine", "every": every}, "window": {"grace": grace}}
    plan = shop(view=view, audiences=ONE_READER, ledger=budget(epsilon))
    return lines(predict(tape(first_settings(plan), ticks=ticks)))


def test_leftovers_at_a_grid_time_cover_windows_decided_at_that_tick() -> None:
    """Issue: the window that had just ended was or was not among the sharpened, by arrival."""
    assert sharpening("2s", range(13)) == [
        "12.2 release pages/public 0 coarse r1",
        "12.4 release pages/public 0 fine r2",
    ]
    assert sharpening("3s", range(14)) == ["13.2 release pages/public 0 coarse r1"]


def test_leftovers_take_the_newest_first_until_one_does_not_fit() -> None:
    """Six windows need 6 of 10 a minute; the rest pays for two steps of 2, the newest windows first."""
    assert sharpening("2s", range(37), epsilon="10", every="36s")[-2:] == [
        "36.4 release pages/public 20 fine r2",
        "36.4 release pages/public 10 fine r2",
    ]


def test_leftovers_of_several_times_are_one_run() -> None:
    skipped = sharpening("2s", [0, *range(36, 70)])
    assert [line for line in skipped if line.startswith("36.4")] == [
        f"36.4 release pages/public {start} fine r2" for start in (20, 10, 0)
    ]


def test_window_expires_with_the_first_that_starts_beyond_its_retention() -> None:
    """The window of 0 to 10 is kept for 20 s: the one that starts at 30 is not beyond that, the one at 40 is."""
    plan = shop(audiences=ONE_READER, view={"retention": "20s"})
    found = predict(tape(first_settings(plan), ticks=range(65)))
    assert lines(found, kind="tombstone") == ["52.5 tombstone pages/public 0", "62.5 tombstone pages/public 10"]


def test_newest_published_window_never_expires() -> None:
    plan = shop(audiences=ONE_READER, view={"retention": "15s"})
    control = [*first_settings(plan), (13, Grant("stop", "public", "none", scope="future"))]
    assert lines(predict(tape(control, ticks=range(60))), kind="tombstone") == []


def test_windows_of_a_removed_view_expire_when_another_would_have_ended() -> None:
    views = {"gone": {"retention": "15s"}, "pages": {}}
    both = shop(views=views, audiences=ONE_READER)
    control = first_settings(both) + accepted(2, shop(audiences=ONE_READER), {}, at=5, gone=20)
    assert lines(predict(tape(control, ticks=range(80))), kind="tombstone") == ["40.5 tombstone gone/public 0"]


# Section 3: periods


def test_period_has_the_budget_of_its_first_charge() -> None:
    """Issue: a changed budget was in effect in the running period or not, by computing time."""
    small = shop(audiences=ONE_READER, ledger=budget("6"))
    large = shop(audiences=ONE_READER)
    for second, caps in ((12, 100), (13, 6)):
        control = first_settings(small) + accepted(2, large, {}, at=second)
        entries = predict(tape(control, ticks=range(80))).entries
        assert [one.budget.epsilon for one in entries] == [caps] * 6 + [100]


def test_lost_window_begins_no_period() -> None:
    small = shop(audiences=ONE_READER, ledger=budget("6"))
    control = first_settings(small) + accepted(2, shop(audiences=ONE_READER), {}, at=15)
    placed = {0: [(11, LossAccepted(("pages",), 0, 10_000))]}
    found = predict(tape(control, ticks=range(24), placed=placed))
    assert lines(found) == ["12.2 refusal pages/public 0 lost", "22.2 release pages/public 10 coarse r1"]
    assert [one.budget.epsilon for one in found.entries] == [100]


# Section 4 and 6: what is lost, and where a prediction ends


def test_ledger_stops_where_a_source_partition_ends() -> None:
    found = predict(tape(first_settings(shop(audiences=ONE_READER)), ticks={0: range(40), 1: range(20)}))
    assert lines(found) == [
        "12.2 release pages/public 0 coarse r1",
    ]
    assert found.until_ms == 22_000


def test_idle_watermark_view_holds_up_nothing() -> None:
    plan = shop(views={"pages": {}, "slow": EVENT}, audiences=ONE_READER)
    found = predict(tape(first_settings(plan), ticks=range(23)))
    assert lines(found) == ["12.2 release pages/public 0 coarse r1", "22.2 release pages/public 10 coarse r1"]


def test_gap_loses_what_a_record_between_its_ticks_could_have_been_in() -> None:
    """A window that is closed at the tick before is whole, and so is one that starts beyond `max_ahead`."""
    plan = shop(audiences=ONE_READER, view={"window": {"max_ahead": "10s"}})
    found = predict(tape(first_settings(plan), ticks=range(60), placed={1: [(13, Gap("visits"))]}))
    assert [line for line in lines(found) if "lost" in line] == [
        "22.2 refusal pages/public 10 lost",
        "32.2 refusal pages/public 20 lost",
    ]


def test_declared_loss_frees_the_ledger() -> None:
    """Partition 1 has no leader from 5 on. The declaration is known at 30, and is about windows over by 25."""
    plan = shop(audiences=ONE_READER)
    control = [*first_settings(plan), (30, DeclaredLoss("visits", 1, 25_000))]
    silent = {(1, second): {"visits"} for second in range(5, 40)}
    found = predict(tape(control, ticks=range(40), silent=silent))
    assert lines(found) == ["12.2 refusal pages/public 0 lost", "22.2 refusal pages/public 10 lost"]
    assert [record.slot_ms for record in found.records if record.kind == "refusal"] == [32_000, 32_000]
    assert found.until_ms == 32_000


def test_simulation_is_a_function_of_the_transcript() -> None:
    transcript = tape(first_settings(shop()))
    assert simulate(transcript) == simulate(transcript)
