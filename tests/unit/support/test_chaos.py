"""The driver of chaos: a schedule is fixed by its seed, and a window that is released too late is found."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.chaos.acts import DEEDS, KINDS
from tests.chaos.liveness import Calm, check_liveness
from tests.chaos.schedule import ROUND_S, Round, chosen, schedule
from tests.support.audit import Report


def rounds(seed: int, workers: tuple[int, int] = (1, 4), count: int = 30) -> list[Round]:
    return list(islice(schedule(KINDS, seed, workers), count))


def test_equal_seeds_give_equal_schedules() -> None:
    assert rounds(5) == rounds(5)
    assert rounds(5) != rounds(6)


def test_a_schedule_has_every_kind_of_act_and_every_number_of_workers_and_its_rounds_end_in_time() -> None:
    found = rounds(1)

    acts = [(place.split()[0], act) for one in found for place, row in one.acts.items() for act in row]
    assert {act.what for _, act in acts} == KINDS.keys() == DEEDS.keys()
    assert all(KINDS[act.what].place == place for place, act in acts)
    assert {one.workers for one in found} == {1, 2, 3, 4}
    assert {one.workers for one in rounds(1, (2, 3))} == {2, 3}
    for one in found:
        workers = [place for place in one.acts if place.startswith("worker")]
        assert workers == [f"worker {at}" for at in range(one.workers)]
        assert all(sum(act.after_s + act.seconds for act in row) <= ROUND_S for row in one.acts.values())


def test_a_run_is_restricted_to_acts_and_groups_that_there_are() -> None:
    assert chosen(KINDS, ["broker", "kill"]).keys() == {"kill the broker", "pause the broker", "kill"}
    assert chosen(KINDS, []) == KINDS
    with pytest.raises(ValueError, match="no act or group is called quake"):
        chosen(KINDS, ["kill", "quake"])


# -- liveness ---------------------------------------------------------------------------------------------------

CALMS = [Calm(100, 170), Calm(200, 205), Calm(300, 380)]
FED = {1: 10.0, 2: 110.0, 3: 190.0, 4: 202.0}
SEEN = {1: 20.0, 2: 130.0, 3: 203.0, 4: 310.0}


def late(seen: dict[int, float], fed: dict[int, float] = FED) -> tuple[list[str], float]:
    report = Report()
    slowest = check_liveness(fed, {"topic": seen}, CALMS, 60, report)
    return [where for kind, where in report.faults if kind == "late"], slowest


def test_releases_within_the_bound_of_a_calm_are_in_time_and_the_slowest_is_told() -> None:
    assert late(SEEN) == ([], 20.0)


@pytest.mark.parametrize(
    ("start", "seen_s", "where"),
    [
        (1, 160.5, "topic/1: after 60 s, in a calm of 70 s"),
        (1, None, "topic/1: never, in a calm of 70 s"),
        (2, 170.5, "topic/2: after 60 s, in a calm of 60 s"),
        (3, 361.0, "topic/3: after 61 s, in a calm of 80 s"),
        (4, None, "topic/4: never, in a calm of 80 s"),
    ],
)
def test_a_window_that_was_left_in_peace_for_longer_than_the_bound_is_late(
    start: int, seen_s: float | None, where: str
) -> None:
    seen = {**SEEN, start: seen_s} if seen_s is not None else {one: at for one, at in SEEN.items() if one != start}

    assert late({one: at for one, at in seen.items() if at is not None})[0] == [where]


@pytest.mark.parametrize(("start", "seen_s"), [(1, 160.0), (2, 170.0), (3, 250.0), (3, 360.0)])
def test_time_in_which_something_happened_does_not_make_a_window_late(start: int, seen_s: float) -> None:
    assert late({**SEEN, start: seen_s})[0] == []
