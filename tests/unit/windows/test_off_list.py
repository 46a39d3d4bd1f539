"""Contributions whose key is off a fixed list: the rest is counted as if there were none of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView, ParticipationBound
from tests.support.chosen import examples
from tests.support.counting import Entry, counter, event, handed_on, letters, totals, view
from tests.support.machine import Machine
from tests.support.phases import PHASES

LISTED = frozenset({"a", "b"})
VIEWS = (
    view("day", items_per_user=1, max_ahead_ms=99, domain=LISTED),
    view("hops", length_ms=12, step_ms=4, items_per_user=1, max_ahead_ms=99, domain=LISTED),
    view("panes", length_ms=5, bounds=Tiling(20), items_per_user=1, max_ahead_ms=99, domain=LISTED),
    view("few", max_ahead_ms=99, participation=ParticipationBound(1, Tiling(40)), domain=LISTED),
    view(
        "few-hops",
        length_ms=12,
        step_ms=4,
        max_ahead_ms=99,
        participation=ParticipationBound(3, Tiling(36)),
        domain=LISTED,
    ),
)
Visit = tuple[str, str, int]
"""User, page, time."""
Counts = dict[str, dict[int, dict[str, int]]]

VISITS = st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("abcd"), st.integers(0, 30)), max_size=25)
IN_MEMORY, SPILLED = 1 << 30, 0


def play(views: Sequence[CountedView], visits: Sequence[Visit], each: int, memory: int) -> Machine:
    """Count visits in chunks, then close everything."""
    machine, one = Machine(), counter(*views, memory=memory)
    machine.carry_out(one.load(machine))
    log: list[Entry] = [event(at, *visit) for at, visit in enumerate(visits)]
    for at in range(0, len(log), each):
        machine.carry_out(one.chunk(log[at : at + each], 1))
    machine.carry_out(one.ticks([1000]))
    return machine


def counts_of(machine: Machine) -> Counts:
    return {name: {at: one for at, one in found.items() if one} for name, found in handed_on(machine.sent).items()}


def without_others(visits: Sequence[Visit]) -> list[Visit]:
    return [visit for visit in visits if visit[1] in LISTED]


def drawn(test: Callable[..., None]) -> Callable[..., None]:
    """Visits in chunks, in memory or not; and two cases by hand."""
    test = given(VISITS, st.integers(1, 25), st.sampled_from([IN_MEMORY, SPILLED]))(test)
    test = example([("u", "c", 1), ("u", "a", 2)], 1, SPILLED)(test)
    return example([("u", "c", 1), ("u", "a", 2), ("u", "d", 12), ("u", "b", 30)], 25, IN_MEMORY)(test)


@examples(20, 100, drawn, derandomize=True, deadline=None, phases=PHASES)
def test_counts_are_those_of_the_stream_without_them(visits: list[Visit], each: int, memory: int) -> None:
    with_them, rest = play(VIEWS, visits, each, memory), play(VIEWS, without_others(visits), each, IN_MEMORY)
    assert counts_of(with_them) == counts_of(rest)
    assert {reason for _, reason in letters(with_them.sent)} == set(), "they leave no dead letter"
    left = {("events_unknown", (("view", one.name),)): len(visits) - len(without_others(visits)) for one in VIEWS}
    before = {key: amount for key, amount in totals(rest).items() if key[0] != "events_consumed"}
    expected = before | {key: amount for key, amount in left.items() if amount}
    assert {key: amount for key, amount in totals(with_them).items() if key[0] != "events_consumed"} == expected


@pytest.mark.parametrize("one", VIEWS, ids=lambda one: one.name)
def test_a_list_that_is_looked_at_behind_the_bounds_is_found_out(one: CountedView) -> None:
    """The mutant: off-list keys use up the bound on items, or on windows, and are dropped afterwards."""
    visits = [("u", "c", 1), ("u", "d", 1), ("u", "c", 12), ("u", "d", 12), ("u", "a", 13), ("u", "b", 25)]
    (right,) = counts_of(play([one], visits, 9, IN_MEMORY)).values()
    (behind,) = counts_of(play([replace(one, domain=None)], visits, 9, IN_MEMORY)).values()
    filtered = {at: {key: n for key, n in counts.items() if key in LISTED} for at, counts in behind.items()}
    assert {at: counts for at, counts in filtered.items() if counts} != right


def test_a_later_definition_with_another_list_does_not_go_on_with_what_was_accepted() -> None:
    one = view(domain=frozenset({"a", "b"}))
    assert one.accepts_like(view(domain=frozenset({"b", "a"})))
    assert not one.accepts_like(view(domain=frozenset({"a"})))
    assert not one.accepts_like(view())
