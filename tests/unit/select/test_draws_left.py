"""A selection for which fewer than k draws are left: the law of its first draws, and whole ledgers that end with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.accounting import Cost
from stream_dp.exact.bits import BitSource
from stream_dp.kinds.topk import Found, Selection, by_draws, chosen_kbar
from stream_dp.select.candidates import Item
from stream_dp.select.gumbel import GumbelTopK, TopKParameters
from tests.support.tapes import RecordedBits

Table = dict[bytes, int]
Output = tuple[Sequence[Item], Found]
Shorten = Callable[[Selection, int], Selection]
"""A selection of fewer keys, by their number."""

P = TopKParameters(3, 3, Fraction(1), Fraction("1e-9"))
"""An item is drawn as often as bottom at about 23 users."""
BELOW: Table = {b"a": 19, b"b": 19, b"c": 19}
NEIGHBOURS = [
    ([BELOW, BELOW], [dict.fromkeys(BELOW, 20)] * 2),
    ([{b"a": 23, b"b": 22, b"c": 1}, BELOW], [{b"a": 24, b"b": 23, b"c": 1}, BELOW | {b"a": 20}]),
    ([{b"a": 22}, {b"a": 22, b"b": 30}], [{b"a": 23, b"b": 1}, {b"a": 23, b"b": 30, b"c": 1}]),
]


def chosen(output: GumbelTopK) -> Selection:
    """The product's selection, with an outcome that is known."""

    def choose(_counts: Mapping[str, int], _bits: BitSource) -> Output:
        return output.items, Found(not output.bottom, output.draws)

    return replace(by_draws("gumbel", P), choose=choose)


def first(selection: Selection, keys: int) -> Selection:
    return selection if keys == P.k else selection.first(keys)


def outputs(laws: Any, table: Table, keys: int, shorten: Shorten) -> Iterator[tuple[Any, Any]]:
    """What is published of a window for which so many keys can be paid for, and its charge; with its chance."""
    for output, share in laws.of_counts(table, P).items():
        yield shorten(chosen(output), keys).choose({}, RecordedBits(b"")), share


def added(law: dict[Any, Any], seen: Any, share: Any) -> None:
    had = law.get(seen)
    law[seen] = share if had is None else type(share)(had.lower + share.lower, had.upper + share.upper)


@pytest.mark.parametrize("keys", [1, 2])
def test_the_first_draws_are_a_selection_of_so_many_keys(laws: Any, keys: int) -> None:
    for one, other in NEIGHBOURS:
        for table in (*one, *other):
            found: dict[Any, Any] = {}
            for (items, shown), share in outputs(laws, table, keys, first):
                assert (shown.draws, shown.paid) == (len(items) + (not shown.complete), keys)
                added(found, GumbelTopK(items, not shown.complete), share)
            wanted = laws.of_counts(table, replace(P, k=keys))
            assert found.keys() == wanted.keys()
            assert all(abs(found[seen].lower - wanted[seen].upper) < Fraction(1, 10**30) for seen in wanted)


def test_one_draw_for_the_choice_of_kbar_stays_beside_the_keys() -> None:
    whole = (b"a", b"b", b"c"), Found(complete=True, draws=4)
    short = replace(chosen_kbar(3, 9, P.epsilon, P.delta), choose=lambda *_: whole).first(2)
    assert short.choose({}, RecordedBits(b"")) == ((b"a", b"b"), Found(complete=True, draws=3, paid=2))
    assert short.most_draws == 3


def transcripts(laws: Any, tables: list[Table], budget: Cost, shorten: Shorten, price: Callable[[Found], int]) -> Any:
    """The law of all that is published of windows that draw as many keys as the rest of a ledger pays for."""
    law: dict[Any, Any] = {}
    open_ends: list[tuple[Any, Cost, Any]] = [((), budget, laws.power_of_e(Fraction(0)))]
    while open_ends:
        seen, left, chance = open_ends.pop()
        if len(seen) == len(tables):
            added(law, seen, chance)
            continue
        keys = max(k for k in range(P.k + 1) if not k or by_draws("gumbel", P).cost(k, pooled=False) <= left)
        if not keys:
            open_ends.append(((*seen, None), left, chance))
            continue
        for (items, found), share in outputs(laws, tables[len(seen)], keys, shorten):
            charged = by_draws("gumbel", P).cost(price(found), pooled=False)
            open_ends.append(((*seen, (items, found.complete)), left - charged.least(left), chance.times(share)))
    return law


def excess(laws: Any, shorten: Shorten, price: Callable[[Found], int]) -> tuple[Fraction, Fraction, Fraction]:
    """The largest delta of two windows under a ledger of four draws, in bounds, and what it promises."""
    budget = Cost(4 * (P.epsilon + P.delta), 2 * P.delta)
    found = [
        laws.divergence(
            *(transcripts(laws, stream, budget, shorten, price) for stream in both), lambda _: budget.epsilon
        )
        for both in NEIGHBOURS
    ]
    return max(one.lower for one in found), max(one.upper for one in found), budget.delta


def draws(found: Found) -> int:
    return found.draws


def test_two_windows_of_what_is_left_keep_the_promise(laws: Any) -> None:
    _, upper, promised = excess(laws, first, draws)
    assert upper <= promised


def told(selection: Selection, keys: int) -> Selection:
    """The mutant: it says how the whole list would have ended."""
    short = first(selection, keys)

    def choose(counts: Mapping[str, int], bits: BitSource) -> Any:
        (items, found), (_, whole) = short.choose(counts, bits), selection.choose(counts, bits)
        return items, Found(whole.complete, found.draws, found.paid)

    return replace(short, choose=choose)


@pytest.mark.parametrize(
    ("shorten", "price"),
    [
        pytest.param(told, draws, id="says how the whole list would have ended"),
        pytest.param(first, lambda found: max(1, found.draws - 1), id="the last draw goes free"),
        pytest.param(lambda selection, _: selection, lambda found: min(found.draws, 1), id="draws all k for one"),
    ],
)
def test_a_ledger_that_shows_more_than_it_charges_is_found_out(
    laws: Any, shorten: Shorten, price: Callable[[Found], int]
) -> None:
    lower, _, promised = excess(laws, shorten, price)
    assert lower > 10 * promised
