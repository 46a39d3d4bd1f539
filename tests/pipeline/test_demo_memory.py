"""`stream-dp demo` on the embedded log: the real flights of some weeks, the real worker, the whole story."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stream_dp.accounting import Cost
from stream_dp.cli.demo import Ending, demo, last_words
from stream_dp.cli.demo.runs import Flights, read_flights
from stream_dp.records.statement import read_statements
from stream_dp.windows.durations import moment, parse_time

WINDOWS = 4
VIEWS = 3
UNLOCKED = ["2013-01-01", "2013-01-29"]
TUNED = "2013-02-26"
END_MS = parse_time("2013-03-27T00:00:00Z")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the demo on the flights of three windows and a day of the fourth."""

    def first_weeks(file: Path) -> Flights:
        flights = read_flights(file)
        return Flights(list(takewhile(lambda flight: flight.time_ms < END_MS, flights.flights)), flights.nameless)

    monkeypatch.setenv("STREAM_DP_CACHE", str(tmp_path))
    monkeypatch.setenv("STREAM_DP_BROKER", "memory://")
    monkeypatch.setattr("stream_dp.cli.demo.read_flights", first_weeks)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(demo, [*words, "--pace", "0"], catch_exceptions=False)

    return invoke


def epsilon(price: dict[str, Any]) -> Fraction:
    return Fraction(price["epsilon"]["exact"])


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Ending]:
    """What the demo knows at its end."""
    found: list[Ending] = []

    def words(end: Ending) -> Iterator[str]:
        found.append(end)
        return last_words(end)

    monkeypatch.setattr("stream_dp.cli.demo.last_words", words)
    return found


@pytest.mark.slow
def test_demo_tells_its_story_on_the_embedded_log(
    run: Callable[..., Result], ended: list[Ending], tmp_path: Path
) -> None:
    result = run("--json", "--keep-running")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    log = result.stderr.splitlines()

    assert log[0].startswith("Broker: the embedded log, as STREAM_DP_BROKER says.")
    assert log[1].startswith("--keep-running has nothing to keep here")
    assert log[2] == "No page of the releases: `stream-dp serve` reads a real Kafka."
    assert (told["page"], told["page_pid"]) == (None, None)
    windows = [line for line in log if re.match(r"  \d+ \w{3} to \d+ \w{3} 2013: public ", line)]
    assert len(windows) == WINDOWS
    assert told["records"] == WINDOWS * VIEWS * (3 + 3) + len(UNLOCKED) * VIEWS
    assert told["worker_pid"] is None
    assert Path(told["configuration"]).is_relative_to(tmp_path)

    year, partner, internal, refused = told["ledger"]
    acts = ["the year", "partner: detailed", "internal: fine", "internal: finest"]
    assert [entry["after"] for entry in told["ledger"]] == acts
    assert epsilon(year["alone"]["public"]) < epsilon(year["alone"]["partner"]) < epsilon(year["alone"]["internal"])
    assert year["together"] == year["alone"]["internal"], "readers together know what the finest of them knows"
    assert partner["together"] == year["together"], "what internal had cost the population nothing again"
    assert partner["alone"]["partner"] == partner["alone"]["internal"]
    step = Fraction(1) - Fraction(3, 5) + 2 * (Fraction(1, 5) - Fraction(1, 10))
    assert epsilon(internal["together"]) - epsilon(partner["together"]) == step
    assert epsilon(internal["left"]) == 2 - epsilon(internal["together"])
    assert {**refused, "after": ""} == {**internal, "after": ""}, "what the budget does not pay for changes nothing"
    assert any(line.endswith("Another audience had this level already, so the ledger paid nothing.") for line in log)
    assert any(line.startswith("Done in ") for line in log)
    assert "topics    gone: the embedded log ends with this process" in log

    assert told["unlocked"] == {"public": {"windows": UNLOCKED, "paid": "0"}}
    unlocks = [line for line in log if line.startswith("    unlocked: ")]
    assert [line.partition(" is 56 days old, public sees it as partner now: ")[0] for line in unlocks] == [
        "    unlocked: 1 Jan to 28 Jan 2013",
        "    unlocked: 29 Jan to 25 Feb 2013",
    ]
    assert all(line.endswith("; the ledger paid 0") for line in unlocks)
    command = f"stream-dp tune flights.yaml carriers selection.epsilon=3/40 --from {TUNED}"
    assert told["tuned"] == {"settings": 2, "command": command, "from": TUNED}
    meaning = f"From the window of {TUNED} on; choosing costs epsilon 0.251 -> 0.376 at worst"
    assert log[log.index(f"$ {command}") + 1] == meaning
    assert [line.endswith(", edition 2") for line in windows] == [False, False, True, True]

    state = ended[0].state
    for view in state.plan.views:
        for start, seen in state.published.windows(view, "public").items():
            assert seen.release is not None
            assert seen.release.level.name == ("standard" if moment(start) in UNLOCKED else "overview")
            newer = view == "carriers" and moment(start) >= TUNED
            for audience in state.plan.audiences:
                release = state.published.windows(view, audience)[start].release
                assert release is not None
                assert release.edition == (2 if newer else 1)
    for statement in read_statements((0, entry) for entry in state.entries.values()).values():
        assert statement.seen == statement.spent, "the charges of every period add up"
        for audience in state.plan.audiences:
            period = statement.account.period.start_ms
            found = [one for one in state.published.releases(audience) if one.ledger.period.start_ms == period]
            stated = max((one.privacy.period.cost for one in found), key=lambda one: one.epsilon)
            assert sum((one.privacy.window.cost for one in found), Cost.ZERO) == stated
    unlocks_charged = [
        reader.charged.cost
        for entry in state.entries.values()
        for reader in entry.audiences
        if reader.audience == "public" and reader.revision == 2
    ]
    assert unlocks_charged == [Cost.ZERO] * len(UNLOCKED) * VIEWS
    chosen = {
        moment(entry.window.start_ms): entry.requested.cost.epsilon
        for entry in state.entries.values()
        if entry.view == "carriers" and entry.audiences[0].revision == 1
    }
    assert len(chosen) == WINDOWS
    at_worst = state.plan.views["carriers"].cost(2).epsilon
    more = 5 * (Fraction(3, 40) - Fraction(1, 20))
    assert chosen == {start: at_worst + (more if start >= TUNED else 0) for start in chosen}


@pytest.mark.slow
def test_worker_that_crashes_ends_the_demo_with_its_reason(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no noise today")

    monkeypatch.setattr("stream_dp.kinds.histogram.seal_pruned", broken)
    with pytest.raises(Exception, match="the worker has crashed: RuntimeError: no noise today"):
        run()
