"""What refused records look like: the form of values, fields and their types, units of time, partitioners."""

from __future__ import annotations

import gzip
import json
from zlib import crc32

import pytest

from stream_dp.runtime.sources.diagnosis import (
    LEAST_USERS,
    Fields,
    fits,
    fitting,
    form_of,
    form_of_key,
    most_common_form,
    other_unit,
)
from stream_dp.windows.events import EventFormat, TimeUnit
from tests.support.counting import Entry

NOW = 1_790_000_000_000
YEAR = 366 * 86_400_000


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"\0\0\0\0\7\x0ahello\xff", "Avro or Protobuf of a schema registry"),
        (b'\0\0\0\0\7{"user": 1}', "JSON behind the number of a registry's schema"),
        (gzip.compress(b"{}", mtime=0), "compressed (gzip)"),
        (b"\x28\xb5\x2f\xfd....", "compressed (zstd)"),
        (b"\x04\x22\x4d\x18....", "compressed (lz4)"),
        (b"\x82SNAPPY\0....", "compressed (snappy)"),
        (b"Obj\x01\x04", "files of Avro"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"<user>u1</user>", "XML"),
        (b"u1,/1,1790000000000", "plain text"),
        (b'{"user": "u1", ', "cut off"),
        (b'{"user": "u1"}\n{"user": "u2"}', "several objects"),
        (b'{"user": "u1", "page": NaN}', "NaN or Infinity, which JSON does not have: write null"),
        (b"{'user': 'u1', 'page': \"it's\"}", "single quotes: write double quotes"),
        (b'{"user": "u1", "pages": ["/1", ], }', "a trailing comma: remove it"),
        (b'{"user": "it\'s", "page": None}', "None, True or False of Python"),
        (b'{user: "u1"}', "names without quotes"),
        (b'{"user": "it\'s, }"} {', "several objects"),
        (b"\x0a\x05hello\x12\x02/1", "binary"),
        (b"\x82\xa4user\xa2u1\xa4page", "binary"),
        (b"\0", "binary"),
    ],
)
def test_a_value_that_is_no_json_is_known_by_its_form(value: bytes, words: str) -> None:
    assert words in form_of(value)


@pytest.mark.parametrize(
    ("key", "form"),
    [
        (b"", "empty"),
        ((7).to_bytes(8, "big"), "a whole number in 8 bytes, as written by Java's LongSerializer"),
        ((-7).to_bytes(8, "big", signed=True), "a whole number in 8 bytes, as written by Java's LongSerializer"),
        ((7).to_bytes(4, "big"), "a whole number in 4 bytes, as written by Java's IntegerSerializer"),
        (b'"u1"', "JSON"),
        (b'{"id": 7}', "JSON"),
        (b"\0\0\0\0\7\x04u1", "Avro, Protobuf or JSON of a schema registry"),
        (b"\0\0\0\0\7\x0ahello", "Avro, Protobuf or JSON of a schema registry"),
        (bytes(range(128, 144)), "binary"),
        (b"u1", ""),
        (b"12345678", ""),
        ("bjørn".encode(), ""),
    ],
)
def test_form_of_a_key_that_is_not_text_is_recognised(key: bytes, form: str) -> None:
    assert form_of_key(key) == form


def test_the_form_of_most_values_is_told_and_none_of_none() -> None:
    assert "XML" in most_common_form([b"<a/>", b"u1", b"<b/>"])
    assert most_common_form([]) == ""


def entries(*values: object, users: int = 40) -> list[Entry]:
    """A record of each user, with the values in turn."""
    return [Entry(n, f"u{n}".encode(), json.dumps(values[n % len(values)]).encode()) for n in range(users)]


def test_only_fields_that_most_users_have_are_named() -> None:
    fields = Fields(entries({"user": 1, "pages": 2, "at": 3}, {"user": 1, "at": 3, "zelda": 1}, {"user": 2, "at": 3}))
    assert fields.names == ["at", "user"]
    assert fields.missing(["user", "page"]) == ["page"]


def test_no_field_is_named_that_few_users_have_however_often_they_write() -> None:
    often = [Entry(n, b"zelda", b'{"cellar-door": 1}') for n in range(1000)]
    assert Fields(often).names == []
    assert Fields([*often, *entries({"user": 1}, users=LEAST_USERS - 1)]).names == ["user"]
    assert Fields(entries({"user": 1}, users=LEAST_USERS - 1)).names == []


def test_no_field_is_named_that_is_long_or_moves_a_cursor() -> None:
    assert Fields(entries({"a" * 65: 1, "\x1b[2J": 1, "page": 1})).names == ["page"]


def test_fields_inside_an_envelope_are_found() -> None:
    fields = Fields(entries({"schema": {}, "payload": {"user": 1, "page": 2}}))
    assert fields.around("page") == "$.payload.page"
    assert Fields(entries({"user": 1, "other": {"x": 1}})).around("page") == ""


def test_fields_are_looked_for_along_a_path_and_those_beside_it_are_named() -> None:
    fields = Fields(entries({"user": 1, "page": {"id": 2, "full name": "x"}, "tags": ["a", None]}))
    assert fields.missing(["$.page.id", "$.page.idd", "$.user.id", "page"]) == ["$.page.idd", "$.user.id"]
    assert fields.beside("$.page.idd") == ["$.page.id", '$.page["full name"]'][::-1]
    assert fields.beside("$.user.id") == ["page", "tags", "user"]
    assert fields.beside("$.no.where.at.all") == ["page", "tags", "user"]
    assert (fields.types("$.page.id"), fields.types("tags"), fields.types_inside("tags")) == (
        "a whole number",
        "a list",
        "null",
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true or false"),
        (7, "a whole number"),
        (0.5, "a number with a decimal point"),
        ("x", "a text"),
        ([1], "a list"),
        ({"a": 1}, "an object"),
    ],
)
def test_the_type_of_a_field_and_of_a_value_that_is_no_object_is_told(value: object, words: str) -> None:
    assert Fields(entries({"page": value})).types("page") == words
    assert Fields(entries({"page": value})).no_objects() == ""
    if not isinstance(value, dict):
        assert Fields(entries(value)).no_objects() == words


def test_a_field_that_says_what_the_key_says_is_found() -> None:
    records = [Entry(n, b"u%d" % n, json.dumps({"id": f"u{n}", "user": "x", "page": n}).encode()) for n in range(40)]
    assert Fields(records).like_keys() == ["id"]


@pytest.mark.parametrize(
    ("value", "unit"),
    [(NOW, "ms"), (NOW // 1000, "s"), ("2026-09-21T00:00:00Z", "iso"), (NOW * 1000, ""), ("yesterday", ""), (1.5, "")],
)
def test_the_unit_of_a_field_is_known_by_its_values(value: object, unit: str) -> None:
    assert Fields(entries({"at": value})).unit("at", NOW) == unit
    assert Fields(entries({"at": value})).unit("when", NOW) == ""


@pytest.mark.parametrize(
    ("unit", "time", "other"),
    [
        ("ms", NOW // 1000, "s"),
        ("ms", NOW * 1000, "microseconds"),
        ("ms", NOW * 10**6, "nanoseconds"),
        ("s", NOW * 1000, "ms"),
        ("s", NOW * 10**6, "microseconds"),
        ("s", NOW * 10**9, "nanoseconds"),
        ("ms", NOW - 29 * YEAR, ""),
        ("ms", NOW - 40 * YEAR, ""),
        ("iso", NOW // 1000, ""),
    ],
)
def test_times_that_were_read_in_a_wrong_unit_are_known(unit: TimeUnit, time: int, other: str) -> None:
    times = [(NOW, NOW), (time, NOW), (time + 1000, NOW)]
    found, mended = other_unit(EventFormat(("page",), None, "at", unit), times)
    assert (found, mended) == (other, [1, 2] if other else [])


def test_the_timestamp_of_a_record_has_no_unit_to_be_wrong_in() -> None:
    assert other_unit(EventFormat(("page",), None, None, "ms"), [(NOW // 1000, NOW)]) == ("", [])


def test_a_partitioner_fits_whose_users_stand_where_it_puts_them_and_nowhere_else() -> None:
    places = {b"u%d" % n: {crc32(b"u%d" % n) % 4} for n in range(100)}
    found = fitting(
        places, {"crc32": lambda users: [crc32(user) % 4 for user in users], "first": lambda users: [0] * len(users)}
    )
    assert found["crc32"] == 100
    assert found["first"] < 40
    assert fits(100, 100)
    assert fits(95, 100)
    assert not fits(94, 100)
    assert not fits(LEAST_USERS - 1, LEAST_USERS - 1)
    twice = {user: {0, 1, 2, 3} for user in places}
    assert fitting(twice, {"crc32": lambda users: [crc32(user) % 4 for user in users]}) == {"crc32": 0}
