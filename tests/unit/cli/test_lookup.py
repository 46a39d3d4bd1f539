from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stream_dp.records.codec import encode, topic_key
from stream_dp.records.models import Release
from stream_dp.runtime.embedded import MemoryLog
from tests.support.published import lookup_table_of

Make = Callable[..., Any]
TOPIC = "visits.releases.pages.public"


def publish(log: MemoryLog, *records: Release) -> None:
    log.create(TOPIC, 1)
    for record in records:
        log.append(TOPIC, 0, topic_key(record), encode(record))


def test_the_newest_window_answers_for_the_keys_that_it_shows(
    call: Make, visits_file: Path, log: MemoryLog, release: Make
) -> None:
    publish(log, release({"home": 60, "faq": 55}), release({"home": 70}, day=1))
    said = call("lookup", visits_file, "pages", "public", "home", "faq")
    assert said.code == 0
    first, _, *rows = [line.split() for line in said.out.splitlines()]
    assert first[0] == "1970-01-02"
    assert rows == [["home", "70", "61", "to", "79"], ["faq", "not", "shown"]]


def test_the_newest_revision_of_a_chosen_window_is_printed_as_json(
    call: Make, visits_file: Path, log: MemoryLog, release: Make
) -> None:
    publish(log, release({"home": 60}), release({"home": 66}, revision=2), release({"home": 70}, day=1))
    said = call("lookup", visits_file, "pages", "public", "home", "faq", "--window", "1970-01-01", "--json")
    found = json.loads(said.out)
    assert (found["revision"], found["window"]["start_ms"]) == (2, 0)
    assert found["items"] == [
        {"item": "home", "count": 66, "interval": [57, 75]},
        {"item": "faq", "count": None, "interval": None},
    ]


def test_a_table_answers_for_every_key(call: Make, visits_file: Path, log: MemoryLog, release: Make) -> None:
    publish(log, lookup_table_of(release({})))
    said = call("lookup", visits_file, "pages", "public", "home", "faq", "nobody", "too long for it", "--json")
    assert [entry["count"] for entry in json.loads(said.out)["items"]] == [30, 5, 0, None]


def test_what_is_not_there_is_said(call: Make, visits_file: Path, log: MemoryLog, release: Make) -> None:
    assert "has no topic" in call("lookup", visits_file, "pages", "public", "home").err
    publish(log, release({"home": 60}))
    late = call("lookup", visits_file, "pages", "public", "home", "--window", "1980-01-01")
    assert (late.code, "has no release of the window of 1980-01-01" in late.err) == (1, True)
    assert call("lookup", visits_file, "paegs", "public", "home").code == 2
    assert call("lookup", visits_file, "pages", "public").code == 2
