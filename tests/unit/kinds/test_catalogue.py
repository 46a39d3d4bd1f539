"""The kind `catalogue`: where its list comes from, what it shows of it, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import KeyedBits
from stream_dp.kinds.catalogue import CataloguePlan
from stream_dp.kinds.public_lists import LARGEST_NUMBER, MOST_KEYS, KeyList, NumberRange
from stream_dp.runtime.factory import counted_view
from stream_dp.windows.events import MAX_ITEM_BYTES
from tests.support.sealing import Reading, read_window, seal_window

Planner = Callable[..., Plan]
KEY = bytes(range(32))
WRITE = (
    "views.destinations.catalogue: "
    'write a list of keys, {file: "keys.txt"}, {topic: name}, {numbers: {from: 1, to: 9}} or '
    "{from: VIEW, audience: NAME, keep: 4}"
)
HISTOGRAM = "    kind: histogram\n    items_per_user: 5\n"
COUNTS = {"ATL": 900, "BOS": 400, "XXX": 700}


@pytest.fixture
def view(planned: Planner) -> Callable[..., ViewPlan]:
    """The destinations as a catalogue of what is written."""

    def of(written: str, *changes: tuple[str, str]) -> ViewPlan:
        kind = f"    kind: catalogue\n    catalogue: {written}\n    items_per_user: 5\n"
        return planned((HISTOGRAM, kind), ('    delta: "1e-6"\n', ""), *changes).views["destinations"]

    return of


def read(view: ViewPlan, counts: dict[str, int], lists: dict[str, KeyList] | None = None) -> list[Reading]:
    table = seal_window(
        view, 0, counts, prf_key=KEY, entropy=lambda context: KeyedBits(KEY, context), lists=lists or {}
    )
    return read_window(view, 0, table, [0, 1, 2], KEY)


def test_every_key_of_the_list_is_shown_and_no_other(view: Callable[..., ViewPlan]) -> None:
    for reading in read(view("[ATL, BOS, LAX]"), COUNTS):
        assert {item for item, _ in reading.items} == {"ATL", "BOS", "LAX"}
        counts = [count for _, count in reading.items]
        assert counts == sorted(counts, reverse=True)
        assert reading.fields["catalogue"].keys == 3


def test_a_window_of_nobody_shows_noise_alone_of_either_sign(view: Callable[..., ViewPlan]) -> None:
    listed = json.dumps([f"key {n}" for n in range(200)])
    for reading in read(view(listed), {}):
        signs = {count > 0 for _, count in reading.items if count}
        assert signs == {True, False}


def test_it_costs_its_level_and_nothing_else(view: Callable[..., ViewPlan]) -> None:
    """specs/lossless 6.4: the keys are public, so there is no delta and nothing to choose."""
    listed = view("[ATL, BOS, LAX]")
    assert listed.keys_at_worst == Cost.ZERO
    assert [listed.cost(level) for level in range(3)] == [
        Cost(epsilon, Fraction(0)) for epsilon in (Fraction(1, 4), Fraction(1), Fraction(4))
    ]


def test_a_user_moves_no_more_counts_than_the_list_has(view: Callable[..., ViewPlan]) -> None:
    assert view("[ATL, BOS]").kind.sensitivity == 2
    assert view("[ATL, BOS, LAX, JFK, ORD, SFO]").kind.sensitivity == 5
    assert view("{topic: places}").kind.sensitivity == 5


def test_a_file_has_one_key_a_line(view: Callable[..., ViewPlan], tmp_path: Path) -> None:
    (tmp_path / "places.txt").write_bytes("ATL\r\n\nZürich\u2028airport\nBOS".encode())
    plan = view("{file: places.txt}").kind
    assert isinstance(plan, CataloguePlan)
    assert plan.listed == KeyList.of(["ATL", "BOS", "Zürich\u2028airport"])


def test_a_record_names_the_list_it_was_made_from(view: Callable[..., ViewPlan]) -> None:
    listed = view("{topic: places}")
    lists = [KeyList.of(["ATL", "BOS"]), KeyList.of(["ATL", "LAX"])]
    versions = [read(listed, COUNTS, {"places": one})[0].fields["catalogue"].version for one in lists]
    assert versions == [one.version for one in lists]
    assert read(view("[BOS, ATL]"), COUNTS)[0].fields["catalogue"].version == versions[0]


def test_a_range_of_numbers_is_a_list(view: Callable[..., ViewPlan]) -> None:
    counts = {"9": 40, "10": 30, "010": 20, "12": 10, "x": 7, "-9": 3}
    listed = view("{numbers: {from: 9, to: 11}}")
    for reading in read(listed, counts):
        assert {item for item, _ in reading.items} == {"9", "10", "11"}
        assert reading.fields["catalogue"].keys == 3
        assert reading.fields["catalogue"].version == NumberRange(9, 11).version
    domain = listed.kind.domain({})
    assert domain is not None
    assert [key for key in counts if key in domain] == ["9", "10"]
    assert listed.kind.sensitivity == 3
    assert view("{numbers: {from: 9, to: 9}}").fingerprint != view("{numbers: {from: 9, to: 10}}").fingerprint


def test_a_list_that_is_written_down_belongs_to_the_view_and_one_in_a_topic_by_its_name(
    view: Callable[..., ViewPlan], tmp_path: Path
) -> None:
    (tmp_path / "places.txt").write_text("BOS\nATL\n")
    same = {view(written).fingerprint for written in ("[ATL, BOS]", "[BOS, ATL]", "{file: places.txt}")}
    others = {view(written).fingerprint for written in ("[ATL]", "{topic: places}", "{topic: other}")}
    assert len(same) == 1
    assert len(same | others) == 4


def test_what_is_not_on_a_written_list_is_not_counted(view: Callable[..., ViewPlan]) -> None:
    assert counted_view(view("[ATL, BOS, LAX]"), 0).domain == KeyList.of(["ATL", "BOS", "LAX"])
    assert counted_view(view("{topic: places}"), 0).domain is None


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("[ATL, ATL]", "views.destinations.catalogue: duplicate key 'ATL'"),
        ("[]", WRITE),
        ("places", WRITE),
        (
            "[IAH, 7]",
            'views.destinations.catalogue: key 2 is 7, but a key must be text: quote it as it is in events, "7"',
        ),
        (
            "[1.50]",
            'views.destinations.catalogue: key 1 is 1.50, but a key must be text: quote it as it is in events, "1',
        ),
        (
            "[true]",
            'views.destinations.catalogue: key 1 is true, but a key must be text: quote it as it is in events, "t',
        ),
        ("[null]", "views.destinations.catalogue: key 1 is empty or not text; quote it"),
        ("{numbers: {from: 1}}", WRITE),
        ('{numbers: {from: "1", to: 2}}', WRITE),
        ("{numbers: {from: 1, to: 2, by: 1}}", WRITE),
        (
            "{numbers: {from: 2, to: 1}}",
            f"views.destinations.catalogue: numbers go from one of 0 to {LARGEST_NUMBER} to",
        ),
        ("{numbers: {from: -1, to: 1}}", "views.destinations.catalogue: numbers go from one of 0"),
        ("{numbers: {from: 1, to: true}}", "views.destinations.catalogue: numbers go from one of 0"),
        (f"{{numbers: {{from: 1, to: {LARGEST_NUMBER + 1}}}}}", "views.destinations.catalogue: numbers go from one of"),
        (
            "{numbers: {from: 1, to: 1000001}}",
            "views.destinations.catalogue: the range must have at most 1000000 numbers, not 1000001",
        ),
        ("{file: none.txt}", "views.destinations.catalogue.file: cannot be read: No such file or directory"),
        ("{topic: flights}", "views.destinations: 'flights' is a topic of source 'flights': its records are no public"),
        ("{topic: flights.releases.x}", "views.destinations: 'flights.releases.x' could be an internal topic"),
        ('{topic: "a b"}', "views.destinations.catalogue: a topic's name is 1 to 249 characters"),
    ],
)
def test_a_list_that_cannot_be_used_is_a_fault(view: Callable[..., ViewPlan], written: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        view(written)
    assert [str(one)[: len(fault)] for one in caught.value.faults] == [fault]


def test_a_list_that_cannot_be_released_is_refused_wherever_it_stands(view: Callable[..., ViewPlan]) -> None:
    listed, most = view("{topic: places}"), range(MOST_KEYS)
    longest = "x" * (MAX_ITEM_BYTES - 2) + "é"
    listed.kind.check_lists({"places": KeyList.of([longest])})
    listed.kind.check_lists({"places": KeyList(tuple(map(str, most)), "0" * 16)})
    for keys, fault in (
        ((), "the list must have between 1 and 1000000 keys, not 0"),
        (tuple(map(str, (*most, MOST_KEYS))), "the list must have between 1 and 1000000 keys, not 1000001"),
        ((longest + "x",), "has 1025 bytes in UTF-8; a key has 1024 at most, and 1 of them have more"),
    ):
        with pytest.raises(ConfigError, match=fault):
            listed.kind.check_lists({"places": KeyList(keys, "0" * 16)})
    with pytest.raises(ConfigError, match="has 1025 bytes in UTF-8"):
        view(f"[{longest}x]")
