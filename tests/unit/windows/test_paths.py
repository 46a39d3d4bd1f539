"""Fields by name and by path, and events with several items: each equal to a plain reading with the json module."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.windows.bounding import Admission, bound_chunk
from stream_dp.windows.events import (
    ABSENT,
    MAX_ITEM_BYTES,
    MOST_ITEMS,
    EventDecoder,
    EventFormat,
    clash,
    find,
    names_of,
    path_of,
    put,
)
from tests.support.chosen import examples
from tests.support.counting import Entry, counter, handed_on, letters, totals, view
from tests.support.machine import Machine
from tests.support.phases import PHASES

READABLE = st.characters(exclude_characters='"\\', exclude_categories=("Cc", "Cs"))
NAMES = st.one_of(st.sampled_from(["a", "b", "page id", "a.b", "$", "$.a", "", "é"]), st.text(READABLE))


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("page", ("page",)),
        ("page.id", ("page.id",)),
        ("a b[0]", ("a b[0]",)),
        ("$.page", ("page",)),
        ("$.page.id", ("page", "id")),
        ("$.page-1.ID_2.größe", ("page-1", "ID_2", "größe")),
        ('$["page"].id', ("page", "id")),
        ('$["a.b"]["the id"]', ("a.b", "the id")),
        ('$["$oid"][""]', ("$oid", "")),
        ('$["\\u00e9"]', ("é",)),
    ],
)
def test_a_field_is_a_name_or_a_path_of_names(field: str, names: tuple[str, ...]) -> None:
    assert names_of(field) == names


WRONG = ["$", "$page", "$.", "$..a", "$.a.", "$.a b", "$[0]", "$.a[*]", "$['a']", '$["a"', '$["a\\x"]', "$.a ", "$.*"]


@pytest.mark.parametrize("field", WRONG)
def test_what_begins_like_a_path_and_is_none_is_refused_with_the_form(field: str) -> None:
    with pytest.raises(ValueError, match=r'^a path is \$ and one \.name or \["any text"\] after another'):
        names_of(field)


@pytest.mark.parametrize("field", ['$["say \\"x\\""]', 'quo"te', "back\\slash", "line\n"])
def test_name_that_no_decoder_reads_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match="rename the field"):
        names_of(field)


@examples(
    50, 200, given(st.lists(NAMES, min_size=1, max_size=4).map(tuple), st.integers()), derandomize=True, phases=PHASES
)
def test_a_path_is_read_back_and_finds_what_was_put_there(names: tuple[str, ...], value: int) -> None:
    event: dict[str, object] = {names[0]: 7}
    assert names_of(path_of(names)) == names
    assert find(event, (*names, "more")) is ABSENT
    put(event, names, value)
    assert find(event, names) == value


def test_putting_changes_no_mapping_that_somebody_else_holds() -> None:
    inner = {"id": 1}
    event: dict[str, object] = {"page": inner}
    put(event, ("page", "id"), 2)
    assert (event, inner) == ({"page": {"id": 2}}, {"id": 1})


@pytest.mark.parametrize(
    ("fields", "both"),
    [
        ([("page", False), ("$.page", False), ("$.item.page", False), ("a", True), ("$.a", True)], None),
        ([("page", False), ("$.page.id", False)], ("page", "$.page.id")),
        ([("$.a.b.c", False), ("x", False), ("$.a", True)], ("$.a.b.c", "$.a")),
        ([("tags", True), ('$["tags"]', False)], ("tags", '$["tags"]')),
    ],
)
def test_fields_of_which_no_event_can_have_both_are_found(
    fields: list[tuple[str, bool]], both: tuple[str, str] | None
) -> None:
    assert clash(fields) == both


# -- decoding -------------------------------------------------------------------------------------------------------


def plain(value: bytes, key: bytes, form: EventFormat) -> tuple[int, list[list[str]]] | str:
    """What an event says, read with the json module, or why it is none; of JSON that is well-formed."""
    event = json.loads(value)
    found: dict[str, Any] = {}
    reasons = []
    for field in filter(None, (form.user, form.time, *form.items)):
        at: object = event
        for name in names_of(field):
            if not isinstance(at, dict):
                reasons.append("wrong_type")
            elif name not in at:
                reasons.append("missing_field")
            at = at.get(name) if isinstance(at, dict) else None
        found[field] = at

    def is_item(one: object) -> bool:
        return isinstance(one, str | int) and not isinstance(one, bool)

    columns: list[list[str]] = []
    for field in form.items:
        one = found[field]
        items = one if field in form.lists else [one]
        if not isinstance(items, list) or not all(map(is_item, items)):
            reasons.append("wrong_type")
            continue
        columns.append([str(item) for item in items])
    if not isinstance(found[form.time or ""], int) or isinstance(found[form.time or ""], bool):
        reasons.append("wrong_type")
    if reasons:
        return "refused"
    if form.user is not None and str(found[form.user]).encode() != key:
        return "refused"
    if any(len(item.encode()) > MAX_ITEM_BYTES for items in columns for item in items):
        return "refused"
    return found[form.time or ""], columns


DEEP = EventFormat(
    ("$.page.id", "$.page.tags", "kind", "$.page.id"), "$.who.id", '$["at"]', "ms", frozenset({"$.page.tags"})
)
ITEM = st.one_of(st.text(max_size=3), st.integers(-5, 5), st.just("x" * (MAX_ITEM_BYTES + 1)), st.none(), st.booleans())
LISTS = st.one_of(st.lists(st.one_of(st.text(max_size=2), st.integers(0, 3)), max_size=4), st.lists(ITEM, max_size=3))
GOOD = st.fixed_dictionaries(
    {
        "page": st.fixed_dictionaries({"id": st.sampled_from(["a", "b", 7]), "tags": LISTS}),
        "kind": st.sampled_from(["k", 3]),
        "who": st.just({"id": "u"}),
        "at": st.integers(0, 20),
    }
)
SPOILT = st.fixed_dictionaries(
    {},
    optional={
        "page": st.one_of(
            ITEM,
            st.lists(ITEM, max_size=2),
            st.fixed_dictionaries({}, optional={"id": st.one_of(ITEM, LISTS), "tags": st.one_of(ITEM, LISTS)}),
        ),
        "kind": st.one_of(ITEM, LISTS),
        "who": st.one_of(ITEM, st.fixed_dictionaries({}, optional={"id": ITEM})),
        "at": st.one_of(ITEM, st.floats(allow_nan=False, allow_infinity=False)),
    },
)
EVENTS = st.lists(
    st.one_of(GOOD, st.tuples(GOOD, SPOILT).map(lambda both: {**both[0], **both[1]}), SPOILT), min_size=1, max_size=6
)


@examples(60, 250, given(EVENTS), derandomize=True, phases=PHASES)
def test_nested_fields_and_lists_are_read_as_a_plain_reading_reads_them(values: list[dict[str, object]]) -> None:
    entries = [Entry(3 * n, b"u", json.dumps(value).encode()) for n, value in enumerate(values)]
    out = EventDecoder(DEEP).decode(entries)

    events: list[tuple[int, bytes, int]] = []
    columns: list[list[tuple[int, bytes, int, str]]] = [[] for _ in DEEP.items]
    refused = []
    for entry in entries:
        said = plain(entry.value or b"", b"u", DEEP)
        if isinstance(said, str):
            refused.append(entry.offset)
            continue
        time, items = said
        events.append((entry.offset, b"u", time))
        for column, found in zip(columns, items, strict=True):
            column += [(entry.offset, b"u", time, item) for item in found]
    assert list(zip(out.offsets, out.users, out.times, strict=True)) == events
    assert [list(zip(*column, strict=True)) for column in out.columns] == columns
    assert [offset for offset, _ in out.refused] == refused


def test_columns_of_single_items_share_the_lists_of_the_events() -> None:
    out = EventDecoder(DEEP).decode([])
    for column, field in zip(out.columns, DEEP.items, strict=True):
        assert (column.offsets is out.offsets) is (field not in DEEP.lists)


TAGS = EventFormat(("tags",), None, "at", "ms", frozenset({"tags"}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"at": 1}, "missing_field"),
        ({"at": 1, "tags": None}, "wrong_type"),
        ({"at": 1, "tags": "a"}, "wrong_type"),
        ({"at": 1, "tags": {"a": 1}}, "wrong_type"),
        ({"at": 1, "tags": ["a", None]}, "wrong_type"),
        ({"at": 1, "tags": ["a", 1.5]}, "wrong_type"),
        ({"at": 1, "tags": ["a", ["b"]]}, "wrong_type"),
        ({"at": 1, "tags": ["a", "x" * (MAX_ITEM_BYTES + 1)]}, "item_too_long"),
        ({"at": 1, "tags": ["a"] * (MOST_ITEMS + 1)}, "too_many_items"),
        ({"at": 1, "tags": ["a"] * MOST_ITEMS}, None),
        ({"at": 1, "tags": []}, None),
    ],
)
def test_one_bad_item_of_a_list_refuses_the_whole_event_for_one_reason(
    value: dict[str, object], reason: str | None
) -> None:
    out = EventDecoder(TAGS).decode([Entry(7, b"u", json.dumps(value).encode())])
    assert out.refused == ([] if reason is None else [(7, reason)])
    assert len(out.columns[0].items) == (0 if reason else len(value["tags"]))  # type: ignore[arg-type]


# -- counting -------------------------------------------------------------------------------------------------------


def tagged(offset: int, user: str, tags: list[str], time: int) -> Entry:
    return Entry(offset, user.encode(), json.dumps({"tags": tags, "at": time, "user": user}).encode())


def test_every_item_of_an_event_is_a_contribution_of_its_own() -> None:
    machine, one = Machine(), counter(view(items_per_user=2), form=TAGS)
    machine.carry_out(one.load(machine))
    entries = [
        tagged(0, "u", ["a", "a", "b", "c"], 1),  # a, a duplicate, b, and one more than the user may add
        tagged(1, "v", [], 1),
        tagged(2, "w", ["a"], 12),
        tagged(3, "w", ["x", "y", "z"], -1),  # an event before the start, with three items
    ]
    machine.carry_out(one.chunk(entries, 5))
    machine.carry_out(one.ticks([23]))
    assert handed_on(machine.sent) == {"pages": {0: {"a": 1, "b": 1}, 10: {"a": 1}}}
    assert letters(machine.sent) == {(3, "before_start"): 1}
    refused = {dict(labels)["reason"]: n for (name, labels), n in totals(machine).items() if name == "events_refused"}
    assert refused == {"duplicate": 1, "clipped": 1, "before_start": 3}


BASKETS = st.lists(
    st.tuples(st.sampled_from("uvw"), st.lists(st.sampled_from("abcd"), max_size=5), st.integers(-3, 30)),
    min_size=1,
    max_size=12,
)


@examples(
    30,
    100,
    given(BASKETS, st.sets(st.integers(1, 11)), st.integers(1, 3), st.booleans()),
    derandomize=True,
    phases=PHASES,
)
def test_lists_count_like_events_with_one_item_each_however_they_are_cut_into_chunks(
    baskets: list[tuple[str, list[str], int]], cuts: set[int], most: int, on_disk: bool
) -> None:
    """Windows in memory and in a spill store, beside a view of single items; a crash behind every chunk."""
    one, single = view(items_per_user=most), view("users")
    both = EventFormat(("user", "tags"), None, "at", "ms", frozenset({"tags"}))
    machine = Machine()
    places = sorted({0, len(baskets), *(cut for cut in cuts if cut < len(baskets))})
    memory = 0 if on_disk else 1 << 30
    for first, end in pairwise(places):
        counting = counter(single, one, form=both, memory=memory)
        machine.carry_out(counting.load(machine))
        machine.carry_out(counting.chunk([tagged(n, *baskets[n]) for n in range(first, end)], 5))
    machine.carry_out(counting.ticks([60]))

    counts: dict[int, Counter[str]] = {start: Counter() for start in range(0, 50, 10)}
    held: dict[tuple[str, int], list[str]] = {}
    for user, items, time in baskets:
        for item in items if time >= 0 else ():
            had = held.setdefault((user, time // 10), [])
            if item not in had and len(had) < most:
                had.append(item)
                counts[time // 10 * 10][item] += 1
    users = {(user, time // 10 * 10) for user, _, time in baskets if time >= 0}
    assert handed_on(machine.sent) == {
        "pages": {start: dict(found) for start, found in counts.items()},
        "users": {start: {user: 1 for user, at in users if at == start} for start in counts},
    }


@settings(derandomize=True, max_examples=100, deadline=None, phases=PHASES)
@given(BASKETS)
def test_one_user_changes_each_count_by_one_and_no_more_of_them_than_the_bound(
    baskets: list[tuple[str, list[str], int]],
) -> None:
    one = view(items_per_user=2)

    def counted(users: str) -> dict[int, Counter[str]]:
        decoded = EventDecoder(TAGS).decode([tagged(n, *b) for n, b in enumerate(baskets) if b[0] in users])
        out = bound_chunk(one, {}, decoded.columns[0], Admission(0, 100, 0))
        return {start: Counter(row.items) for start, row in out.added.items()}

    full, without = counted("uvw"), counted("vw")
    for start in full.keys() | without.keys():
        more = full.get(start, Counter()) - without.get(start, Counter())
        assert not without.get(start, Counter()) - full.get(start, Counter())
        assert set(more.values()) <= {1}
        assert len(more) <= one.items_per_user
