"""What is an event and what is not: whatever a record holds, it is counted or refused, and the step goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.windows.events import (
    MAX_ITEM_BYTES,
    MAX_KEY_BYTES,
    UNREADABLE_HEADER,
    UNREADABLE_REASONS,
    WATERMARK_HEADER,
    Decoded,
    EventDecoder,
    EventFormat,
    KeyReader,
    TimeUnit,
)
from stream_dp.windows.nesting import MAX_NESTING
from tests.support.chosen import examples
from tests.support.counting import FORM, Entry, counter, event, handed_on, letters, view
from tests.support.machine import Machine
from tests.support.phases import PHASES


def decoder(*items: str, user: str | None = None, unit: TimeUnit = "ms") -> EventDecoder:
    return EventDecoder(EventFormat(items or ("page",), user, "at", unit))


def refusal(
    value: bytes | None, key: bytes | None = b"u", *, user: str | None = None, unit: TimeUnit = "ms"
) -> str | None:
    """The reason why a record is refused, None if it is an event."""
    out = decoder(user=user, unit=unit).decode([Entry(7, key, value)])
    assert len(out.offsets) + len(out.refused) == 1
    assert [offset for offset, _ in out.refused] in ([], [7])
    return out.refused[0][1] if out.refused else None


DIGITS = b"9" * 5000
DEEP = 100_000
WIDE = "\U0001f600".encode()
VALUES: dict[str, tuple[bytes, str | None]] = {
    "an event": (b'{"page":"a","at":1}', None),
    "fields nobody asked for": (b'{"page":"a","at":1,"more":[{}],"page2":null}', None),
    "a number as item": (b'{"page":17,"at":1}', None),
    "an empty item": (b'{"page":"","at":1}', None),
    "a zero byte in the item": (b'{"page":"a\\u0000b","at":1}', None),
    "the longest item": (b'{"page":"%b","at":1}' % (b"x" * MAX_ITEM_BYTES), None),
    "an item too long": (b'{"page":"%b","at":1}' % (b"x" * (MAX_ITEM_BYTES + 1)), "item_too_long"),
    "the longest item of few characters": (b'{"page":"%b","at":1}' % (WIDE * (MAX_ITEM_BYTES // 4)), None),
    "few characters, but too many bytes": (b'{"page":"%b","at":1}' % (WIDE * 256 + b"x"), "item_too_long"),
    "a number too long as item": (b'{"page":%b,"at":1}' % DIGITS[:2000], "item_too_long"),
    "a negative time": (b'{"page":"a","at":-1}', None),
    "a huge time": (b'{"page":"a","at":%b}' % DIGITS[:400], None),
    "a time of 5000 digits": (b'{"page":"a","at":%b}' % DIGITS, "wrong_type"),
    "an item of 5000 digits": (b'{"page":%b,"at":1}' % DIGITS, "wrong_type"),
    "a time that is no whole number": (b'{"page":"a","at":1.5}', "wrong_type"),
    "a time with an exponent": (b'{"page":"a","at":1e300}', "wrong_type"),
    "a time as text": (b'{"page":"a","at":"1"}', "wrong_type"),
    "true as time": (b'{"page":"a","at":true}', "wrong_type"),
    "null as item": (b'{"page":null,"at":1}', "wrong_type"),
    "a list as item": (b'{"page":["a"],"at":1}', "wrong_type"),
    "a float as item": (b'{"page":1.5,"at":1}', "wrong_type"),
    "no object": (b'["a",1]', "wrong_type"),
    "null": (b"null", "wrong_type"),
    "no item": (b'{"at":1}', "missing_field"),
    "no time": (b'{"page":"a"}', "missing_field"),
    "NaN": (b'{"page":"a","at":NaN}', "malformed_json"),
    "Infinity": (b'{"page":"a","at":Infinity}', "malformed_json"),
    "half an object": (b'{"page":"a"', "malformed_json"),
    "something behind it": (b'{"page":"a","at":1}{}', "malformed_json"),
    "no UTF-8": (b'{"page":"\xff","at":1}', "malformed_json"),
    "a lone surrogate, escaped": (b'{"page":"\\ud800","at":1}', "malformed_json"),
    "a lone surrogate, encoded": (b'{"page":"\xed\xa0\x80","at":1}', "malformed_json"),
    "a byte order mark": (b'\xef\xbb\xbf{"page":"a","at":1}', "malformed_json"),
    "lists too deep": (b'{"x":%b' % (b"[" * DEEP), "malformed_json"),
    "objects too deep": (b'{"x":' * DEEP, "malformed_json"),
    "nothing": (b"", "null_value"),
}


@pytest.mark.parametrize("case", VALUES)
def test_a_value_is_an_event_or_refused_with_its_reason(case: str) -> None:
    value, reason = VALUES[case]
    assert refusal(value) == reason


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b'{"page":"a","at":1}', "null_key"),
        (None, None, "null_key"),
        (None, b"", "null_key"),
        (b"u", None, "null_value"),
        (b"", b'{"page":"a","at":1}', "bad_key"),
        (b"k" * MAX_KEY_BYTES, b'{"page":"a","at":1}', None),
        (b"k" * (MAX_KEY_BYTES + 1), b'{"page":"a","at":1}', "bad_key"),
        (b"\xff\x00", b'{"page":"a","at":1}', None),
    ],
)
def test_a_key_names_a_user_or_the_record_is_refused(
    key: bytes | None, value: bytes | None, reason: str | None
) -> None:
    assert refusal(value, key) == reason


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        (b'"u"', None),
        (b'"v"', "key_mismatch"),
        (b"7", "key_mismatch"),
        (b'"\\ud800"', "malformed_json"),
        (DIGITS[:4000], "key_mismatch"),
        (DIGITS, "wrong_type"),
        (b"null", "wrong_type"),
    ],
)
def test_a_user_field_must_repeat_the_key(user: bytes, reason: str | None) -> None:
    assert refusal(b'{"page":"a","at":1,"who":%b}' % user, user="who") == reason
    assert refusal(b'{"page":"a","at":1}', user="who") == "missing_field"
    assert refusal(b'{"page":"a","at":1,"who":7}', b"7", user="who") is None


ISO = {
    "2013-01-01T00:00:00Z": 1356998400000,
    "2013-01-01T02:00:00+02:00": 1356998400000,
    "2012-12-31T18:30:00-05:30": 1356998400000,
    "2013-01-01T00:00:00": 1356998400000,
    "2013-01-01": 1356998400000,
    "2013-01-01 00:00:00.123456789Z": 1356998400123,
    "1969-12-31T23:59:59.9999Z": -1,
    "0001-01-01T00:00:00+23:59": -62135683140000,
    "9999-12-31T23:59:59-23:59": 253402387139000,
}


@pytest.mark.parametrize("value", ISO)
def test_iso_times_are_milliseconds_in_utc_rounded_down(value: str) -> None:
    record = Entry(0, b"u", json.dumps({"page": "a", "at": value}).encode())
    assert decoder(unit="iso").decode([record]).times == [ISO[value]]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("2013-02-30", "wrong_type"),
        ("2013-01-01T00:00:60Z", "wrong_type"),
        ("10000-01-01", "wrong_type"),
        ("today", "wrong_type"),
        ("", "wrong_type"),
        (1356998400000, "wrong_type"),
        ("2013-01-01\ud800", "malformed_json"),
    ],
)
def test_an_iso_time_that_is_none_is_refused(value: object, reason: str) -> None:
    assert refusal(json.dumps({"page": "a", "at": value}).encode(), unit="iso") == reason


def test_times_in_seconds_and_of_the_record() -> None:
    record = Entry(0, b"u", b'{"page":"a","at":12}', timestamp=99)
    assert decoder(unit="s").decode([record]).times == [12_000]
    assert decoder(unit="ms").decode([record]).times == [12]
    assert EventDecoder(EventFormat(("page",), None, None, "ms")).decode([record]).times == [99]


def test_several_views_have_their_own_columns_and_may_share_a_field() -> None:
    record = Entry(0, b"u", b'{"page":"a","query":7,"at":12}')
    columns = decoder("page", "query", "page").decode([record]).columns
    assert [column.items for column in columns] == [["a"], ["7"], ["a"]]


@pytest.mark.parametrize(
    "form",
    [
        EventFormat(("who",), "who", "at", "ms"),
        EventFormat(("at",), None, "at", "ms"),
        EventFormat(("page",), "at", "at", "ms"),
    ],
)
def test_one_field_may_serve_as_item_user_and_time(form: EventFormat) -> None:
    """Nothing in the configuration forbids it: a histogram over users, for one, has its user field as its item."""
    out = EventDecoder(form).decode([Entry(0, b"5", b'{"page":"a","who":"5","at":5}')])
    assert (out.users, out.times) == ([b"5"], [5])


# -- watermarks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        (b"5", (5, None)),
        (b"-5", (-5, None)),
        (b"9" * 40, (10**40 - 1, None)),
        (b"", (None, "bad_watermark")),
        (b"soon", (None, "bad_watermark")),
        (b"1e5", (None, "bad_watermark")),
        (b"\xff", (None, "bad_watermark")),
        (DIGITS, (None, "bad_watermark")),
        (None, (None, "bad_watermark")),
    ],
)
@pytest.mark.parametrize("value", [b"", None])
def test_a_watermark_is_a_whole_number_in_a_header_or_refused(
    header: bytes | None, outcome: tuple[int | None, str | None], value: bytes | None
) -> None:
    """Kafka allows a header without a value."""
    record = Entry(3, None, value, headers=[("trace", b"x"), (WATERMARK_HEADER, header)])  # type: ignore[list-item]
    out = decoder().decode([record])
    mark, reason = outcome
    assert out.watermarks == ([] if mark is None else [(3, mark)])
    assert out.refused == ([] if reason is None else [(3, reason)])


@pytest.mark.parametrize("reason", sorted(UNREADABLE_REASONS))
def test_unreadable_record_is_refused_for_its_reason(reason: str) -> None:
    out = decoder().decode([Entry(3, None, None, headers=[(UNREADABLE_HEADER, reason.encode())])])
    assert (out.times, out.watermarks, out.refused) == ([], [], [(3, reason)])


@pytest.mark.parametrize("reason", [b"planted", b"\xff", b"", None])
def test_producer_cannot_invent_a_reason(reason: bytes | None) -> None:
    """Reasons are labels of metrics."""
    record = Entry(3, None, None, headers=[(UNREADABLE_HEADER, reason)])  # type: ignore[list-item]
    assert decoder().decode([record]).refused == [(3, "null_key")]


def test_a_record_with_a_value_is_an_event_whatever_its_headers_say() -> None:
    record = Entry(3, b"u", b'{"page":"a","at":12}', headers=[(WATERMARK_HEADER, b"5")])
    out = decoder().decode([record])
    assert (out.times, out.watermarks, out.refused) == ([12], [], [])


# -- the step goes on -----------------------------------------------------------------------------------------------


def test_a_chunk_of_bad_records_counts_each_and_stops_nothing() -> None:
    bad = [value for value, reason in VALUES.values() if reason is not None]
    entries = [Entry(offset, b"u", value) for offset, value in enumerate(bad)]
    machine, one = Machine(), counter(view(), form=FORM)
    machine.carry_out(one.load(machine))

    machine.carry_out(one.chunk([*entries, event(len(bad), "u", "a", 1)], 5))
    machine.carry_out(one.ticks([13]))

    assert handed_on(machine.sent) == {"pages": {0: {"a": 1}}}
    assert {offset for offset, _ in letters(machine.sent)} == set(range(len(bad)))
    reasons = Counter(reason for _, reason in VALUES.values() if reason is not None)
    counted = {labels: n for (name, labels), n in machine.counts.items() if name == "events_refused"}
    assert counted == {(("reason", reason), ("view", "")): n for reason, n in reasons.items()}


@pytest.mark.parametrize("time", [-(10**40), -1, 10**40])
def test_a_time_beyond_every_clock_is_refused_and_stops_nothing(time: int) -> None:
    machine, one = Machine(), counter(view(), form=FORM)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([event(0, "u", "a", time)], 5))
    assert letters(machine.sent) == {(0, "future" if time > 0 else "before_start"): 1}


def test_a_dead_letter_tells_where_the_record_stands_and_nothing_of_what_it_holds() -> None:
    machine, one = Machine(), counter(view(), form=FORM, partition=5)
    machine.carry_out(one.load(machine))
    machine.carry_out(one.chunk([Entry(4, b"name", b"secret"), event(6, "name", "secret", -1)], 5))
    assert [(m.key, m.value, m.headers) for m in machine.sent] == [
        (None, b"5/4/malformed_json/pages", {}),
        (None, b"5/6/before_start/pages", {}),
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["page", "at", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@examples(
    75,
    300,
    given(
        st.lists(
            st.tuples(
                st.none() | st.binary(max_size=4),
                st.none() | st.binary(max_size=12) | JSON.map(lambda value: json.dumps(value).encode()),
                st.lists(st.tuples(st.sampled_from(["x", WATERMARK_HEADER]), st.binary(max_size=4)), max_size=2),
            ),
            min_size=1,
            max_size=8,
        ),
        st.sampled_from(["ms", "s", "iso"]),
    ),
    derandomize=True,
    phases=PHASES,
)
def test_every_record_is_an_event_a_watermark_or_refused_once(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]], unit: TimeUnit
) -> None:
    entries = [Entry(offset, key, value, 0, headers) for offset, (key, value, headers) in enumerate(records)]
    out = decoder(unit=unit).decode(entries)
    found = [*out.offsets, *(offset for offset, _ in out.watermarks), *(offset for offset, _ in out.refused)]
    assert sorted(found) == list(range(len(entries)))
    assert len(out.users) == len(out.times) == len(out.columns[0].items) == len(out.offsets)


@pytest.mark.parametrize("unit", ["ms", "s", "iso"])
@pytest.mark.parametrize("user", [None, "page"])
def test_a_chunk_says_of_each_record_what_it_says_of_that_alone(user: str | None, unit: TimeUnit) -> None:
    """Whether records are decoded together or one by one: of these chunks, parts are decoded in both ways."""
    chance = Random(7)
    time = '"2026-11-27T00:00:00Z"' if unit == "iso" else "1"
    good = [(b"u", f'{{"page":"u","at":{time}}}'.encode()), (b"17", f'{{"page":17,"at":{time}}}'.encode())]
    odd = [(b"u", value) for value, _ in VALUES.values()] + [(b"", good[0][1]), (None, good[0][1]), (b"v", None)]
    reader, judged = decoder(user=user, unit=unit), []
    for rare in (0, 1, 30):
        drawn = [chance.choice(odd) if chance.randrange(100) < rare else chance.choice(good) for _ in range(2300)]
        entries = [Entry(offset, key, value, 5) for offset, (key, value) in enumerate(drawn)]
        whole = reader.decode(entries)
        alone = [reader.decode([entry]) for entry in entries]
        assert whole.refused == [one for each in alone for one in each.refused]
        for name in ("offsets", "users", "times"):
            assert getattr(whole, name) == [one for each in alone for one in getattr(each, name)]
        assert whole.columns[0].items == [item for each in alone for item in each.columns[0].items]
        judged.append(len(whole.refused))
    assert judged[0] == 0 < judged[1] < judged[2]


def test_users_who_are_the_keys_but_for_where_they_are_cut_are_refused() -> None:
    """Joined by line breaks, both columns read alike: each event is another user's."""
    said = ["a\nb", "c"], ["a", "b\nc"]
    entries = [
        Entry(offset, key.encode(), json.dumps({"page": user, "at": 1}).encode())
        for offset, (user, key) in enumerate(zip(*said, strict=True))
    ]
    out = decoder(user="page").decode(entries)
    assert (out.users, out.refused) == ([], [(0, "key_mismatch"), (1, "key_mismatch")])


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_read_alike_together_and_alone(name: str) -> None:
    reader, entry = decoder(), Entry(3, b"u", VALUES[name][0], 5)
    together, alone = reader.decode([entry]), Decoded.empty([False])
    reader._one_by_one([entry], alone, [alone.columns[0].items])
    assert together == alone


def test_where_no_view_counts_any_more_records_are_still_judged() -> None:
    records = [Entry(0, b"5", b'{"at":5}'), Entry(1, b"5", b"{")]
    out = EventDecoder(EventFormat((), None, "at", "ms")).decode(records)
    assert (out.offsets, out.times, out.columns, out.refused) == ([0], [5], [], [(1, "malformed_json")])


def at_depth(frames: int, call: Callable[[], Any]) -> Any:
    return call() if frames == 0 else at_depth(frames - 1, call)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded_whatever_stack_is_left(opening: bytes, closing: bytes) -> None:
    """How much is left depends on the thread, and so on how much other users have in open windows."""

    def refused(depth: int) -> tuple[bool, bool]:
        inside = opening * (depth - 1) + b"1" + closing * (depth - 1)
        record = Entry(0, b"u", b'{"user":"u","page":"a [[","at":5,"more":' + inside + b"}")
        decoded = EventDecoder(EventFormat(("page",), None, "at", "ms")).decode([record])
        return bool(decoded.refused), bool(KeyReader("user").read([record]).refused)

    for frames in (0, 300):
        assert at_depth(frames, lambda: refused(MAX_NESTING)) == (False, False)
        assert at_depth(frames, lambda: refused(MAX_NESTING + 1)) == (True, True)


def test_brackets_in_texts_do_not_nest() -> None:
    value = b'{"page":"a","at":5,"more":"' + b'[\\"{' * 1000 + b'"}'
    assert not EventDecoder(EventFormat(("page",), None, "at", "ms")).decode([Entry(0, b"u", value)]).refused
    flat = b'{"page":"a","at":5,"more":[' + b",".join([b"[]"] * 1000) + b"]}"
    assert not EventDecoder(EventFormat(("page",), None, "at", "ms")).decode([Entry(0, b"u", flat)]).refused
