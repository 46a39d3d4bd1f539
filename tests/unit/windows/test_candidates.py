"""Lists that may change until a window closes: more is accepted of a user, and cut to the bound when the list is known.

What is handed on of a user is never more than `items_per_user`, whatever crashes, and whichever lists workers have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows import bounding, counting
from stream_dp.windows.count_rows import JOURNAL, JournalRow
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Commit, Step
from stream_dp.windows.open_windows import OpenWindow
from stream_dp.windows.views import CANDIDATES, CountedView
from tests.support.counting import Entry, counter, event, handed_on, partials, small_sizes, totals, view
from tests.support.machine import Machine, deliver
from tests.support.phases import PHASES

BOUND = 2


def waiting(listed: Container[str]) -> CountedView:
    """A view whose list is this when a window closes."""
    return view(items_per_user=BOUND, list_at=lambda _closed_ms: listed, buckets=4, max_ahead_ms=99)


Visit = tuple[str, str, int]
"""User, page, time."""
Delivered = Callable[[PartitionCounter], Step]


def steps(visits: Sequence[Visit], each: int) -> list[Delivered]:
    """Visits in chunks, then a tick that closes every window."""
    log: list[Entry] = [event(at, *visit) for at, visit in enumerate(visits)]

    def chunk(some: Sequence[Entry]) -> Delivered:
        return lambda one: one.chunk(some, 1)

    return [*(chunk(log[at : at + each]) for at in range(0, len(log), each)), lambda one: one.ticks([33])]


def run(visits: Sequence[Visit], listed: Container[str], *, each: int = 3, memory: int = 1 << 30) -> Machine:
    machine = Machine()
    deliver(machine, lambda: counter(waiting(listed), memory=memory), steps(visits, each))
    return machine


def plain(visits: Sequence[Visit], listed: Container[str]) -> dict[int, dict[str, int]]:
    """The counts by a plain loop: of each user's first candidates the first that are on the list."""
    candidates: dict[tuple[int, str], list[str]] = {}
    for user, page, time in visits:
        own = candidates.setdefault((time // 10 * 10, user), [])
        if page not in own and len(own) < CANDIDATES * BOUND:
            own.append(page)
    found: dict[int, Counter[str]] = {}
    for (start, _), pages in candidates.items():
        found.setdefault(start, Counter()).update([page for page in pages if page in listed][:BOUND])
    return {start: dict(counts) for start, counts in found.items() if counts}


def counts_of(machine: Machine) -> dict[int, dict[str, int]]:
    return {start: counts for start, counts in handed_on(machine.sent)["pages"].items() if counts}


VISITS = st.lists(
    st.tuples(st.sampled_from("uvw"), st.sampled_from("abcdefghijkl"), st.integers(0, 19)), min_size=10, max_size=60
)


@settings(derandomize=True, max_examples=100, deadline=None, phases=PHASES)
@given(VISITS, st.sets(st.sampled_from("abcdefghijkl")), st.integers(1, 30), st.sampled_from([0, 1 << 30]))
def test_the_first_that_are_on_the_list_count(visits: list[Visit], listed: set[str], each: int, memory: int) -> None:
    machine = run(visits, listed, each=each, memory=memory)
    assert counts_of(machine) == plain(visits, listed)
    found, label = totals(machine), (("view", "pages"),)
    assert found.get(("events_counted", label), 0) == sum(
        map(sum, (one.values() for one in plain(visits, listed).values()))
    )
    taken = len(visits) - found.get(("events_refused", (("reason", "duplicate"), *label)), 0)
    out = found.get(("events_unknown", label), 0) + found.get(("events_refused", (("reason", "clipped"), *label)), 0)
    assert found.get(("events_counted", label), 0) + out == taken
    assert machine.unerased(JOURNAL) == []


HEAVY = [("u", page, at) for at, page in enumerate("abcdefgh")]
"""One user with many candidates."""
FIRST, SECOND = frozenset("abgh"), frozenset("cdef")


def most_of_one_user(cut: int) -> int:
    """How many contributions of one user leave, if the worker ends at a point and the next one has another list."""
    machine = Machine()

    def made() -> PartitionCounter:
        return counter(waiting(FIRST if machine.cut_after is not None else SECOND))

    deliver(machine, made, steps(HEAVY, 3), cuts=[cut])
    newest = {one.key: one for one in partials(machine.sent)}  # a partial replaces the one before it
    first = {one.key: one for one in reversed(partials(machine.sent))}  # or it was merged before that
    mixed = [{**newest, **{key: first[key]}} for key in first]
    return max(sum(sum(one.counts.values()) for one in some.values()) for some in [newest, first, *mixed])


def all_cuts() -> range:
    machine = Machine()
    with small_sizes():
        deliver(machine, lambda: counter(waiting(FIRST)), steps(HEAVY, 3))
    return range(machine.points)


def test_no_more_than_the_bound_leaves_of_a_user_wherever_it_crashes_and_the_next_worker_has_another_list() -> None:
    with small_sizes():
        assert max(map(most_of_one_user, all_cuts())) == BOUND


def test_totals_and_counts_are_the_same_wherever_it_crashes_and_nothing_is_left_in_files() -> None:
    visits = [*HEAVY, ("v", "a", 3), ("v", "x", 4), ("w", "b", 12), ("w", "b", 13)]
    with small_sizes():
        whole = run(visits, FIRST)
        for cut in range(whole.points):
            machine = Machine()
            deliver(machine, lambda: counter(waiting(FIRST)), steps(visits, 3), cuts=[cut], again=cut % 2)
            assert handed_on(machine.sent) == handed_on(whole.sent)
            assert totals(machine) == totals(whole)
            assert not [key for key, _ in machine.outdated if key.startswith(JOURNAL)]


def test_a_list_that_is_looked_at_again_after_a_crash_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: what was left of a user is not stored before it is handed on."""
    real = PartitionCounter._trim

    def forgetful(one: PartitionCounter, *args: object) -> Step:
        return (effect for effect in real(one, *args) if not isinstance(effect, Commit))  # type: ignore[arg-type]

    monkeypatch.setattr(PartitionCounter, "_trim", forgetful)
    with small_sizes():
        assert max(map(most_of_one_user, all_cuts())) > BOUND


Trimmed = Callable[[JournalRow, OpenWindow, Container[str], int], JournalRow]


def cut_first(row: JournalRow, window: OpenWindow, listed: Container[str], limit: int) -> JournalRow:
    return bounding.trimmed(
        bounding.trimmed(row, replace(window), frozenset("abcdefghijkl"), limit), window, listed, limit
    )


def not_cut(row: JournalRow, window: OpenWindow, listed: Container[str], _limit: int) -> JournalRow:
    return bounding.trimmed(row, window, listed, 1 << 20)


@pytest.mark.parametrize("mutant", [cut_first, not_cut])
def test_one_that_cuts_before_it_looks_at_the_list_or_not_at_all_is_found_out(
    monkeypatch: pytest.MonkeyPatch, mutant: Trimmed
) -> None:
    monkeypatch.setattr(counting, "trimmed", mutant)
    listed = frozenset("cdef")
    assert counts_of(run(HEAVY, listed, each=20)) != plain(HEAVY, listed)


@pytest.mark.parametrize("other", [SECOND, frozenset("a"), frozenset[str]()])
def test_workers_with_different_lists_hand_on_no_more_of_a_user(other: frozenset[str]) -> None:
    """A user is in one partition; what the worker of another partition leaves does not depend on that user."""
    mine = [*HEAVY, *(("v", page, at) for at, page in enumerate("aceg"))]
    yours = [("w", page, at) for at, page in enumerate("abcdefgh")]

    def total(visits: Sequence[Visit]) -> Counter[str]:
        found = Counter[str]()
        for some, listed in ((visits, FIRST), (yours, other)):
            found.update(counts_of(run(some, listed)).get(0, {}))
        return found

    moved = total(mine) - total([visit for visit in mine if visit[0] != "u"])
    assert set(moved.values()) == {1}
    assert moved.total() == BOUND


def test_a_definition_without_candidates_does_not_go_on_with_what_one_with_them_has_accepted() -> None:
    assert not view(items_per_user=BOUND).accepts_like(waiting(FIRST))
