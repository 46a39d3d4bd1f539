"""The stories find what is wrong: an engine that is changed a little does not come through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.config.plan import ViewPlan
from stream_dp.releases import accounts as pricing
from stream_dp.releases import partition_state as definitions
from stream_dp.releases import unlocks
from stream_dp.releases.clearances import Clearances, GrantRow
from stream_dp.releases.expiry import Retention
from stream_dp.releases.partition_state import PartitionState
from stream_dp.releases.unlocks import Leftover
from tests.support.acts import acts, play
from tests.unit.releases.test_engine_stories import check_end, check_now

SEEDS = range(80)
Mutant = Callable[[pytest.MonkeyPatch], None]


def unlocks_too_early(patch: pytest.MonkeyPatch) -> None:
    real = unlocks._Step.due_ms
    patch.setattr(unlocks._Step, "due_ms", lambda self, start: real(self, start) - 5000)


def unlocks_what_was_lowered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clearances, "may_rise", lambda self, view, audience, start, row: not row.refused and bool(row.key_id))


def looks_at_no_end_of_a_scope(patch: pytest.MonkeyPatch) -> None:
    real = GrantRow.starts
    patch.setattr(GrantRow, "starts", lambda self, view: (real(self, view)[0], None))


def takes_retained_windows_for_future_ones(patch: pytest.MonkeyPatch) -> None:
    real = GrantRow.starts
    patch.setattr(
        GrantRow, "starts", lambda self, view: (None, None) if self.scope.windows == "future" else real(self, view)
    )


def lets_the_grant_decide_that_was_written_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GrantRow, "rank", property(lambda self: (self.time_ms, -self.number)))


def carries_out_what_was_withdrawn(patch: pytest.MonkeyPatch) -> None:
    real = Clearances.take
    patch.setattr(Clearances, "take", lambda self, order, now: [] if order.level is None else real(self, order, now))


def leaves_windows_behind_their_panes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clearances, "queue_overlapping", lambda *_: None)


def lets_who_came_later_wait_for_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clearances, "queue_shared", lambda *_: None)


def leaves_out_who_comes_with_a_later_edition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Clearances, "queue_released", lambda *_: None)


def jumps_to_a_definition_to_come(patch: pytest.MonkeyPatch) -> None:
    def stream_ms(self: PartitionState, view: ViewPlan) -> int:
        return definitions.stream_ms((one, self.marks[one.name].next_ms) for one in self._of[view.view])

    patch.setattr(PartitionState, "stream_ms", stream_ms)


def waits_behind_a_definition_that_never_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        PartitionState,
        "_first",
        lambda self, view: max([view.begins_ms, *(self.marks[one.name].next_ms for one in self.earlier(view))]),
    )


def keeps_what_former_definitions_had(patch: pytest.MonkeyPatch) -> None:
    real = PartitionState.advance
    patch.setattr(PartitionState, "advance", lambda self, view, start, **more: _only_own(self, real, view, start, more))


def lets_a_later_definition_begin_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionState, "has_turn", lambda self, view: not self.is_over(view))


def sharpens_by_what_is_left_a_step_late(patch: pytest.MonkeyPatch) -> None:
    real = Leftover._due_ms
    patch.setattr(Leftover, "_due_ms", lambda self, run: real(self, run) + 10_000)


def goes_by_the_newest_edition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ViewPlan, "edition", lambda self, _: self.editions[-1])


def charges_all_of_a_finer_level(patch: pytest.MonkeyPatch) -> None:
    real = pricing.difference
    patch.setattr(pricing, "difference", lambda view, table, _, level: real(view, table, -1, level))


def expires_a_step_early(patch: pytest.MonkeyPatch) -> None:
    real = Retention._horizon
    patch.setattr(Retention, "_horizon", lambda self, view: real(self, view) + 10_000)


def expires_a_step_late(patch: pytest.MonkeyPatch) -> None:
    real = Retention._horizon
    patch.setattr(Retention, "_horizon", lambda self, view: real(self, view) - 10_000)


def _only_own(asked: Any, real: Any, view: ViewPlan, start: int, more: dict[str, bool]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionState, "earlier", lambda *_: iter(()))
        return real(asked, view, start, **more)


MUTANTS = [
    unlocks_too_early,
    unlocks_what_was_lowered,
    looks_at_no_end_of_a_scope,
    takes_retained_windows_for_future_ones,
    lets_the_grant_decide_that_was_written_first,
    carries_out_what_was_withdrawn,
    leaves_windows_behind_their_panes,
    lets_who_came_later_wait_for_a_restart,
    leaves_out_who_comes_with_a_later_edition,
    jumps_to_a_definition_to_come,
    waits_behind_a_definition_that_never_held,
    keeps_what_former_definitions_had,
    lets_a_later_definition_begin_early,
    sharpens_by_what_is_left_a_step_late,
    goes_by_the_newest_edition,
    charges_all_of_a_finer_level,
    expires_a_step_early,
    expires_a_step_late,
]


def is_found(seed: int) -> bool:
    story = acts(seed)
    try:
        check_end(story, *play(story, check=check_now))
    except (AssertionError, KeyError, ValueError):
        return True
    return False


QUICK = (expires_a_step_early,)


@pytest.mark.parametrize(
    "mutant", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow, id=one.__name__) for one in MUTANTS]
)
def test_a_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    assert any(map(is_found, SEEDS))
