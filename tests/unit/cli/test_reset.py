"""The command that makes an application forget: what it shows first, and what it takes to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from stream_dp.accounting import Cost, Ledger
from stream_dp.config.plan import Plan
from stream_dp.records.codec import encode, entry_key
from stream_dp.releases.accounts import Booking
from stream_dp.releases.publication import audience_charge, entry_record
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.ownership import create_owned
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.key_file import load_keys
from tests.support.views import balance

Make = Callable[..., Any]


@pytest.fixture
def running(log: MemoryLog, visits: Plan) -> dict[str, str]:
    """An application that has released a day; its topics, and the sources."""
    keys = load_keys(visits.key_file)
    log.create("visits", 2)
    asyncio.run(create_owned(visits, MemoryClient(log), keys.application))
    view = visits.views["pages"]
    cost = view.cost(1)
    booking = Booking(Ledger(view.ledger.budget), balance(view, view.ledger.budget - cost), cost)
    entry = entry_record(view, 0, "charge", [audience_charge(view, "staff", 1, 1, cost, Cost.ZERO)], booking)
    log.append(Topics.of(visits).accounts, 0, entry_key(entry), encode(entry))
    return dict(log.ids)


def test_what_goes_and_what_the_ledgers_forget_is_shown_and_goes(
    call: Make, visits_file: Path, log: MemoryLog, running: dict[str, str]
) -> None:
    said = call("reset", visits_file, "--yes", "visits")
    assert (said.code, said.err) == (0, "")
    own = running.keys() - {"visits", "stream-dp-owners"}
    assert own <= {*said.out.split()}
    assert "Its ledgers forget what they have spent" in said.out
    assert "visitors (visitors of the site), 1970-01-01 to 1970-01-11: epsilon 1 of 30, delta" in said.out
    assert "delete the data folders of its workers" in said.out
    assert log.partitions.keys() == {"visits", "stream-dp-owners"}


@pytest.mark.parametrize("answer", ["visit\n", "y\n", ""])
def test_without_its_name_nothing_is_deleted(
    call: Make,
    visits_file: Path,
    log: MemoryLog,
    running: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(answer))
    assert call("reset", visits_file).code == 1
    assert log.ids == running


def test_the_name_that_is_typed_lets_it_go_on(
    call: Make, visits_file: Path, log: MemoryLog, running: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("visits\n"))
    assert call("reset", visits_file).code == 0
    assert log.partitions.keys() == {"visits", "stream-dp-owners"}


def test_the_name_of_another_application_is_wrong_usage(
    call: Make, visits_file: Path, log: MemoryLog, running: dict[str, str]
) -> None:
    said = call("reset", visits_file, "--yes", "sales")
    assert (said.code, said.out) == (2, "")
    assert said.err.strip().endswith("application 'visits', not 'sales'")
    assert log.ids == running


def test_an_application_that_has_nothing_is_told_so(
    call: Make, visits_file: Path, visits: Plan, log: MemoryLog
) -> None:
    assert call("reset", visits_file, "--yes", "visits").code == 2  # no worker has made a key file
    load_keys(visits.key_file)
    said = call("reset", visits_file, "--yes", "visits")
    assert (said.code, said.out.strip()) == (0, "Nothing to delete: application visits has no topics at memory://.")
