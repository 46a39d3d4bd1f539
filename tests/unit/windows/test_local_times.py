"""A time without an offset from UTC has one moment, in workers, in `feed` and in `init`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.planner import load_plan
from stream_dp.operations.event_columns import guess
from stream_dp.operations.event_tables import open_table
from stream_dp.operations.events_file import Columns, Events
from stream_dp.windows.avro import AvroEventDecoder
from stream_dp.windows.durations import parse_time
from stream_dp.windows.events import EventDecoder, EventFormat
from stream_dp.windows.local_times import local_ms, read_zone, text_ms
from tests.support.avro import schemas, written
from tests.support.counting import Entry

BERLIN = "Europe/Berlin"
MOMENTS = [
    ("2024-01-31T12:00:00", "2024-01-31T11:00:00Z"),
    ("2024-07-31 12:00:00", "2024-07-31T10:00:00Z"),
    ("2024-07-31", "2024-07-30T22:00:00Z"),
    ("2024-07-31T12:00:00Z", "2024-07-31T12:00:00Z"),
    ("2024-07-31T12:00:00-05:00", "2024-07-31T17:00:00Z"),
    # Clocks skip 2:00 to 3:00: read with the offset before the change.
    ("2024-03-31T01:59:59", "2024-03-31T00:59:59Z"),
    ("2024-03-31T02:30:00", "2024-03-31T01:30:00Z"),
    ("2024-03-31T03:00:00", "2024-03-31T01:00:00Z"),
    # Clocks show 2:00 to 3:00 twice: the first of both.
    ("2024-10-27T02:30:00", "2024-10-27T00:30:00Z"),
    ("2024-10-27T03:00:00", "2024-10-27T02:00:00Z"),
]
FORM = EventFormat(("page",), None, "at", "iso", zone=BERLIN)
VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "page", "type": "string"}, {"name": "at", "type": "string"}],
}


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_text_has_one_moment(text: str, moment: str) -> None:
    value = {"page": "a", "at": text}
    assert EventDecoder(FORM).decode([Entry(0, b"u", json.dumps(value).encode())]).times == [parse_time(moment)]
    avro = AvroEventDecoder(FORM)
    avro.learn(schemas(FORM, VISIT))
    assert avro.decode([Entry(0, b"u", written(VISIT, value))]).times == [parse_time(moment)]


@pytest.mark.parametrize(("text", "moment"), MOMENTS)
def test_feed_and_init_read_as_workers_do(
    planned_text: Callable[[str], Path], tmp_path: Path, text: str, moment: str
) -> None:
    plan = load_plan(planned_text(BERLIN), {})
    (view,) = plan.views.values()
    (tmp_path / "rows.csv").write_text(f"user,page,at\nann,home,{text}\nbob,cart,{text}\n", encoding="utf-8")
    table = open_table(tmp_path / "rows.csv")
    columns = Columns(user="user", time="at", time_form="iso", items=["page"], everything=False)
    assert Events(table, view.source, [view], columns).survey(0).first_ms == parse_time(moment)
    assert guess(table.rows(), BERLIN).times["at"] == ("iso", parse_time(moment), parse_time(moment))


@pytest.fixture
def planned_text(tmp_path: Path) -> Callable[[str], Path]:
    def write(zone: str) -> Path:
        file = tmp_path / "site.yaml"
        file.write_text(
            f"""\
name: site
broker: memory://
data_dir: state
key_file: site.key
sources: {{visits: {{topic: visits, partitions: 1, user: user, time: {{field: at, unit: iso, zone: {zone}}}}}}}
ledgers: {{all: {{population: visitors, epsilon: "30", delta: "0", period: 10d}}}}
ladders: {{one: [{{level: coarse, epsilon: "1"}}]}}
audiences: {{public: coarse}}
views: {{pages: {{source: visits, item: page, kind: catalogue, catalogue: [home], items_per_user: 1,
  window: {{size: 1d}}, ledger: all, ladder: one}}}}
""",
            encoding="utf-8",
        )
        return file

    return write


@pytest.mark.parametrize("unit", ["millis", "micros"])
def test_local_timestamp_of_avro_is_a_time_without_offset(unit: str) -> None:
    """Its number counts from the start of 1970 on local clocks."""
    kind = {"type": "long", "logicalType": f"local-timestamp-{unit}"}
    schema = {**VISIT, "fields": [{"name": "page", "type": "string"}, {"name": "at", "type": kind}]}
    factor = 1000 if unit == "micros" else 1
    for text, moment in MOMENTS[:1] + MOMENTS[5:]:
        clock_ms = parse_time(f"{text}Z")
        for zone, expected in ((BERLIN, parse_time(moment)), ("UTC", clock_ms)):
            form = EventFormat(("page",), None, "at", "ms", zone=zone)
            decoder = AvroEventDecoder(form)
            decoder.learn(schemas(form, schema))
            value = written(schema, {"page": "a", "at": clock_ms * factor})
            assert decoder.decode([Entry(0, b"u", value)]).times == [expected]


@given(st.datetimes(), st.sampled_from([BERLIN, "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "UTC"]))
def test_every_time_has_a_moment(time: datetime, zone: str) -> None:
    """A text and its number in Avro name the same moment, at which clocks show that time unless they skip it."""
    rules = read_zone(zone)
    time = time.replace(microsecond=0)
    found = text_ms(time.isoformat(), rules)
    assert local_ms((time - datetime(1970, 1, 1)) // timedelta(milliseconds=1), rules) == found
    if 2 < time.year < 9998:
        shown = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=found)).astimezone(rules)
        assert shown.replace(tzinfo=None, fold=0) >= time


def test_local_time_beyond_the_calendar_is_none() -> None:
    assert local_ms(10**18, read_zone(BERLIN)) is None
