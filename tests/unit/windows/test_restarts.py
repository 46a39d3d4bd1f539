"""A counter that is loaded with other views than those whose rows are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stream_dp.errors import ConfigError
from stream_dp.windows.count_rows import JOURNAL
from stream_dp.windows.encoding import text
from stream_dp.windows.shapes.tumbling import Tiling
from tests.support.counting import counted, event, handed_on, letters, loaded, totals, view
from tests.support.machine import Machine


def test_a_changed_fingerprint_is_refused() -> None:
    machine = Machine()
    counted(machine, view())
    with pytest.raises(ConfigError, match=r"views\.pages: .*new name"):
        loaded(machine, replace(view(), fingerprint=b"another1"))


def test_a_view_that_is_no_longer_configured_leaves_no_journal_and_the_others_go_on() -> None:
    machine = Machine()
    counted(machine, view("gone"), view("stays"))
    one = loaded(machine, view("stays"))
    assert [key[1:].startswith(text("stays")) for key in machine.rows if key.startswith(JOURNAL)] == [True] * 3
    assert machine.unerased(JOURNAL) == []
    machine.carry_out(one.ticks([33]))
    assert handed_on(machine.sent) == {"stays": {0: {"a": 1}, 10: {"a": 1}, 20: {"a": 1}}}


def test_a_new_view_beside_an_old_one_starts_at_its_first_window() -> None:
    machine = Machine()
    counted(machine, view("old"))
    one = loaded(machine, view("old"), view("new", first_ms=10))
    machine.carry_out(one.chunk([event(3, "v", "b", 12)], 6))
    machine.carry_out(one.ticks([33]))
    assert handed_on(machine.sent) == {
        "old": {0: {"a": 1}, 10: {"a": 1, "b": 1}, 20: {"a": 1}},
        "new": {10: {"b": 1}, 20: {}},
    }


def test_a_longer_grace_does_not_reopen_windows_that_were_handed_on() -> None:
    """`grace` may change between two starts; what comes for a window that is gone is late, counted, and not kept."""
    machine = Machine()
    one = counted(machine, view(grace_ms=0))
    machine.carry_out(one.ticks([20]))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}, 10: {"a": 1}}}

    one = loaded(machine, view(grace_ms=100))
    machine.carry_out(one.chunk([event(3, "v", "secret", 5)], 21))
    machine.carry_out(one.ticks([1000]))
    machine.carry_out(one.ticks([1001]))

    assert letters(machine.sent) == {(3, "late"): 1}
    assert [key for key in machine.rows if key.startswith(JOURNAL)] == []


def test_what_a_user_had_counts_until_the_interval_ends_in_which_it_is_bounded() -> None:
    """The journals of windows that were handed on stay until then, and not longer."""
    machine, running = Machine(), view(length_ms=5, grace_ms=0, bounds=Tiling(20), items_per_user=2)
    one = loaded(machine, running)
    machine.carry_out(one.chunk([event(0, "u", "a", 1), event(1, "u", "b", 7), event(2, "v", "a", 7)], 7))
    machine.carry_out(one.ticks([10]))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}, 5: {"a": 1, "b": 1}}}

    one = loaded(machine, running)
    again = [event(3, "u", "a", 11), event(4, "u", "c", 12), event(5, "v", "c", 12), event(6, "v", "a", 8)]
    machine.carry_out(one.chunk(again, 12))
    machine.carry_out(one.ticks([19]))
    assert handed_on(machine.sent)["pages"][10] == {"c": 1}
    assert totals(machine)["events_refused", (("reason", "late"), ("view", "pages"))] == 1
    assert len([key for key in machine.rows if key.startswith(JOURNAL)]) == 3

    machine.carry_out(one.ticks([20]))
    machine.carry_out(one.ticks([21]))
    assert [key for key in machine.rows if key.startswith(JOURNAL)] == machine.unerased(JOURNAL) == []
    machine.carry_out(loaded(machine, running).chunk([event(7, "u", "a", 21)], 22))
    assert len([key for key in machine.rows if key.startswith(JOURNAL)]) == 1


MOVED = replace(view(), fingerprint=b"moved001")


def two_sources() -> Machine:
    """What `pages` counted on the source `visits`, and `beside` with more records on the source `other`."""
    machine = Machine()
    counted(machine, view(), view("stays"))
    other = loaded(machine, view("beside"), source="other", configured=["pages", "stays", "beside"])
    machine.carry_out(other.chunk([event(n, "u", "o", 5) for n in range(9)], 5))
    return machine


def test_a_view_that_moves_to_another_source_is_refused() -> None:
    """Its fingerprint changes; counts of the former source must not be taken for those of the new one."""
    machine = two_sources()
    with pytest.raises(ConfigError, match=r"views\.pages"):
        loaded(machine, view("beside"), MOVED, source="other", configured=["pages", "stays", "beside"])


def test_a_view_that_moves_to_another_source_is_refused_though_its_former_source_was_counted_first() -> None:
    """Whichever source has a record first: once its former marker has forgotten the view, nothing tells any more."""
    machine, configured = two_sources(), ["pages", "stays", "beside"]

    def start() -> None:
        former = loaded(machine, view("stays"), configured=configured)
        machine.carry_out(former.chunk([event(3, "u", "a", 5)], 6))
        loaded(machine, view("beside"), MOVED, source="other", configured=configured)

    with pytest.raises(ConfigError, match=r"views\.pages"):
        start()


def test_views_of_a_source_that_is_no_longer_configured_leave_no_journal() -> None:
    """Nobody counts that source any more; its users and items must not stay in the table for ever."""
    machine = two_sources()
    loaded(machine, view("beside"), source="other", configured=["beside"])
    assert {key[2 : 2 + key[1]] for key in machine.rows if key.startswith(JOURNAL)} == {b"beside"}
    assert machine.unerased(JOURNAL) == []


def test_loading_one_source_leaves_the_journals_of_the_others() -> None:
    machine = two_sources()
    loaded(machine, view("beside"), source="other", configured=["pages", "stays", "beside"])
    one = loaded(machine, view(), view("stays"), configured=["pages", "stays", "beside"])
    machine.carry_out(one.ticks([33]))
    assert handed_on(machine.sent)["stays"] == {0: {"a": 1}, 10: {"a": 1}, 20: {"a": 1}}
