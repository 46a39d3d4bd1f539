"""Views that keep the same contributions are bounded together, and each is as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from stream_dp.windows import bounding, counting
from stream_dp.windows.count_rows import JOURNAL, MARKER, JournalRow, Marker, ViewMark
from stream_dp.windows.counting import PartitionCounter
from stream_dp.windows.effects import Step
from stream_dp.windows.encoding import after, decode, text, window_start
from stream_dp.windows.merging import Partial
from stream_dp.windows.open_windows import OpenWindow
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import Clock, CountedView, state_name, view_of
from tests.support.chosen import ordinarily
from tests.support.counting import (
    PARTIALS,
    Entry,
    counter,
    event,
    handed_on,
    letters_by_view,
    loaded,
    view,
    watermark,
)
from tests.support.machine import Machine, deliver

LIKE = [view("a"), view("b", buckets=3, retention_ms=99), view("c", weights=(6, 3, 2))]
OTHERS = [
    view("grace", grace_ms=9),
    view("ahead", max_ahead_ms=4),
    view("most", items_per_user=1),
    view("long", length_ms=20),
]


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the views by which chunks are bounded."""
    names: list[str] = []
    bound_chunk = bounding.bound_chunk

    def noted(one: CountedView, *args: Any) -> Any:
        names.append(one.name)
        return bound_chunk(one, *args)

    monkeypatch.setattr(counting, "bound_chunk", noted)
    return names


@dataclass
class Told:
    """What is left of a view: its journal, its mark, what was handed on, and which records it refused."""

    journal: list[tuple[bytes, bytes]]
    marks: dict[str, ViewMark]
    partials: set[bytes | None]
    letters: set[tuple[int, str]]


def told(machine: Machine, name: str) -> Told:
    """What a machine has of a view, that is of all its definitions."""
    marks = decode(Marker, machine.rows[MARKER + text("visits")]).views
    own = {state: mark for state, mark in marks.items() if view_of(state) == name}
    purging = {state: {start for start, _ in mark.purging} for state, mark in own.items()}
    journal = [
        row
        for state in own
        for row in machine.scan(JOURNAL + text(state), after(JOURNAL + text(state)))
        if window_start(JOURNAL, state, row[0]) not in purging[state]  # deleted by the next step
    ]
    sent = {
        one.value for one in machine.sent if one.topic == PARTIALS and decode(Partial, one.value or b"").view in own
    }
    letters = {(at, reason) for at, reason, views in letters_by_view(machine.sent) if name in views.split("+")}
    for mark in own.values():
        mark.purging = []  # is stored with the next marker, whoever closes a window
    return Told(journal, own, sent, letters)


Message = Callable[[PartitionCounter], Step]


def story(chance: random.Random, offset: int, now: int) -> tuple[list[Message], int, int]:
    """Chunks and ticks from an offset and a time on, and where they end."""
    messages: list[Message] = []
    for _ in range(chance.randrange(2, 8)):
        now += chance.randrange(1, 12)
        if chance.random() < 0.3:
            messages.append(lambda one, now=now: one.ticks([now]))  # type: ignore[misc]
            continue
        chunk = []
        for at in range(offset, offset + chance.randrange(1, 8)):
            if chance.random() < 0.1:
                chunk.append(watermark(at, now - chance.randrange(6)))
            else:
                time = now - chance.randrange(-9, 25)
                chunk.append(event(at, chance.choice("uvwxyz"), chance.choice("abcd"), time))
        offset += len(chunk)
        messages.append(lambda one, chunk=chunk, now=now: one.chunk(chunk, now))  # type: ignore[misc]
    return messages, offset, now


def definitions(chance: random.Random) -> list[list[list[CountedView]]]:
    """In each of two phases, the definitions of each view: some are changed, and one is new in the second."""
    clocks: list[Clock] = ["wall", "event"]
    clock, bounds = chance.choice(clocks), Tiling(30) if chance.random() < 0.3 else None

    def of(one: CountedView) -> CountedView:
        grouped = () if bounds is not None else one.weights
        return replace(one, clock=clock, idle_ms=20, bounds=bounds if one.name != "long" else None, weights=grouped)

    before = [of(one) for one in [*LIKE, *chance.sample(OTHERS, 2)]]
    chance.shuffle(before)
    beside, late = of(view("beside", length_ms=70)), of(view("late"))
    changed = chance.sample(before, chance.randrange(len(before)))
    until, items = chance.choice([30, 60]), chance.choice([2, 3])

    def later(one: CountedView) -> list[CountedView]:
        if one not in changed:
            return [one]
        newer = replace(
            one,
            name=state_name(one.name, 2),
            fingerprint=one.name.ljust(8, "2").encode()[:8],
            first_ms=until,
            items_per_user=items,
            origin_ms=one.first_ms,
        )
        return [replace(one, until_ms=until), newer]

    return [[[one] for one in [beside, *before]], [[beside], *map(later, before), [late]]]


def delivered(
    machine: Machine,
    views: Sequence[Sequence[CountedView]],
    messages: Sequence[Message],
    cuts: Iterator[int],
    memory: int,
) -> None:
    every = [one for definitions in views for one in definitions]
    deliver(machine, lambda: counter(*every, memory=memory), messages, cuts=cuts, again=1)


@pytest.mark.parametrize("seed", ordinarily(30, range(600)))
def test_each_view_is_as_if_it_were_alone(seed: int) -> None:
    """Chunks, ticks, watermarks, crashes, changed definitions, windows on disk."""
    chance = random.Random(seed)
    phases = definitions(chance)
    first, offset, now = story(chance, 0, 0)
    second, _, now = story(chance, offset, now)
    end: Message = lambda one: one.ticks([now + 200])  # noqa: E731
    stories = [first, [*second, end] if chance.random() < 0.5 else second]
    memory = chance.choice([0, 1 << 30])

    together = Machine()
    for views, messages in zip(phases, stories, strict=True):
        cuts = iter([chance.randrange(40) for _ in range(chance.randrange(4))])
        delivered(together, views, messages, cuts, memory)
    for name in {view_of(definitions[0].name) for definitions in phases[1]}:
        alone = Machine()
        for views, messages in zip(phases, stories, strict=True):
            own = [definitions for definitions in views if definitions[0].name in (name, "beside")]
            delivered(alone, own, messages, iter(()), memory)
        assert told(together, name) == told(alone, name)


def chunk(first: int, *entries: tuple[str, str, int]) -> list[Entry]:
    """Events (user, item, time) from an offset on."""
    return [event(first + at, *entry) for at, entry in enumerate(entries)]


def test_a_chunk_is_bounded_once_for_views_that_keep_the_same(bounded: list[str]) -> None:
    machine = Machine()
    one = loaded(machine, LIKE[0], OTHERS[0], *LIKE[1:], OTHERS[2])
    machine.carry_out(one.chunk(chunk(0, ("u", "a", 1), ("u", "b", 2), ("v", "a", 12)), 5))
    assert bounded == ["a", "grace", "most"]
    machine.carry_out(one.ticks([23]))
    assert handed_on(machine.sent)["b"] == {0: {"a": 1, "b": 1}, 10: {"a": 1}}
    assert handed_on(machine.sent)["c"] == {0: {"a": 3, "b": 3}, 10: {"a": 6}}


def test_views_share_again_after_a_restart_and_read_their_journal_once(
    bounded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, read = Machine(), list[JournalRow]()
    one = loaded(machine, *LIKE)
    machine.carry_out(one.chunk(chunk(0, ("u", "a", 1), ("u", "b", 2)), 5))
    add = OpenWindow.add

    def noted(window: OpenWindow, row: JournalRow) -> None:
        read.append(row)
        add(window, row)

    monkeypatch.setattr(OpenWindow, "add", noted)
    one = loaded(machine, *LIKE)
    machine.carry_out(one.chunk(chunk(2, ("u", "c", 3), ("v", "c", 3)), 6))
    assert bounded == ["a", "a"]
    assert [row.items for row in read] == [["a", "b"]]
    machine.carry_out(one.ticks([23]))
    assert {name: found[0] for name, found in handed_on(machine.sent).items()} == {
        "a": {"a": 1, "b": 1, "c": 1},
        "b": {"a": 1, "b": 1, "c": 1},
        "c": {"a": 3, "b": 3, "c": 6},
    }


def test_a_view_with_another_past_does_not_share(bounded: list[str]) -> None:
    """What a user had counts in the whole interval in which it is bounded; of a view that is new, nobody had any."""
    whole = {"bounds": Tiling(40), "items_per_user": 1, "grace_ms": 0}
    old, new = view("old", **whole), view("new", **whole)
    machine = Machine()
    machine.carry_out(loaded(machine, old).chunk(chunk(0, ("u", "a", 1)), 5))
    one = loaded(machine, old, new)
    machine.carry_out(one.ticks([10]))
    one = loaded(machine, old, new)
    machine.carry_out(one.chunk(chunk(1, ("u", "b", 12)), 13))
    machine.sent.clear()
    machine.carry_out(one.ticks([20]))
    assert (handed_on(machine.sent)["old"][10], handed_on(machine.sent)["new"][10]) == ({}, {"b": 1})
    assert bounded == ["old", "old", "new"]


def test_a_view_that_opens_later_does_not_share(bounded: list[str]) -> None:
    machine = Machine()
    machine.carry_out(loaded(machine, view("old")).ticks([5]))
    one = loaded(machine, view("old"), view("new"))
    machine.sent.clear()
    machine.carry_out(one.chunk(chunk(0, ("u", "a", 7)), 8))
    assert letters_by_view(machine.sent) == [(0, "late", "new")]
    assert bounded == ["old", "new"]


@pytest.mark.parametrize("restarts", [False, True])
def test_views_of_which_one_has_an_earlier_definition_that_is_open_do_not_share(
    restarts: bool, bounded: list[str]
) -> None:
    """Of an event that is too early for both, only the one without says that it is late."""
    later = {"first_ms": 30, "origin_ms": 0}
    views = [
        replace(view("slow", grace_ms=9), until_ms=30),
        view("slow@2", **later),
        replace(view("fast"), until_ms=30),
        view("fast@2", **later),
    ]
    machine = Machine()
    one = loaded(machine, *views)
    machine.carry_out(one.chunk(chunk(0, ("u", "a", 31)), 31))
    assert bounded == ["slow", "slow@2", "fast"]
    machine.carry_out(one.ticks([34]))
    if restarts:
        one = loaded(machine, *views)
    machine.carry_out(one.chunk(chunk(1, ("u", "b", 25)), 35))
    assert bounded[3:] == ["slow", "slow@2", "fast@2"]
    assert letters_by_view(machine.sent) == [(1, "late", "fast")]
