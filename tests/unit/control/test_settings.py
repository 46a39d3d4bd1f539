"""Settings in the control topic: which of them hold, and the plan that they come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from stream_dp.config.plan import Edition, Plan
from stream_dp.control.acceptance import SettingsHistory, decode_verdict
from stream_dp.control.editions import (
    Posted,
    decode_posted,
    encode_posted,
    first_record,
    next_record,
    plan_holding,
    plan_of,
)
from stream_dp.control.republications import read_republication
from stream_dp.errors import ConfigError
from stream_dp.testing import plan_from
from tests.support.visits import MINUTE

START = 1_704_067_200_000
Planner = Callable[..., Plan]
FINER = ("retention: 1d", "retention: 2d")
ONE_ITEM = ("items_per_user: 2", "items_per_user: 1")
GRACE = ("grace: 10s", "grace: 20s")
HIDDEN = ("buckets: 4\n", "buckets: 4\n    audiences: [public]\n")


@pytest.fixture
def planner(visits: Callable[..., str], tmp_path: Path) -> Planner:
    return lambda *changes: plan_from(visits(*changes), tmp_path)


def after(known: list[Posted], plan: Plan, begins: int | None, ends: Mapping[str, int] | None = None) -> list[Posted]:
    """The settings with a plan for all of its views from a minute on."""
    starts = {} if begins is None else dict.fromkeys(plan.newest, START + begins * MINUTE)
    return [*known, next_record(known, plan, starts, ends or {}, 7, "why")]


def told(plan: Plan) -> list[tuple[str, list[tuple[int, int]], int | None]]:
    """Of every definition what follows the view's name in its own, its editions and where it ends, in minutes."""
    return [
        (
            name.removeprefix(view.view),
            [(one.number, (one.first_ms - START) // MINUTE) for one in view.editions],
            None if view.until_ms is None else (view.until_ms - START) // MINUTE,
        )
        for name, view in plan.views.items()
    ]


def test_a_record_is_read_back_as_it_was_and_what_is_none_is_passed_over(planner: Planner) -> None:
    posted = first_record(planner(), START)

    assert decode_posted(b"settings/1/x", encode_posted(posted)) == posted
    for key, value in [(None, b"?"), (b"settings/1/x", None), (b"settings/1/x", b"{}"), (b"grant/x", b"{}")]:
        assert decode_posted(key, value) is None
    assert decode_posted(b"grant/x", encode_posted(posted)) is None


@pytest.mark.parametrize("field", [b'"\xff"', b"[" * 100_000])
def test_bytes_that_nobody_can_decode_are_no_record(field: bytes) -> None:
    """Text that is not UTF-8, and nesting that is too deep: msgspec has no error of its own for them."""
    settings = b'{"type":"settings","number":2,"sections":{"a":' + field
    verdict = b'{"type":"verdict","number":2,"at_ms":1,"reason":' + field
    assert decode_posted(b"settings/2/x", settings) is None
    assert decode_verdict(b"verdicts/2/x", verdict, 0) is None
    assert read_republication(b"republish/x", b'{"topic":' + field) is None


def test_the_first_of_a_number_holds_and_a_gap_ends_what_holds(planner: Planner) -> None:
    first = first_record(planner(), START)
    second, other, fourth = (replace_number(first, number, note) for number, note in ((2, "a"), (2, "b"), (4, "c")))

    assert SettingsHistory.from_records([]).posted == []
    assert SettingsHistory.from_records([second, first, other, fourth]).posted == [first, second]
    assert SettingsHistory.from_records([second]).posted == []


def replace_number(posted: Posted, number: int, note: str) -> Posted:
    return Posted(number, posted.sections, posted.begins, posted.ends, posted.fingerprints, posted.at_ms, note)


def test_without_settings_a_files_own_plan_holds_and_the_first_record_is_that_plan(planner: Planner) -> None:
    plan = planner()
    (name,) = plan.views
    assert plan_holding([], plan) is plan

    held = plan_holding([first_record(plan, START + 99 * MINUTE)], plan)

    assert held.settings == 1
    assert held.views == {name: plan.views[name].begun(START)}
    assert replace(held, views=plan.views, settings=0) == plan


def test_a_view_without_a_start_begins_with_the_window_that_it_is_started_in(planner: Planner) -> None:
    plan = planner((", start: 2024-01-01T00:00:00Z", ""))

    assert [*first_record(plan, START + 3 * MINUTE + 1).begins.values()] == [START + 3 * MINUTE]


@pytest.mark.parametrize("change", [ONE_ITEM, GRACE, ('overview, epsilon: "1"', 'overview, epsilon: "1/2"')])
def test_another_definition_has_a_state_of_its_own_from_its_first_window_on(
    planner: Planner, change: tuple[str, str]
) -> None:
    former, wanted = planner(), planner(change)
    known = after(after([], former, 0), wanted, 5)

    held = plan_holding(known, former)

    assert told(held) == [("", [(1, 0)], 5), ("@2", [(2, 5)], None)]
    old, new = held.views.values()
    assert (old.view, new.view) == (old.name, old.name)
    assert old.query_id != new.query_id, "no noise of one is noise of the other"
    assert held.newest == {old.name: new}
    assert plan_holding(known, wanted) == replace(held, raw={}), "whatever file a worker was started with"


def test_what_changes_nothing_of_the_definition_goes_on_with_its_state_and_is_an_edition(planner: Planner) -> None:
    known = after(after(after([], planner(), 0), planner(HIDDEN), 5), planner(HIDDEN, FINER), None)

    held = plan_holding(known, planner())

    (view,) = held.views.values()
    assert told(held) == [("", [(1, 0), (2, 5)], None)]
    assert [[*one.audiences] for one in view.editions] == [[*view.audiences]] * 2, "who is gone sees nothing more"
    assert len(view.audiences) == 1
    assert len(view.readers) == 3, "what they were told is still taken back"
    assert [view.edition(START + minute * MINUTE).number for minute in (0, 4, 5, 9)] == [1, 1, 2, 2]
    assert view.window.retention_ms == 2 * 86_400_000


def test_going_back_is_an_edition_with_a_state_of_its_own(planner: Planner) -> None:
    known = after(after(after([], planner(), 0), planner(ONE_ITEM), 5), planner(), 7)

    assert told(plan_holding(known, planner())) == [("", [(1, 0)], 5), ("@2", [(2, 5)], 7), ("@3", [(3, 7)], None)]


def test_of_two_that_are_to_come_the_one_decided_last_holds_from_its_first_window_on(planner: Planner) -> None:
    known = after(after(after([], planner(), 0), planner(ONE_ITEM), 9), planner(GRACE), 5)

    assert told(plan_holding(known, planner())) == [("", [(1, 0)], 5), ("@2", [(2, 9)], 9), ("@3", [(3, 5)], None)]


def test_what_goes_on_does_not_begin_earlier_than_its_state(planner: Planner) -> None:
    """Windows between its first window and that of the state would be nobody's."""
    known = after(after(after([], planner(), 0), planner(ONE_ITEM), 9), planner(ONE_ITEM), 5)

    assert told(plan_holding(known, planner())) == [("", [(1, 0)], 5), ("@2", [(2, 9)], 9), ("@3", [(3, 5)], None)]


def test_a_removed_view_ends_and_one_that_comes_back_is_a_later_edition_of_it(planner: Planner) -> None:
    second = (
        "views:\n",
        "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
        'window: {size: 1m}, delta: "1e-4", ledger: visitors, ladder: standard}\n',
    )
    both, one = planner(second), planner()
    (kept,) = one.views
    (gone,) = both.views.keys() - one.views.keys()
    known = after([], both, 0)
    known = [*known, next_record(known, one, {}, {gone: START + 3 * MINUTE}, 7)]

    ended = plan_holding(known, one)
    assert (ended.views[gone].until_ms, [*ended.newest]) == (START + 3 * MINUTE, [kept])

    known = [*known, next_record(known, both, {gone: START + 6 * MINUTE}, {}, 7)]
    back = plan_holding(known, one)
    assert [*back.newest] == [gone, kept]
    assert back.newest[gone].name == f"{gone}@2"
    assert back.newest[gone].editions == (
        Edition(2, START + 6 * MINUTE, both.views[gone].audiences, both.views[gone].window.shape),
    )


def test_no_window_is_cut_where_one_of_another_length_begins_inside_of_it(planner: Planner) -> None:
    known = after(after([], planner(("size: 1m", "size: 2m")), 0), planner(), 5)

    assert told(plan_holding(known, planner())) == [("", [(1, 0)], 4), ("@2", [(2, 5)], None)]


def test_what_the_machine_says_stays_and_budgets_are_those_that_were_posted_last(planner: Planner) -> None:
    richer = planner(('epsilon: "100"', 'epsilon: "200"'))
    known = after(after([], planner(), 0), richer, None)
    local = replace(planner(("erase_within: 20s", "erase_within: 40s")), data_dir=Path("elsewhere"))

    held = plan_holding(known, local)

    assert (held.erase_within_ms, held.data_dir) == (40_000, Path("elsewhere"))
    assert held.ledgers == richer.ledgers
    assert told(held) == [("", [(1, 0)], None)]


def test_a_period_that_an_older_definition_begins_has_the_budget_that_was_posted_last(planner: Planner) -> None:
    richer = (('epsilon: "100"', 'epsilon: "200"'), ("period: 366d", "period: 1d"))
    known = after(after([], planner(), 0), planner(ONE_ITEM, *richer), 5)

    old, new = (view.ledger for view in plan_holding(known, planner()).views.values())

    assert old.budget == new.budget == planner(*richer).ledgers["visitors"].budget
    assert old.periods == planner().ledgers["visitors"].periods, "its windows need not fit the others"


def test_a_change_that_does_not_say_when_it_begins_is_refused(planner: Planner) -> None:
    known = after(after([], planner(), 0), planner(ONE_ITEM), None)

    with pytest.raises(ConfigError, match=r"settings 2: views\..*: it is changed, and does not say when"):
        plan_holding(known, planner())


def test_a_list_file_that_was_changed_under_its_name_is_refused_and_says_what_to_do(
    planner: Planner, tmp_path: Path
) -> None:
    (tmp_path / "keys.txt").write_text("/a\n/b\n")
    listed = planner(
        ("kind: histogram", "kind: catalogue"), ('    delta: "1e-4"\n', "    catalogue: {file: keys.txt}\n")
    )
    known = after(after([], listed, 0), planner(), 5)
    assert plan_of(known[0], listed).views

    (tmp_path / "keys.txt").write_text("/a\n/c\n")

    with pytest.raises(ConfigError, match=r"settings 1: views\..*a file of its own name"):
        plan_holding(known, listed)


def test_a_source_with_another_topic_needs_a_name_of_its_own(planner: Planner) -> None:
    known = after(after([], planner(), 0), planner(("topic: NAME.visits", "topic: NAME.others")), 5)

    with pytest.raises(ConfigError, match=r"sources\.visits: its topic was"):
        plan_holding(known, planner())
