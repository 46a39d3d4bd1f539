"""A release that is too large for one record: how it is cut, and how a reader puts it together."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stream_dp.records.codec import decode, encode, encode_parts, outline, schema, topic_key
from stream_dp.records.history import History, Joiner
from stream_dp.records.models import CountRow, Part, Release
from stream_dp.windows.encoding import cut
from tests.support.chosen import ordinarily
from tests.support.schemas import mismatch

Make = Callable[..., Any]
MANY = {f"page {number} é\n": 900 - number for number in range(200)}
"""Keys that JSON and UTF-8 write longer than they are."""
MOST = 3200


def parts_of(record: Any, most: int = MOST) -> list[Release]:
    found = [decode(value) for _, value in encode_parts(record, most)]
    assert all(isinstance(part, Release) for part in found)
    return [part for part in found if isinstance(part, Release)]


def test_a_record_that_fits_is_published_as_it_always_was(release: Make, refusal: Make) -> None:
    for record in (release({"home": 40}), release({}), refusal()):
        size = len(encode(record)) + len(topic_key(record))
        assert encode_parts(record, size) == [(topic_key(record), encode(record))]
        assert b'"part"' not in encode(record)


@pytest.mark.parametrize("view", ordinarily(1, ["pages", "searches"]))
def test_parts_are_valid_records_of_bounded_size_that_make_up_the_release(release: Make, view: str) -> None:
    whole = release(MANY, view=view)
    encoded = encode_parts(whole, MOST)
    parts = parts_of(whole)
    assert len(parts) > 3
    for number, ((key, value), part) in enumerate(zip(encoded, parts, strict=True), start=1):
        assert len(key) + len(value) <= MOST
        assert (part.part.number, part.part.of) == (number, len(parts)) if part.part else False
        assert key == topic_key(part) == topic_key(whole) + (b"" if number == 1 else b"/%d" % number)
        assert encode(part) == value
        for name in (whole.kind, "record"):
            assert mismatch(json.loads(value), schema(name), schema(name)) == []
        assert part.model_copy(update={"items": whole.items, "part": None}) == whole
        what = outline(value)
        assert what is not None
        assert what.revision == whole.revision
    assert tuple(item for part in parts for item in part.items) == whole.items


def test_items_are_written_as_rows_with_the_bytes_that_they_have_as_items(release: Make) -> None:
    """Cut, too, where they were cut when each was written by itself."""
    whole = release(MANY)
    rows = whole.model_copy(update={"items": [CountRow(item.count, item.item) for item in whole.items]})
    data = whole.model_dump(mode="json", exclude_none=True)
    assert encode(rows) == encode(whole) == msgspec.json.encode(data, order="sorted")
    for most in (MOST, MOST + 1, MOST + 17, 5 * MOST, 1 << 20):
        parts = encode_parts(rows, most)
        assert parts == encode_parts(whole, most)
        if len(parts) == 1:
            continue
        frame = whole.model_copy(update={"items": (), "part": Part(number=len(encode(whole)), of=len(encode(whole)))})
        room = most - len(topic_key(frame)) - len(encode(frame))
        some = list(cut(data["items"], lambda item: 1 + len(msgspec.json.encode(item)), room))
        assert [json.loads(value)["items"] for _, value in parts] == some


def test_a_release_of_one_item_too_many_has_two_parts(release: Make) -> None:
    whole = release(MANY)
    size = len(encode(whole)) + len(topic_key(whole))
    assert len(encode_parts(whole, size)) == 1
    assert len(encode_parts(whole, size - 1)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_put_together_in_whatever_order_and_however_often_they_are_read(release: Make, seed: int) -> None:
    whole, chance = release(MANY), random.Random(seed)
    parts = parts_of(whole)
    read = [*parts, *chance.choices(parts, k=5)]
    chance.shuffle(read)
    joiner = Joiner()
    found = [one for part in read if (one := joiner.take(part)) is not None]
    assert found[0] == whole
    assert all(one == whole for one in found)


def test_what_compaction_leaves_of_a_replaced_revision_is_no_release(release: Make) -> None:
    """The sharper revision has fewer parts, so the last keys of the former one still stand."""
    first, sharper = release(MANY), release(dict(list(MANY.items())[:80]), level=1, revision=2)
    former, later = parts_of(first), parts_of(sharper)
    assert len(later) < len(former)
    history = History()
    for part in (*former[len(later) :], *later[:-1]):
        assert history.take(part) is None
    assert history.windows("pages", "public") == {}, "nothing is whole yet"
    seen = history.take(later[-1])
    assert seen is not None
    assert (seen.release, seen.before) == (sharper, None)
    assert list(history.releases()) == [sharper]


def test_parts_of_two_revisions_and_two_windows_are_kept_apart(release: Make) -> None:
    records = [release(MANY), release(MANY, revision=2, level=1), release(MANY, day=1), release(MANY, audience="staff")]
    cut = [parts_of(record, MOST + 100) for record in records]
    joiner, found = Joiner(), []
    for together in zip(*cut, strict=True):
        found += [joiner.take(part) for part in together]
    assert [one for one in found if one is not None] == records


def test_an_earlier_revision_that_gets_whole_late_does_not_replace_the_later_one(release: Make) -> None:
    first, sharper = release(MANY), release(MANY, revision=2, level=1)
    history = History()
    *begun, last = parts_of(first)
    for part in (*begun, *parts_of(sharper), last):
        history.take(part)
    (seen,) = history.windows("pages", "public").values()
    assert (seen.release, seen.before) == (sharper, None)
