"""What differs between two configurations: values are compared, and said in the words of the files."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.config.differences import differences
from stream_dp.config.file_schema import ENTRIES
from stream_dp.config.yaml_data import Data, parse_yaml, write_yaml
from tests.support.published import VISITS


def raw(*changes: tuple[str, str]) -> dict[str, Any]:
    """The data of the application about visits with some of its text replaced."""
    text = VISITS
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    data, faults = parse_yaml(text)
    assert not faults
    return data


def said(*changes: tuple[str, str]) -> list[str]:
    return [str(setting) for setting in differences(raw(), raw(*changes))]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("k: 3", "k: 10", "views.searches.k 3 -> 10"),
        ("{size: 1d}", "{size: 12h}", "views.pages.window.size 1d -> 12h"),
        ("{size: 1d}", "{size: 1d, grace: 1m}", "views.pages.window.grace 5m (default) -> 1m"),
        ('delta: "1e-6"', 'delta: "1e-7"', "views.pages.delta 1e-6 -> 1e-7"),
        ('epsilon: "1/5"', 'epsilon: "1/4"', "ladders.searches.fine.epsilon 1/5 -> 1/4"),
        ("{level: finest, ", "{level: sharp, ", "ladders.pages.sharp.epsilon is new: 2"),
        ("staff: fine", "staff: coarse", "audiences.staff fine -> coarse"),
        ("staff: fine", "staff: fine, press: coarse", "audiences.press is new: coarse"),
        (", staff: fine", "", "audiences.staff is gone: fine"),
        ("period: 10d", "period: 20d", "ledgers.visitors.period 10d -> 20d"),
        ("ladder: pages}", 'ladder: pages, share: "1/2"}', "views.pages.share is new: 1/2"),
        ("ladder: pages}", "ladder: pages, audiences: [staff]}", "views.pages.audiences is new: [staff]"),
        ("  searches:\n    {source", "  queries:\n    {source", "views.queries is new"),
        ("partitions: 2", "partitions: 3", "sources.visits.partitions 2 -> 3"),
    ],
)
def test_a_setting_that_differs_is_told_in_the_words_of_the_file(old: str, new: str, words: str) -> None:
    assert said((old, new))[0] == words


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{size: 1d}", "{size: 24h, grace: 300s, clock: wall}"),
        ('epsilon: "2"', 'epsilon: "4/2"'),
        ("items_per_user: 1, delta", "buckets: 16, items_per_user: 1, delta"),
        ("name: visits", "name: others"),
        ("data_dir: ./state", "data_dir: ./elsewhere"),
    ],
)
def test_the_same_in_other_words_and_what_is_each_machine_s_own_do_not_differ(old: str, new: str) -> None:
    assert said((old, new)) == []


def test_going_back_differs_in_the_same_places_the_other_way_round() -> None:
    changed = raw(("k: 3", "k: 10"), ("staff: fine", "press: coarse"), ("{size: 1d}", "{size: 12h, grace: 1m}"))
    there, back = differences(raw(), changed), differences(changed, raw())
    turned = {"added": "removed", "removed": "added", "changed": "changed"}
    assert {(one.path, one.change, one.before, one.after) for one in there} == {
        (one.path, turned[one.change], one.after, one.before) for one in back
    }
    assert len(there) == 5


def test_a_view_of_another_kind_differs_in_what_the_kinds_have_of_their_own() -> None:
    other = ('kind: topk, k: 3, kbar: 5, selection: {epsilon: "1/10", delta: "1e-7"}', 'kind: histogram, delta: "1e-7"')
    assert set(said(other)) == {
        "views.searches.kind topk -> histogram",
        "views.searches.delta is new: 1e-7",
        "views.searches.k is gone: 3",
        "views.searches.kbar is gone: 5",
        "views.searches.selection.mechanism is gone: gumbel (default)",
        "views.searches.selection.epsilon is gone: 1/10",
        "views.searches.selection.delta is gone: 1e-7",
    }


def test_sections_alone_are_compared_like_whole_files() -> None:
    former, latter = raw(), raw(("k: 3", "k: 10"))
    parts = [{name: data[name] for name in ENTRIES} for data in (former, latter)]
    assert differences(*parts) == differences(former, latter)


@pytest.mark.parametrize(
    "text", ["1e-6", "0.25", "1/3", "1:30", "true", "null", "", "12", "2024-01-01T00:00:00Z", "no: x", "- a"]
)
def test_a_written_text_is_read_back_as_the_same_text(text: str) -> None:
    data: dict[str, Data] = {"a": text, "b": [text, 3, True, None], "c": {"d": text}}
    assert parse_yaml(write_yaml(data)) == (data, [])


def test_a_written_file_is_read_back_as_it_was() -> None:
    assert parse_yaml(write_yaml(raw())) == (raw(), [])
