"""What is an event in Avro, what is refused and why, and what no value and no schema can do to a worker."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp.windows import avro as limits
from stream_dp.windows.avro import (
    AvroEventDecoder,
    AvroValues,
    UnusableSchemaError,
    ValueReader,
    has_header,
    headers,
    number_of,
    unknown_schema,
    unusable_schema,
)
from stream_dp.windows.events import MOST_BYTES, Decoded, EventDecoder, EventFormat, KeyReader, TimeUnit
from tests.support.avro import VISIT, bare, header, reading, schemas, written
from tests.support.chosen import examples
from tests.support.counting import Entry

FORM = EventFormat(("page",), "user", "at", "ms")
BARE = EventFormat(("page",), None, None, "ms")
AT = 1_700_000_000_123


def record(*fields: tuple[str, Any], name: str = "E") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields]}


def decoded(form: EventFormat, given: Iterable[Any], *values: bytes | None, key: bytes = b"u1") -> Decoded:
    decoder = AvroEventDecoder(form)
    decoder.learn(schemas(form, *given))
    return decoder.decode([Entry(number, key, value) for number, value in enumerate(values)])


def items(out: Decoded) -> list[list[str]]:
    return [column.items for column in out.columns]


def reason(form: EventFormat, schema: Any, value: bytes, key: bytes = b"u1") -> str:
    out = decoded(form, [schema], value, key=key)
    assert len(out.offsets) + len(out.refused) == 1
    return out.refused[0][1] if out.refused else ""


def test_an_event_has_its_user_its_time_and_an_item_for_every_view() -> None:
    form = EventFormat(("page", "shop"), "user", "at", "ms")
    schema = record(("shop", "int"), ("user", "string"), ("page", ["null", "string"]), ("at", "long"))
    value = written(schema, {"shop": 7, "user": "u1", "page": "/a", "at": AT})
    out = decoded(form, [schema], value)
    assert (out.offsets, out.users, out.times, items(out)) == ([0], [b"u1"], [AT], [["/a"], ["7"]])
    assert not out.refused


def test_a_producer_may_go_over_to_another_schema_in_the_middle_of_a_chunk() -> None:
    later = record(
        ("page", {"type": "enum", "name": "P", "symbols": ["home", "cart"]}), ("user", "string"), ("at", "long")
    )
    first = written(VISIT, {"user": "u1", "page": "home", "at": AT}, 1)
    second = written(later, {"user": "u1", "page": "cart", "at": AT + 1}, 2)
    out = decoded(FORM, [VISIT, later], first, second, first)
    assert (items(out), out.times) == ([["home", "cart", "home"]], [AT, AT + 1, AT])


@pytest.mark.parametrize(
    ("kind", "unit", "value", "time_ms"),
    [
        ("long", "ms", AT, AT),
        ("int", "s", 1_700_000_000, 1_700_000_000_000),
        ("string", "iso", "2023-11-14T22:13:20.123Z", AT),
        (["null", "long"], "ms", AT, AT),
        *(
            ({"type": "long", "logicalType": f"{zone}timestamp-{name}"}, unit, AT * factor + factor // 2, AT)
            for zone in ("", "local-")
            for name, factor in (("millis", 1), ("micros", 1000), ("nanos", 10**6))
            for unit in ("ms", "s", "iso")
        ),
        (["null", {"type": "long", "logicalType": "timestamp-micros"}], "ms", AT * 1000, AT),
        ({"type": "long", "logicalType": "timestamp-millis"}, "ms", -1, -1),
        ({"type": "long", "logicalType": "timestamp-micros"}, "ms", -1, -1),
    ],
)
def test_a_time_is_read_as_its_schema_says_else_in_the_unit_of_the_source(
    kind: Any, unit: TimeUnit, value: Any, time_ms: int
) -> None:
    form = EventFormat(("page",), None, "at", unit)
    plain = "string" if kind == "string" else "long"
    at = written(plain, value)[limits.HEADER_BYTES :]
    branch = b"\x02" if isinstance(kind, list) else b""
    out = decoded(form, [record(("page", "string"), ("at", kind))], header(1) + b"\x02a" + branch + at)
    assert (out.times, out.refused) == ([time_ms], [])


@pytest.mark.parametrize(
    ("schema", "event", "why"),
    [
        (record(("user", "string"), ("at", "long")), {"user": "u1", "at": 1}, "missing_field"),
        (record(("user", "string"), ("page", "string")), {"user": "u1", "page": "a"}, "missing_field"),
        (record(("page", "string"), ("at", "long")), {"page": "a", "at": 1}, "missing_field"),
        (record(), {}, "missing_field"),
        (VISIT, {"user": "u1", "page": None, "at": 1}, "wrong_type"),
        *(
            (
                record(("user", "string"), ("page", kind), ("at", "long")),
                {"user": "u1", "page": value, "at": 1},
                "wrong_type",
            )
            for kind, value in [
                ("boolean", True),
                ("double", 1.0),
                ("bytes", b"a"),
                ({"type": "array", "items": "string"}, ["a"]),
                ({"type": "map", "values": "string"}, {"a": "b"}),
                (record(("a", "string"), name="R"), {"a": "b"}),
                ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x01"),
            ]
        ),
        *(
            (
                record(("user", "string"), ("page", "string"), ("at", kind)),
                {"user": "u1", "page": "a", "at": at},
                "wrong_type",
            )
            for kind, at in [
                (["null", "long"], None),
                ("boolean", True),
                ("double", 1.0),
                ("string", "2023-11-14"),
                ({"type": "int", "logicalType": "date"}, 19_000),
                ({"type": "long", "logicalType": "time-micros"}, 5),
            ]
        ),
        (VISIT, {"user": "u2", "page": "a", "at": 1}, "key_mismatch"),
        (VISIT, {"user": "u1", "page": "é" * 513, "at": 1}, "item_too_long"),
    ],
)
def test_what_lacks_a_field_or_has_another_type_is_refused_as_in_json(schema: Any, event: Any, why: str) -> None:
    assert reason(FORM, schema, written(bare(schema), event)) == why


@pytest.mark.parametrize(
    "value",
    [
        b"\0\0\0\0",
        b"\x01\0\0\0\x01\x02a",
        b'{"page": "a"}',
        b"Obj\x01",
        header(1),
        header(1) + b"\x02",
        header(1) + b"\x02\xff",
        header(1) + b"\x02aa",
        header(1) + b"\x01",
        header(1) + b"\xff" * 20,
        header(1) + b"\x06\xed\xa0\x80",
        header(1) + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01a",
    ],
)
def test_what_is_no_avro_of_its_schema_is_refused_as_that(value: bytes) -> None:
    assert reason(BARE, record(("page", "string")), value) == "malformed_avro"


def test_a_schema_that_the_registry_lacks_and_one_that_cannot_be_used_are_reasons_of_their_own() -> None:
    good = written(record(("page", "string")), {"page": "a"})
    out = decoded(
        BARE, [record(("page", "string")), unknown_schema, unusable_schema], good, header(2), header(3), None, b""
    )
    assert items(out) == [["a"]]
    assert out.refused == [(1, "unknown_schema"), (2, "unusable_schema"), (3, "null_value"), (4, "null_value")]


def test_schemas_are_wanted_of_what_bears_the_number_of_one_and_of_nothing_else() -> None:
    records = [
        Entry(0, b"u", header(7) + b"a"),
        Entry(1, b"u", header(7)),
        Entry(2, b"u", header(2**32 - 1)),
        Entry(3, None, header(8)),
        Entry(4, b"u", None),
        Entry(5, b"u", b"{}"),
        Entry(6, b"u", b"\0\0\0\0"),
    ]
    assert {number_of(one) for one in headers(records)} == {7, 8, 2**32 - 1}
    assert [has_header(record.value or b"") for record in records] == [True, True, True, True, False, False, False]


def test_a_watermark_is_one_in_avro_too() -> None:
    decoder = AvroEventDecoder(FORM)
    out = decoder.decode([Entry(0, None, None, headers=[("stream-dp-watermark", b"17")])])
    assert out.watermarks == [(0, 17)]


KINDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("string", st.text(max_size=5)),
    (["null", "string"], st.none() | st.text(max_size=5)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("boolean", st.booleans()),
    ("bytes", st.binary(max_size=5)),
    ({"type": "array", "items": "long"}, st.lists(st.integers(-99, 99), max_size=4)),
    (
        {"type": "map", "values": ["null", "string"]},
        st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3)),
    ),
    ({"type": "fixed", "name": "F", "size": 3}, st.binary(min_size=3, max_size=3)),
    (
        record(("x", {"type": "array", "items": "string"}), name="R"),
        st.fixed_dictionaries({"x": st.lists(st.text(max_size=2))}),
    ),
]


@examples(30, 100, given(st.lists(st.sampled_from(range(len(KINDS))), max_size=6, unique=True), st.data()))
def test_events_in_avro_and_the_same_in_json_come_to_the_same_whatever_else_is_in_them(
    others: list[int], data: st.DataObject
) -> None:
    page, strategy = KINDS[data.draw(st.sampled_from([0, 1, 2]))]
    fields = [("user", "string"), ("page", page), ("at", "long"), *((f"more{at}", KINDS[at][0]) for at in others)]
    shuffled = data.draw(st.permutations(fields))
    schema = record(*shuffled)
    event = {"user": "u1", "page": data.draw(strategy), "at": data.draw(st.integers(0, 2**50))}
    value = written(schema, event | {f"more{at}": data.draw(KINDS[at][1]) for at in others})
    out = decoded(FORM, [schema], value)
    oracle = EventDecoder(FORM).decode([Entry(0, b"u1", json.dumps(event).encode())])
    assert out == oracle


def _number(value: int) -> bytes:
    """A whole number as Avro writes it."""
    folded, out = (value << 1) ^ (value >> 63), bytearray()
    while folded & ~0x7F:
        out.append(folded & 0x7F | 0x80)
        folded >>= 7
    return bytes([*out, folded])


NESTED = record(
    ("page", "string"),
    ("list", {"type": "array", "items": record(("a", "int"), ("b", ["null", "string"]), name="R")}),
    ("map", {"type": "map", "values": {"type": "array", "items": "R"}}),
    ("at", "long"),
    (
        "choice",
        ["null", "R", {"type": "enum", "name": "C", "symbols": ["x", "y"]}, {"type": "fixed", "name": "F", "size": 9}],
    ),
)
HOSTILE = EventFormat(("page", "list"), None, "at", "ms")


@given(st.binary(max_size=60))
@example(b"\0" + _number(1 << 62))
@example(b"\0" + _number(-(1 << 63)) + _number(1 << 62))
@example(b"\0" + _number(-1) + _number(-(1 << 62)) + b"\0\0")
@example(b"\0\0" + _number(1) + _number(-(1 << 40)))
@example(b"\0\0\0\0" + _number(-1))
def test_no_bytes_do_anything_but_become_an_event_or_a_refusal(body: bytes) -> None:
    for form in (FORM, HOSTILE, EventFormat(("at",), None, "at", "ms")):
        out = decoded(form, [NESTED], header(1) + body)
        assert len(out.offsets) + len(out.refused) == 1


def test_damaged_values_do_nothing_but_become_events_or_refusals() -> None:
    chance = random.Random(5)
    event = {
        "page": "/a",
        "list": [{"a": 5, "b": "x"}, {"a": 6, "b": None}],
        "map": {"k": [{"a": 1, "b": None}]},
        "at": AT,
        "choice": b"123456789",
    }
    good = written(NESTED, event)
    values = []
    for _ in range(20_000):
        damaged = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(5, len(damaged))
            damaged[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
        values.append(bytes(damaged))
    form = EventFormat(("page",), None, "at", "ms")
    out = decoded(form, [NESTED], good, *values)
    assert len(out.offsets) + len(out.refused) == 1 + len(values)
    assert items(out)[0][0] == "/a"
    assert {why for _, why in out.refused} <= {"malformed_avro", "item_too_long"}


@pytest.mark.parametrize("shape", ["many", "claimed"])
def test_what_a_source_does_not_need_is_not_built_however_much_a_value_has_of_it(shape: str) -> None:
    many = 1_000_000
    count = many if shape == "many" else 1 << 40
    body = b"\x02a" + _number(count) + b"\x02" * many + b"\0"
    schema = record(("page", "string"), ("list", {"type": "array", "items": record(("a", "int"), name="R")}))
    read = reading(schema, BARE)
    tracemalloc.start()
    decoder = AvroEventDecoder(BARE)
    decoder.learn({header(1): read})
    out = decoder.decode([Entry(0, b"u", header(1) + body)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ([*items(out)[0]], len(out.refused)) == ((["a"], 0) if shape == "many" else ([], 1))
    assert peak < 3 * len(body)


def _chain(depth: int) -> Any:
    kind: Any = "int"
    for number in range(depth):
        kind = record(("x", kind), name=f"R{number}")
    return kind


def _doubling(times: int) -> Any:
    fields: list[tuple[str, Any]] = [("f0", record(("n", "null"), name="R0"))]
    fields += [(f"f{n}", record(("a", f"R{n - 1}"), ("b", f"R{n - 1}"), name=f"R{n}")) for n in range(1, times)]
    return record(*fields)


def _by_name(depth: int) -> Any:
    fields: list[tuple[str, Any]] = [("f0", record(("n", "int"), name="R0"))]
    return record(*fields, *((f"f{n}", record(("a", f"R{n - 1}"), name=f"R{n}")) for n in range(1, depth)))


UNUSABLE: Mapping[str, tuple[Any, str]] = {
    "refers to itself": (record(("next", ["null", "E"])), "refers to itself"),
    "refers to itself in a list": (record(("next", {"type": "array", "items": "E"})), "refers to itself"),
    "refers to itself further in": (
        record(("l", record(("next", {"type": "map", "values": ["null", "L"]}), name="L"))),
        "refers to itself",
    ),
    "a list of nulls": (record(("x", {"type": "array", "items": "null"})), "takes no byte"),
    "a list of empty records": (record(("x", {"type": "array", "items": record(name="R")})), "takes no byte"),
    "a list of fixed nothing": (
        record(("x", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})),
        "takes no byte",
    ),
    "a list of much for a byte": (
        record(
            ("x", {"type": "array", "items": record(("a", "int"), *((f"n{n}", "null") for n in range(99)), name="R")})
        ),
        "takes no byte",
    ),
    "deep": (_chain(200), "inside one another"),
    "deep by name": (_by_name(70), "inside one another"),
    "doubling": (_doubling(60), "more than 10,000 types"),
    "no record": ("string", "not one of a record"),
    "a union": ([record(("page", "string"))], "not one of a record"),
    "a list": ({"type": "array", "items": "string"}, "not one of a record"),
    "an unknown name": (record(("x", "Nowhere")), "no schema of Avro"),
    "no schema": ({"type": "record"}, "no schema of Avro"),
    "a number": (5, "no schema of Avro"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_schema_whose_values_could_be_deep_or_large_for_few_bytes_is_not_used(name: str) -> None:
    schema, why = UNUSABLE[name]
    with pytest.raises(UnusableSchemaError, match=why):
        reading(schema, BARE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no schema of Avro"),
        ("[" * 100_000, "no schema of Avro"),
        ('{"type":' * 20_000, "no schema of Avro"),
        ('{"type":"array","items":' * 900 + '"int"' + "}" * 900, "Avro|inside"),
        (json.dumps(record(("x", "int")) | {"doc": "x" * (256 << 10)}), "too long"),
    ],
)
def test_a_text_that_is_no_schema_is_not_used(text: str, why: str) -> None:
    with pytest.raises(UnusableSchemaError, match=why):
        ValueReader(text, (), BARE)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4) | st.sampled_from(["int", "null", "record", "E"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "name", "fields", "items", "values", "symbols", "size", "logicalType", "namespace"]
                ),
                inner | st.sampled_from(["record", "array", "map", "enum", "fixed", "union"]),
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_no_schema_does_anything_but_be_used_or_not(schema: Any) -> None:
    try:
        read = reading(schema, BARE)
    except UnusableSchemaError:
        return
    decoder = AvroEventDecoder(BARE)
    decoder.learn({header(1): read})
    decoder.decode([Entry(0, b"u", header(1) + b"\x02a\x02a")])


def test_names_of_types_are_told_apart_by_their_namespaces_and_found_where_their_definition_is_not_needed() -> None:
    schema = {
        **record(
            ("list", {"type": "array", "items": {**record(("p", "string"), name="P"), "namespace": "one"}}),
            ("page", {"type": "enum", "name": "two.P", "symbols": ["home", "cart"]}),
            ("other", ["null", "one.P"]),
            ("third", {**record(("q", "two.P"), name="P"), "namespace": ""}),
        ),
        "namespace": "site",
    }
    form = EventFormat(("page", "$.other.p"), None, None, "ms")
    event = {"list": [{"p": "x"}], "page": "cart", "other": {"p": "y"}, "third": {"q": "home"}}
    assert dict(reading(schema, form)(written(schema, event))) == {"page": "cart", "other": {"p": "y"}}


def test_a_schema_may_refer_to_others() -> None:
    page, kind = record(("id", "Kind"), name="Page"), {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}
    schema = record(("page", "Kind"), ("more", "Page"))
    value = written(schema, {"page": "b", "more": {"id": "a"}}, references=[kind, page])
    assert reading(schema, BARE, kind, page)(value)["page"] == "b"
    with pytest.raises(UnusableSchemaError, match="no schema of Avro"):
        reading(schema, BARE, kind)


DEEP = EventFormat(("$.page.id", "$.page.tags"), "$.who.id", "$.at.read", "ms", frozenset({"$.page.tags"}))
DEEP_VISIT = record(
    ("noise", {"type": "array", "items": record(("x", "string"), name="Noise")}),
    (
        "page",
        record(
            ("more", {"type": "map", "values": "Noise"}),
            ("tags", ["null", {"type": "array", "items": ["null", "string", "long"]}]),
            ("id", ["null", "long", "string"]),
            name="Page",
        ),
    ),
    ("who", ["null", record(("id", ["null", "string"]), name="Who")]),
    ("at", {"type": "map", "values": ["null", "long"]}),
)
TAG = st.text(max_size=3) | st.integers(-9, 9)


@examples(30, 100, given(st.lists(TAG, max_size=4), TAG, st.integers(0, 2**50), st.data()))
def test_paths_and_lists_come_to_the_same_in_avro_and_in_json(
    tags: list[str | int], page: str | int, at: int, data: st.DataObject
) -> None:
    event: dict[str, Any] = {"noise": [{"x": "y"}], "at": {"read": at}, "who": {"id": "u1"}}
    event["page"] = {"more": {"a": {"x": "b"}}, "tags": tags, "id": page}
    match data.draw(st.integers(0, 6)):
        case 0:
            event["who"] = None
        case 1:
            event["who"] = {"id": None}
        case 2:
            event["at"] = {"the time": 7}
        case 3:
            event["at"] = {"read": None, "the time": 7}
        case 4:
            event["page"]["tags"] = [*tags, None]
        case 5:
            event["page"]["tags"] = None
    out = decoded(DEEP, [DEEP_VISIT], written(DEEP_VISIT, event))
    assert out == EventDecoder(DEEP).decode([Entry(0, b"u1", json.dumps(event).encode())])


@pytest.mark.parametrize(
    ("name", "factor"), [("timestamp-millis", 1), ("timestamp-micros", 1000), ("local-timestamp-nanos", 10**6)]
)
def test_a_time_inside_other_fields_is_read_as_its_schema_says(name: str, factor: int) -> None:
    when = record(("at", ["null", {"type": "long", "logicalType": name}]), name="When")
    schema = record(("page", "string"), ("when", ["null", when]))
    form = EventFormat(("page",), None, "$.when.at", "s")
    values = [
        written(bare(schema), {"page": "a", "when": one})
        for one in ({"at": AT * factor + factor // 2}, {"at": None}, None)
    ]
    out = decoded(form, [schema], *values)
    assert (out.times, out.refused) == ([AT], [(1, "wrong_type"), (2, "wrong_type")])


def test_a_schema_in_which_a_time_may_have_several_units_is_not_used() -> None:
    kinds = [
        record(("at", {"type": "long", "logicalType": f"timestamp-{unit}"}), name=unit) for unit in ("millis", "micros")
    ]
    with pytest.raises(UnusableSchemaError, match="several units"):
        reading(record(("when", kinds)), EventFormat((), None, "$.when.at", "ms"))
    assert reading(record(("when", kinds)), EventFormat(("$.when.at",), None, None, "ms")) is not None


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (["bytes", "string"], ("string", "a"), ["a"]),
        (["string", "bytes"], ("bytes", b"a"), []),
        (["double", "long"], ("long", 5), ["5"]),
        (["null", "float", "int"], ("int", 5), ["5"]),
    ],
)
def test_a_value_of_a_union_is_of_the_type_that_it_was_written_with_whatever_stands_beside_it(
    kind: list[str], value: tuple[str, Any], found: list[str], lists: bool
) -> None:
    branch, said = value
    page = _number(kind.index(branch)) + written(branch, said)[limits.HEADER_BYTES :]
    schema = record(("page", kind), *([("list", {"type": "array", "items": "int"})] if lists else []))
    out = decoded(BARE, [schema], header(1) + page + (b"\0" if lists else b""))
    assert (items(out), len(out.refused)) == ([found], 1 - len(found))


def test_what_stands_beside_a_field_inside_another_is_not_built() -> None:
    many = 1_000_000
    page = record(("list", {"type": "array", "items": record(("a", "int"), name="R")}), ("id", "string"), name="Page")
    body = _number(many) + b"\x02" * many + b"\0" + b"\x02a"
    form = EventFormat(("$.page.id",), None, None, "ms")
    decoder = AvroEventDecoder(form)
    decoder.learn(schemas(form, record(("page", page))))
    tracemalloc.start()
    out = decoder.decode([Entry(0, b"u", header(1) + body)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert items(out) == [["a"]]
    assert peak < 3 * len(body)


def test_the_user_of_a_source_that_is_not_keyed_by_user_is_read_out_of_avro_and_nothing_else_is_judged() -> None:
    form = EventFormat(("page",), None, "at", "iso", key="$.who.id")
    who = ["null", record(("id", ["null", "long", "string"]), name="Who")]
    schema, other = record(("at", "string"), ("page", "string"), ("who", who)), record(("page", "string"))
    reader = KeyReader("$.who.id", AvroValues)
    reader.learn(schemas(form, schema, other, unknown_schema))
    event = {"at": "no time", "page": "a", "who": {"id": 7}}
    said = [
        event,
        event | {"who": {"id": "u7"}},
        event | {"who": {"id": ""}},
        event | {"who": None},
        event | {"page": "x" * MOST_BYTES},
    ]
    values = [*(written(schema, one) for one in said), written(other, {"page": "a"}, 2), header(3), b"{}", None]
    records = [Entry(at, None, value) for at, value in enumerate(values)]
    found = reader.read(records)
    assert found.events == [(b"7", records[0]), (b"u7", records[1])]
    assert [why for _, why in found.refused] == [
        "bad_key",
        "wrong_type",
        "record_too_large",
        "missing_field",
        "unknown_schema",
        "malformed_avro",
        "null_value",
    ]
