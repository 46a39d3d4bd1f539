"""Random interleavings and crashes against a model that only remembers what really happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.accounting import Cost, Ledger, Overdraft, cancel, commit, decode, encode, forfeit, reserve
from stream_dp.errors import StateError
from tests.support.chosen import examples

BUDGET = Cost(Fraction(2), Fraction("1e-6"), Fraction(4))
CALLS = st.sampled_from(["a", "b", "c", "d"])
AMOUNTS = st.sampled_from([Fraction(0), *(Fraction(n, d) for d in (3, 7, 10) for n in range(8))])
COSTS = st.builds(Cost, AMOUNTS, st.sampled_from([Fraction(0), Fraction(3, 10**7)]), AMOUNTS)
STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "commit", "forfeit", "cancel"]), CALLS, COSTS), min_size=10, max_size=60
)


def total(costs: list[Cost]) -> Cost:
    return sum(costs, start=Cost.ZERO)


def fits(cost: Cost, room: Cost) -> bool:
    return all(getattr(cost, name) <= getattr(room, name) for name in ("epsilon", "delta", "rho"))


def stored(ledger: Ledger) -> Ledger:
    """A ledger read back from its row."""
    return decode(encode(ledger))


@examples(50, 200, given(STEPS), derandomize=True)
def test_no_interleaving_overspends_or_forgets_a_charge(steps: list[tuple[str, str, Cost]]) -> None:
    ledger, charged, open_calls = Ledger(BUDGET), list[Cost](), dict[str, Cost]()
    for step, call, cost in steps:
        before = ledger
        try:
            if step == "reserve":
                outcome = reserve(ledger, call, cost)
                taken = total(charged) + total(list(open_calls.values()))
                if isinstance(outcome, Overdraft):
                    assert not fits(cost + taken, BUDGET)
                    assert outcome.left + taken == BUDGET
                else:
                    assert call in open_calls or fits(cost + taken, BUDGET)
                    ledger, open_calls[call] = outcome, cost
            elif step == "commit":
                ledger = commit(ledger, call, cost, {"staff": cost}, view="pages")
                assert fits(cost, open_calls.pop(call))
                charged.append(cost)
            elif step == "forfeit":
                ledger = forfeit(ledger, call, view="pages")
                charged.append(open_calls.pop(call))
            else:
                ledger = cancel(ledger, call)
                del open_calls[call]
        except StateError:
            held = open_calls.get(call)
            assert held is None if step in ("forfeit", "cancel") else held != cost
            if step == "commit" and held is not None:
                assert cost.delta != held.delta or not fits(cost, held)
            assert ledger is before
        assert ledger.spent == total(charged) == total(list(ledger.views.values()))
        assert dict(ledger.reserved) == open_calls
        assert ledger.left + total(charged) + total(list(open_calls.values())) == BUDGET
        assert stored(ledger) == ledger


@dataclass
class Worker:
    """A worker and its disk: `durable` and `outputs` survive a crash, the rest does not."""

    durable: bytes = field(default_factory=lambda: encode(Ledger(BUDGET)))
    outputs: dict[str, Cost] = field(default_factory=dict)
    drawn: list[Cost] = field(default_factory=list)  # what the world may have seen: every draw ever made

    def release_window(self, call: str, worst: Cost, came_to: Cost, crash_after: int) -> None:
        """Run one call, stopping dead after `crash_after` of its steps."""
        steps: list[Callable[[], bool]] = [
            lambda: self._reserve(call, worst),
            lambda: self._draw(came_to),
            lambda: self._store(call, came_to),
        ]
        for step in steps[:crash_after]:
            if not step():
                return

    def _reserve(self, call: str, worst: Cost) -> bool:
        outcome = reserve(self.ledger, call, worst)
        if isinstance(outcome, Overdraft):
            return False
        self.durable = encode(outcome)
        return True

    @property
    def ledger(self) -> Ledger:
        return decode(self.durable)

    def _draw(self, came_to: Cost) -> bool:
        self.drawn.append(came_to)
        return True

    def _store(self, call: str, came_to: Cost) -> bool:
        self.outputs[call] = came_to
        self.durable = encode(commit(self.ledger, call, came_to, {}, view="pages"))
        return True

    def recover(self, settle: Callable[[Ledger, str], Ledger]) -> None:
        for call in list(self.ledger.reserved):
            assert call not in self.outputs
            self.durable = encode(settle(self.ledger, call))


def charge(ledger: Ledger, call: str) -> Ledger:
    return forfeit(ledger, call, view="pages")


def run(windows: list[tuple[Cost, Fraction, int, bool]], settle: Callable[[Ledger, str], Ledger]) -> None:
    """Every window may crash between any two steps; some recoveries come only after further windows."""
    worker = Worker()
    for index, (worst, share, crash_after, recovers) in enumerate(windows):
        came_to = Cost(worst.epsilon * share, worst.delta, worst.rho * share)
        worker.release_window(f"window {index}", worst, came_to, crash_after)
        if recovers:
            worker.recover(settle)
        ledger = worker.ledger
        covered = ledger.spent + total(list(ledger.reserved.values()))
        assert fits(total(worker.drawn), covered), "something was drawn that nobody paid for"
        assert fits(covered, BUDGET)
        assert fits(total(list(worker.outputs.values())), ledger.spent)


WINDOWS = st.lists(
    st.tuples(COSTS, st.sampled_from([Fraction(1, 4), Fraction(1)]), st.integers(0, 3), st.booleans()), max_size=25
)


@examples(40, 150, given(WINDOWS), derandomize=True)
def test_a_crash_between_any_two_steps_never_undercharges(windows: list[tuple[Cost, Fraction, int, bool]]) -> None:
    run(windows, charge)


def test_a_recovery_that_returns_open_reservations_is_caught() -> None:
    window = (Cost(Fraction(1), Fraction(0)), Fraction(1), 2, True)
    run([window], charge)
    with pytest.raises(AssertionError, match="nobody paid"):
        run([window], cancel)
