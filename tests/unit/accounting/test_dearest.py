"""The dearest windows of a user: against every choice of windows, and as a filter against readers and users."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import reduce
from itertools import combinations, product

import pytest

from stream_dp.accounting import Cost, Dearest, Ledger, commit, decode, encode, reserve

NOTHING = Cost.ZERO


def cost(epsilon: int, delta: int = 0, rho: int = 0) -> Cost:
    return Cost(Fraction(epsilon), Fraction(delta, 1000), Fraction(rho))


def worst(charges: Sequence[Cost], most: int) -> Cost:
    """The most that some choice of `most` windows comes to, entry by entry."""
    chosen = (sum(some, NOTHING) for n in range(most + 1) for some in combinations(charges, n))
    return reduce(Cost.most, chosen, NOTHING)


def random_cost(chance: random.Random) -> Cost:
    return cost(*(chance.choice([0, 0, 1, 1, 2, 5]) for _ in range(3)))


@pytest.mark.parametrize("most", [1, 2, 9])
def test_the_total_is_that_of_the_worst_choice_of_windows_behind_every_step(most: int) -> None:
    """Windows are released, and sharpened, in any order; also those that were none of the dearest."""
    chance = random.Random(most)
    for _ in range(30):
        charges: dict[int, Cost] = {}
        dearest = Dearest(most)
        for _ in range(12):
            window, more = chance.randrange(7), random_cost(chance)
            dearest = dearest.raised(charges.get(window, NOTHING), more)
            charges[window] = charges.get(window, NOTHING) + more
            assert dearest.total == worst([*charges.values()], most)
            further, number = random_cost(chance), chance.randrange(4)
            assert dearest.with_windows(further, number).total == worst([*charges.values()] + [further] * number, most)


def test_a_window_whose_former_charge_is_not_there_is_charged_anew() -> None:
    one = Dearest(2).raised(NOTHING, cost(3))
    assert one.raised(cost(2), cost(1)).total == cost(3 + 3)
    full = one.raised(NOTHING, cost(1))
    assert full.raised(cost(2), cost(1)).total == cost(3 + 3)
    assert full.raised(cost(1), cost(1)).total == cost(5)
    assert full.raised(NOTHING, cost(1)).raised(cost(1), cost(1)).total == cost(5)


def charged(ledger: Ledger, dearest: Dearest, before: Cost, more: Cost) -> Ledger | None:
    """A ledger once a window costs more; None where that is not admitted."""
    raised = dearest.raised(before, more)
    added = raised.total - dearest.total
    reserved = reserve(ledger, "call", added)
    if not isinstance(reserved, Ledger):
        return None
    return commit(reserved, "call", added, {}, view="pages", dearest={"pages": raised})


def test_a_budget_of_two_windows_admits_any_number_of_them_and_none_that_is_dearer() -> None:
    ledger = Ledger(cost(4, 2))
    for _ in range(1000):
        after = charged(ledger, ledger.dearest.get("pages", Dearest(2)), NOTHING, cost(2, 1))
        assert after is not None
        ledger = after
    assert (ledger.spent, ledger.left) == (cost(4, 2), NOTHING)
    assert charged(ledger, ledger.dearest["pages"], NOTHING, cost(3, 1)) is None
    assert charged(ledger, ledger.dearest["pages"], cost(2, 1), cost(1)) is None
    assert charged(ledger, ledger.dearest["pages"], NOTHING, cost(2)) is not None
    assert decode(encode(ledger)) == ledger


# -- a filter on the dearest windows ----------------------------------------------------------------------------------
# A window answers with a fair bit; if the user is in it, 0 comes 2^level times as rarely. So a window costs a user who
# is in it ln 2 times its level, and others nothing. Readers ask for levels by what they saw, users enter by what they
# saw, and the ledger admits what its windows cost a user who is in `most` of them.

WINDOWS = 3
Seen = tuple[int, ...]
Reader = Callable[[Seen], int]
"""What was seen to the level that is asked for."""
Filter = Callable[[Sequence[int], int], bool]
"""(levels that were charged, the level that is asked for) to whether it is admitted."""


def dearest_of(budget: int, most: int) -> Filter:
    def admits(charged: Sequence[int], level: int) -> bool:
        dearest = reduce(lambda one, level: one.raised(NOTHING, cost(level)), [*charged, level], Dearest(most))
        return dearest.total <= cost(budget)

    return admits


def chances(level: int, *, is_in: bool) -> tuple[Fraction, Fraction]:
    """Of the bits 0 and 1."""
    low = Fraction(1, 2 ** (level + 1)) if is_in else Fraction(1, 2)
    return low, 1 - low


def trees(values: Sequence[int]) -> Iterator[Callable[[Seen], int]]:
    """Every function of what was seen before each of the windows."""
    nodes = [seen for n in range(WINDOWS) for seen in product((0, 1), repeat=n)]
    for chosen in product(values, repeat=len(nodes)):
        yield dict(zip(nodes, chosen, strict=True)).__getitem__


def odds(ask: Reader, enters: Callable[[Seen], int], admits: Filter, most: int) -> Fraction:
    """The largest ratio between the chances of all that is seen, with and without a user who enters as they like."""
    largest = Fraction(1)
    for seen in product((0, 1), repeat=WINDOWS):
        ratio, charged, entered = Fraction(1), list[int](), 0
        for at in range(WINDOWS):
            level = ask(seen[:at])
            is_in = bool(enters(seen[:at])) and entered < most
            entered += is_in
            if not admits(charged, level):
                continue
            charged.append(level)
            ratio *= chances(level, is_in=is_in)[seen[at]] / chances(level, is_in=False)[seen[at]]
        largest = max(largest, ratio, 1 / ratio)
    return largest


def worst_odds(admits: Filter, most: int) -> Fraction:
    readers, users = [*trees((1, 2))], [*trees((0, 1))]
    chance = random.Random(1)
    some = [(chance.choice(readers), chance.choice(users)) for _ in range(200)]
    steady = [(lambda _seen, level=level: level, user) for level in (1, 2) for user in users]
    return max(odds(reader, user, admits, most) for reader, user in [*some, *steady])


@pytest.mark.parametrize(("budget", "most"), [(2, 1), (3, 2), (2, 2), (5, 3)])
def test_whatever_readers_and_users_do_the_loss_stays_within_the_budget(budget: int, most: int) -> None:
    assert worst_odds(dearest_of(budget, most), most) <= 2**budget


def test_with_one_window_each_user_all_windows_may_be_as_dear_as_the_budget() -> None:
    assert dearest_of(2, 1)([2, 2, 2, 2], 2)
    assert worst_odds(dearest_of(2, 1), 1) == 4, "and the bound is reached"


@pytest.mark.parametrize(("budget", "most", "charged_for"), [(2, 2, 1), (3, 2, 1)], ids=["two in one", "three in two"])
def test_a_ledger_that_charges_fewer_windows_than_users_may_enter_is_found_out(
    budget: int, most: int, charged_for: int
) -> None:
    assert worst_odds(dearest_of(budget, charged_for), most) > 2**budget


def test_a_ledger_that_charges_the_mean_of_windows_is_found_out() -> None:
    def admits(charged: Sequence[int], level: int) -> bool:
        return Fraction(sum([*charged, level]), len(charged) + 1) <= Fraction(3, 2)

    assert worst_odds(admits, 1) > 2 ** Fraction(3, 2)
