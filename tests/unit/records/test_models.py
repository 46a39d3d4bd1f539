from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import Plan
from stream_dp.errors import StateError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.records.by_kind import HistogramRelease, TopKRelease
from stream_dp.records.codec import (
    SCHEMA_NAMES,
    AnyRecord,
    decode,
    decode_entry,
    encode,
    entry_key,
    outline,
    parse,
    schema,
    topic_key,
)
from stream_dp.records.history import History
from stream_dp.records.models import LedgerEntry, PublicRecord, Refusal
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import Denial, Revision, account, audience_charge, entry_record
from tests.support.given import there
from tests.support.schemas import later, mismatch
from tests.support.sealing import fields_of
from tests.support.views import balance

Planner = Callable[..., Plan]
START = 1_356_998_400_000
DELTA = Fraction(1, 1_000_000)
NOTHING = Cost(Fraction(0), Fraction(0))


@pytest.fixture
def records(planned: Planner) -> dict[str, AnyRecord]:
    plan = planned()
    view, top = plan.views["destinations"], plan.views["busiest"]
    books = account(view.ledger, START)
    return {
        "histogram": Revision(
            view,
            audience="partner",
            level=1,
            start_ms=START,
            number=2,
            period_loss=Cost(Fraction(7, 3), 2 * DELTA),
            ledger=books,
        ).release(
            fields=fields_of(view, 1, [("LAX", 90), ("BOS", 512), ("ATL", 512)]), window_loss=Cost(Fraction(1), DELTA)
        ),
        "topk": Revision(
            top,
            audience="public",
            level=0,
            start_ms=START,
            number=1,
            period_loss=Cost(Fraction(1, 3), Fraction(1, 7)),
            ledger=books,
        ).release(
            fields=fields_of(top, 0, [("Zürich\u2028\x00\u00a0\N{AIRPLANE}", -3), ("", 5)], complete=False),
            window_loss=Cost(Fraction(1, 3), Fraction(1, 7)),
        ),
        "refusal": Revision(
            view, audience="internal", level=2, start_ms=START, number=1, period_loss=NOTHING, ledger=books
        ).refusal(Denial(Cost(Fraction(4), DELTA))),
    }


@pytest.fixture
def entries(planned: Planner) -> dict[str, LedgerEntry]:
    view = planned().views["destinations"]
    left = Cost(Fraction(289, 3), Fraction(99, 1_000_000), rho=Fraction(1, 7))
    booking = Booking(Ledger(left), balance(view, left), view.cost(2))
    paid = [
        audience_charge(view, "public", 0, 1, view.cost(0), view.cost(0)),
        audience_charge(view, "internal", 2, 1, view.counts(2) - view.counts(0), view.cost(2)),
    ]
    return {
        "charge": entry_record(view, START, "charge", paid, booking),
        "refusal": entry_record(
            view, START, "refusal", [audience_charge(view, "public", 1, 2, NOTHING, NOTHING)], booking
        ),
    }


def test_record_says_what_the_plan_and_the_ledger_say(records: dict[str, AnyRecord]) -> None:
    release = records["histogram"]
    assert isinstance(release, HistogramRelease)
    assert [(row.item, row.count) for row in release.items] == [("ATL", 512), ("BOS", 512), ("LAX", 90)]
    assert (release.level.name, there(release.level.epsilon).exact) == ("standard", "1")
    assert (release.noise_interval_95, release.minimum_count, release.revision) == (15, 81, 2)
    assert (release.privacy.period.epsilon.exact, release.privacy.period.delta.exact) == ("7/3", "1/500000")
    assert (release.privacy.window.epsilon.exact, release.privacy.window.delta.exact) == ("1", "1/1000000")
    assert (release.window.start, release.window.end) == ("2013-01-01T00:00:00Z", "2013-01-08T00:00:00Z")
    assert release.ledger.period.end_ms - release.ledger.period.start_ms == 371 * 86_400_000


def test_topk_keeps_the_order_of_the_selection_and_says_that_the_list_ended(records: dict[str, AnyRecord]) -> None:
    release = records["topk"]
    assert isinstance(release, TopKRelease)
    assert [(row.rank, row.count) for row in release.items] == [(1, -3), (2, 5)]
    assert (release.k, release.complete) == (3, False)


def test_what_was_spent_rounds_up_and_what_is_left_rounds_down(
    records: dict[str, AnyRecord], entries: dict[str, LedgerEntry]
) -> None:
    release = records["topk"]
    assert isinstance(release, TopKRelease)
    assert release.privacy.window.epsilon.decimal == "0.333333333334"
    left = entries["charge"].remaining
    assert (left.epsilon.exact, left.epsilon.decimal) == ("289/3", "96.3333333333")
    assert left.rho is not None
    assert left.rho.decimal == "0.142857142857"


@pytest.mark.parametrize("kind", ["histogram", "topk", "refusal"])
def test_record_is_read_back_as_it_was_written(records: dict[str, AnyRecord], kind: str) -> None:
    record = records[kind]
    data = encode(record)
    assert decode(data) == record
    assert encode(decode(data)) == data
    assert type(decode(data)) is type(record)


def test_a_ledger_with_a_pool_adds_fields_and_one_without_leaves_them_out(planned: Planner) -> None:
    pool = 'period: 371d, zcdp: {epsilon: "80", slack: "1e-6"}'
    view = planned(("period: 371d", pool)).views["busiest"]
    record = Revision(
        view,
        audience="public",
        level=0,
        start_ms=START,
        number=1,
        period_loss=view.cost(0) * 2,
        ledger=account(view.ledger, START),
    ).release(fields=fields_of(view, 0, []), window_loss=view.cost(0))
    data = json.loads(encode(record))
    assert decode(encode(record)) == record
    assert mismatch(data, schema("record"), schema("record")) == []
    assert (record.privacy.window.cost, record.privacy.period.cost) == (view.cost(0), view.cost(0) * 2)
    assert set(data["privacy"]["period"]) == {"epsilon", "delta", "rho"}
    assert set(data["ledger"]["zcdp"]) == {"epsilon", "slack", "budget"}
    assert "null" not in encode(record).decode()


def test_equal_records_have_equal_bytes_whatever_the_order_of_their_making(records: dict[str, AnyRecord]) -> None:
    record = records["histogram"]
    fields = dict(reversed(list(record)))
    assert encode(HistogramRelease(**fields)) == encode(record)


def test_bytes_of_a_refusal(records: dict[str, AnyRecord]) -> None:
    """Golden: consumers rely on this form. A change of it is a change of the schema version."""
    amount = '{{"decimal":"{}","exact":"{}"}}'.format
    price = '{{"delta":{},"epsilon":{}}}'.format
    expected = (
        '{"audience":"internal",'
        '"code_version":"0.1.0","edition":1,"final":true,"kind":"histogram",'
        '"ledger":{"budget":' + price(amount("0.0001", "1/10000"), amount("100", "100"))
        + ',"name":"aircraft","period":{"end":"2014-01-07T00:00:00Z","end_ms":1389052800000,'
        '"start":"2013-01-01T00:00:00Z","start_ms":1356998400000},"population":"aircraft by tail number"},'
        '"level":{"epsilon":' + amount("4", "4") + ',"name":"detailed"},'
        '"privacy":{"period":' + price(amount("0", "0"), amount("0", "0")) + '},'
        '"reason":"budget","refuses":"window","requested":' + price(amount("1e-6", "1/1000000"), amount("4", "4"))
        + ',"revision":1,"schema_version":1,"type":"refusal","view":"destinations",'
        '"window":{"end":"2013-01-08T00:00:00Z","end_ms":1357603200000,"start":"2013-01-01T00:00:00Z",'
        '"start_ms":1356998400000}}'
    )  # fmt: skip
    assert encode(records["refusal"]).decode() == expected


def test_items_are_any_text_in_utf8(records: dict[str, AnyRecord]) -> None:
    data = encode(records["topk"])
    assert "Zürich".encode() in data
    assert json.loads(data)["items"][0]["item"] == "Zürich\u2028\x00\u00a0\N{AIRPLANE}"


@pytest.mark.parametrize(
    "change",
    [{"schema_version": 0}, {"revision": 0}, {"revision": 1.5}, {"ledger": None}, {"kind": "new"}],
)
def test_bytes_of_another_form_are_refused(records: dict[str, AnyRecord], change: dict[str, object]) -> None:
    data = {**json.loads(encode(records["histogram"])), **change}
    with pytest.raises(StateError, match="not a release record of schema version 1"):
        decode(json.dumps(data).encode())


@pytest.mark.parametrize("kind", ["histogram", "topk", "refusal"])
def test_todays_reader_passes_over_fields_of_a_later_writer(records: dict[str, AnyRecord], kind: str) -> None:
    data = encode(records[kind])
    assert decode(later(data)) == records[kind]
    assert encode(decode(later(data))) == data
    assert outline(later(data)) == outline(data)
    body = json.loads(later(data))
    for name in ("record", kind):
        assert mismatch(body, schema(name), schema(name), closed=False) == []
    assert len(mismatch(body, schema(kind), schema(kind))) > 10, "the same schema, asked for what nobody publishes"
    others = {"histogram", "topk", "refusal"} - {kind}
    assert all(mismatch(body, schema(other), schema(other), closed=False) for other in others)


@pytest.mark.parametrize("form", [{}, {"kind": "new"}, {"type": "new"}, {"window": 7}, {"revision": "2"}])
def test_a_later_schema_version_is_refused_with_one_sentence_whatever_else_has_changed(
    records: dict[str, AnyRecord], entries: dict[str, LedgerEntry], form: dict[str, object]
) -> None:
    sentence = (
        "{} of schema version 2 was found, and this stream-dp reads version 1: read the topic with the stream-dp that "
        "wrote it, or a later one"
    )
    record = json.dumps({**json.loads(encode(records["histogram"])), **form, "schema_version": 2}).encode()
    entry = json.dumps({**json.loads(encode(entries["charge"])), **form, "schema_version": 2}).encode()
    for read, data, what in (
        (decode, record, "a release record"),
        (outline, record, "a release record"),
        (decode_entry, entry, "an entry of the accounts"),
    ):
        with pytest.raises(StateError) as refused:
            read(data)
        assert str(refused.value) == sentence.format(what)


def test_a_field_that_the_model_does_not_have_cannot_be_written(planned: Planner) -> None:
    view = planned().views["destinations"]
    revision = Revision(view, "public", 0, START, 1, NOTHING, account(view.ledger, START))
    fields = fields_of(view, 0, [("LAX", 90)])
    assert revision.release(fields, NOTHING)
    with pytest.raises(ValidationError, match="secret"):
        revision.release({**fields, "secret": 1}, NOTHING)


def models_below(model: type[PublicRecord]) -> Iterator[type[PublicRecord]]:
    for found in model.__subclasses__():
        yield found
        yield from models_below(found)


def test_every_model_of_what_is_published_is_closed_for_writers() -> None:
    found = set(models_below(PublicRecord))
    assert {Refusal, LedgerEntry, HistogramRelease, TopKRelease} < found
    assert {model.model_config.get("extra") for model in found} == {"forbid"}


def test_bytes_that_are_no_json_are_refused() -> None:
    with pytest.raises(StateError, match="not a release record"):
        decode(b"\xff")


@pytest.mark.parametrize("kind", ["histogram", "topk", "refusal"])
def test_the_outline_tells_records_apart(records: dict[str, AnyRecord], kind: str) -> None:
    record = records[kind]
    found = outline(encode(record))
    assert found is not None
    assert (found.type, found.revision, found.window.start_ms) == (record.type, record.revision, record.window.start_ms)


def test_a_reader_passes_over_a_type_of_record_that_it_does_not_know() -> None:
    """A later stream-dp may add one in the same schema version."""
    unknown = b'{"schema_version":1,"type":"other","window":7,"items":"none"}'
    assert outline(unknown) is None
    assert parse(unknown) is None
    history = History()
    assert history.take(parse(unknown)) is None
    assert history.newest is None
    with pytest.raises(StateError, match="not a release or a refusal"):
        decode(unknown)
    for read in (parse, outline):
        with pytest.raises(StateError, match="schema version 2 was found"):
            read(b'{"schema_version":2,"type":"other"}')


@pytest.mark.parametrize("data", [b"\xff", b"{}", b'{"schema_version":1,"type":"release","window":{"start_ms":0}}'])
def test_what_is_no_record_has_no_outline(data: bytes) -> None:
    with pytest.raises(StateError, match="not a release record"):
        outline(data)


def test_refusal_does_not_displace_the_release_that_readers_have(records: dict[str, AnyRecord]) -> None:
    refusal = records["refusal"]
    assert isinstance(refusal, Refusal)
    release = records["histogram"].model_copy(update={"audience": "internal"})
    assert topic_key(release) == b"destinations/internal/1356998400000"
    assert topic_key(refusal) == b"destinations/internal/1356998400000/refusal"
    assert topic_key(release.model_copy(update={"revision": 9})) == topic_key(release)


@pytest.mark.parametrize("name", ["charge", "refusal"])
def test_entry_is_read_back_as_it_was_written_and_fits_its_schema_alone(
    entries: dict[str, LedgerEntry], name: str
) -> None:
    entry = entries[name]
    data = encode(entry)
    assert decode_entry(data) == entry
    assert encode(decode_entry(data)) == data
    body = json.loads(data)
    assert [mismatch(body, schema(one), schema(one)) == [] for one in ("entry", "record")] == [True, False]
    assert decode_entry(later(data)) == entry
    assert mismatch(json.loads(later(data)), schema("entry"), schema("entry"), closed=False) == []
    for wrong in ({**body, "remaining": None}, {**body, "audiences": []}, {**body, "schema_version": 0}):
        with pytest.raises(StateError, match="not an entry of the accounts of schema version 1"):
            decode_entry(json.dumps(wrong).encode())


def test_entries_of_different_calls_and_outcomes_have_keys_of_their_own(entries: dict[str, LedgerEntry]) -> None:
    place = b"destinations/1356998400000"
    assert entry_key(entries["charge"]) == place + b"/public/1"
    assert entry_key(entries["refusal"]) == place + b"/public/2/refusal"
    paid_later = entries["refusal"].model_copy(update={"type": "charge"})
    assert entry_key(paid_later) == place + b"/public/2"


def properties(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property that a schema declares, with its path."""
    if isinstance(node, dict):
        for name, value in node.get("properties", {}).items():
            yield f"{path}.{name}", value
        for name, value in node.items():
            yield from properties(value, f"{path}.{name}")


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema_describes_every_field(name: str) -> None:
    body = schema(name)
    found = dict(properties(body))
    assert len(found) > 20
    assert [path for path, value in found.items() if not value.get("description")] == []


@pytest.mark.parametrize("kind", ["histogram", "topk", "refusal"])
def test_schema_accepts_what_is_published_and_nothing_that_contradicts_it(
    records: dict[str, AnyRecord], kind: str
) -> None:
    data = json.loads(encode(records[kind]))
    for name in ("record", kind):
        assert mismatch(data, schema(name), schema(name)) == []
    others = {"histogram", "topk", "refusal"} - {kind}
    assert all(mismatch(data, schema(other), schema(other)) for other in others)
    for wrong in ({**data, "revision": 0}, {**data, "schema_version": 2}, {**data, "level": {}}):
        assert mismatch(wrong, schema("record"), schema("record"), closed=False)


@given(st.fractions(min_value=0), st.integers(1, 30))
def test_decimals_enclose_the_number_within_one_unit_of_the_last_digit(value: Fraction, digits: int) -> None:
    up, down = Fraction(decimal_up(value, digits)), Fraction(decimal_down(value, digits))
    assert down <= value <= up
    assert up - down <= value * Fraction(10, 10**digits)
    assert (up == down) == (value == up)


@pytest.mark.parametrize(
    ("value", "digits", "up", "down"),
    [
        (Fraction(0), 3, "0", "0"),
        (Fraction(1, 4), 3, "0.25", "0.25"),
        (Fraction(1, 3), 3, "0.334", "0.333"),
        (Fraction(999, 1000), 2, "1", "0.99"),
        (Fraction(123456), 3, "124000", "123000"),
        (Fraction(1, 1_000_000), 3, "1e-6", "1e-6"),
        (Fraction(2, 3_000_000), 3, "6.67e-7", "6.66e-7"),
        (Fraction(1, 10_000), 3, "0.0001", "0.0001"),
        (Fraction(10**20 + 1), 3, "101000000000000000000", "100000000000000000000"),
    ],
)
def test_decimals_are_short(value: Fraction, digits: int, up: str, down: str) -> None:
    assert (decimal_up(value, digits), decimal_down(value, digits)) == (up, down)
