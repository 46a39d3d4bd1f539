from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.access import check_broker
from stream_dp.config.explanation import describe
from stream_dp.config.file_schema import Config
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan, load_plan
from stream_dp.config.yaml_data import parse_yaml
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import Inexact, parse_exact
from stream_dp.windows.durations import format_duration, format_time, parse_duration, parse_time
from tests.support.file_keys import file_keys

Planner = Callable[..., Plan]

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")

WRONG = """\
name: Flights
broker: kafka://127.0.0.1
data_dir: ./state
key_file: ./flights.key
shards: 3
sources:
  flights: {topic: flights, partitions: 4, usr: tailnum, time: {field: time_hour, unit: us}}
  hotels: {topic: __hotels, partitions: 8}
ledgers:
  aircraft: {population: aircraft, epsilon: 0.5, delta: "1", period: 30}
ladders:
  standard:
    - {level: overview, epsilon: "1"}
    - {level: standard, epsilon: "0.5"}
audiences:
  public: overview
  partner: detailed
views:
  destinations:
    source: flihgts
    item: dest
    kind: histogram
    items_per_user: 0
    window: {size: 0s, grace: -1h, clock: sun}
    delta: "1e-6"
    delta: "0"
    ledger: nobody
    ladder: standard
    audiences: [public, publc, public]
  busiest: {kind: topk, k: five, source: hotels}
  nothing:
"""

FAULTS = """\
name: must be 1 to 63 characters of a-z, 0-9 and inner hyphens; topics contain it
broker: 'kafka://127.0.0.1' is no broker: write "kafka://host:port" or "memory://"
shards: unknown key; known: audiences, block_cache, broker, console, data_dir, erase_within, key_file, ladders, \
ledgers, name, registry, release, serve, sources, standbys, topics, views, window_memory
sources: all sources of an application need the same number of partitions, not flights 4, hotels 8
sources.flights.time.unit: must be 'ms', 's' or 'iso', not 'us'
sources.flights.usr: unknown key; did you mean 'user'?
sources.hotels.topic: '__hotels' could be an internal topic: names that begin with '__' are reserved
ledgers.aircraft.epsilon: 0.5 becomes a binary float, which is not the number you wrote; quote it: "0.5"
ledgers.aircraft.delta: must be below 1: a delta of 1 promises nothing
ledgers.aircraft.period: 30 needs a unit: "30s", "30m", "30h", "30d"
ladders.standard[1].epsilon: 1/2 is not above the 1 before it: a ladder rises from coarse to fine
views.destinations.delta: duplicate key: line 25 and line 26
views.destinations.items_per_user: must be at least 1, not 0
views.destinations.window.size: must be at least 1s: ticks are 1 s apart
views.destinations.window.grace: write a duration as whole numbers with units, largest first: "7d", "1h30m", "250ms"
views.destinations.window.clock: must be 'wall' or 'event', not 'sun'
views.destinations.source: no source is named 'flihgts'; did you mean 'flights'?
views.destinations.ledger: no ledger is named 'nobody'; known: aircraft
views.destinations.audiences[1]: no audience is named 'publc'; did you mean 'public'?
views.destinations.audiences[2]: duplicate audience 'public'
views.busiest.items_per_user: is required
views.busiest.window: is required
views.busiest.ledger: is required
views.busiest.ladder: is required
views.busiest.k: must be a whole number, not 'five'
views.busiest.selection: is required
views.busiest.item: is required: a field with one item of an event; or items, a field that is a list of them
views.nothing: must be a mapping of keys, not nothing
"""


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        ("gaussian", "for analysis only: the low bits"),
        ("laplace", "for analysis only: the low bits"),
        ("exponential", "for analysis only: the low bits"),
        ("discrete-gaussian", "has no pure epsilon; give ledger 'aircraft' a pool"),
        ("uniform", "no such noise; write discrete-laplace"),
    ],
)
def test_a_view_refuses_every_noise_but_the_exact_one_that_its_ladder_can_price(
    planned: Planner, noise: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        planned(("kind: histogram", f"kind: histogram\n    noise: {noise}"))
    assert planned(("kind: histogram", "kind: histogram\n    noise: discrete-laplace")) == planned()


def faults_of(plan: Callable[[], Plan]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        plan()
    return [str(fault) for fault in caught.value.faults]


def test_every_fault_of_a_file_is_listed_at_once_with_its_path_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG, encoding="utf-8")
    assert faults_of(lambda: load_plan(file, {})) == FAULTS.splitlines()


def test_example_of_the_documentation_is_right_and_affords_its_schedule(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", DOCUMENTATION, re.DOTALL)
    assert example is not None
    file = tmp_path / "example.yaml"
    file.write_text(example.group(1), encoding="utf-8")
    assert describe(load_plan(file, {})).warnings == []


def test_documentation_has_every_key_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", DOCUMENTATION, re.MULTILINE)
    documented = {name.rpartition(".")[2] for row in rows for name in re.findall(r"`(.*?)`", row)}
    in_words = {"release", "sources", "ledgers", "ladders", "audiences", "views", "level", "field", "unit", "window"}
    in_words |= {"console", "selection", "serve", "topics"}
    assert file_keys() == documented | in_words
    assert all(f"{name}" in DOCUMENTATION for name in in_words)


def test_right_file_has_no_fault(planned: Planner) -> None:
    assert set(planned().views) == {"destinations", "busiest"}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ('epsilon: "100"', "ledgers.aircraft.epsilon"),
        ('delta: "1/10000"', "ledgers.aircraft.delta"),
        ('epsilon: "0.25"', "ladders.standard[0].epsilon"),
        ('delta: "1e-6"', "views.destinations.delta"),
        ('epsilon: "1/10"', "views.busiest.selection.epsilon"),
        ('delta: "1e-7"', "views.busiest.selection.delta"),
    ],
)
@pytest.mark.parametrize("text", ["0.1", "1e-6", "1.0"])
def test_float_is_refused_wherever_a_number_decides_privacy(
    planned: Planner, written: str, path: str, text: str
) -> None:
    key = written.partition(":")[0]
    faults = faults_of(lambda: planned((written, f"{key}: {text}")))
    reason = f'{text} becomes a binary float, which is not the number you wrote; quote it: "{text}"'
    assert faults == [f"{path}: {reason}"]


def test_float_in_memory_is_refused_like_one_in_a_file(flights: str) -> None:
    read, _ = parse_yaml(flights)
    data: dict[str, object] = dict(read)
    data["ledgers"] = {"aircraft": {"population": "x", "epsilon": 0.1, "delta": "0", "period": "1d"}}
    with pytest.raises(ValueError, match=r'0\.1 becomes a binary float.* quote it: "0\.1"'):
        Config.model_validate(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.25", Fraction(1, 4)),
        ("1/3", Fraction(1, 3)),
        ("1e-6", Fraction(1, 1_000_000)),
        ("2.5E+1", Fraction(25)),
        ("0", Fraction(0)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_number_in_quotes_is_exactly_what_is_written(text: str, value: Fraction) -> None:
    assert parse_exact(text) == value


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", ".5", "1.", "1/0", "1/-2", "0.5/2", "nan", "inf", "1_0", " 1", "1e999", "٣"]
)
def test_number_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"exact number|over zero"):
        parse_exact(text)


def test_whole_number_needs_no_quotes(planned: Planner) -> None:
    assert planned(('epsilon: "100"', "epsilon: 100")).ledgers["aircraft"].budget.epsilon == 100


def test_nothing_but_true_false_null_and_numbers_is_guessed() -> None:
    data, faults = parse_yaml(
        "{a: yes, b: 1:30, c: 2013-01-01T00:00:00Z, d: 0x10, e: true, f: ~, g: 007, h: 1.50, i: '1', 1: on}"
    )
    assert faults == []
    assert data == {
        "a": "yes",
        "b": "1:30",
        "c": "2013-01-01T00:00:00Z",
        "d": "0x10",
        "e": True,
        "f": None,
        "g": 7,
        "h": Inexact("1.50"),
        "i": "1",
        "1": "on",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("- a", "must be a mapping"),
        ("", "must be a mapping"),
        ("a: &x {b: *x}", "an alias to something that contains it"),
    ],
)
def test_text_that_is_no_mapping_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text)


def test_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    assert faults_of(lambda: load_plan(tmp_path / "none.yaml", {})) == [
        f"{tmp_path / 'none.yaml'} cannot be read: No such file or directory"
    ]
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    assert "is not UTF-8 text" in faults_of(lambda: load_plan(tmp_path / "latin.yaml", {}))[0]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            ('epsilon: "100"', 'epsilon: "3.9"'),
            "views.destinations.ledger: ledger 'aircraft' affords no window: one costs epsilon 4 and delta 1/1000000 "
            "at level 'detailed', and the budget of a period is epsilon 39/10 and delta 1/10000; raise "
            "ledgers.aircraft.epsilon",
        ),
        (
            ('delta: "1/10000"', 'delta: "2e-7"'),
            "views.destinations.ledger: ledger 'aircraft' affords no window: one costs epsilon 4 and delta 1/1000000 "
            "at level 'detailed', and the budget of a period is epsilon 100 and delta 1/5000000; raise "
            "ledgers.aircraft.delta",
        ),
        (
            ("item: dest\n    kind: topk", "item: dest\n    items: dest\n    kind: topk"),
            "views.busiest.items: cannot be combined with item; write one of the two: item, a field with "
            "one item of an event; or items, a field that is a list of them",
        ),
        (
            ("topic: flights,", "topic: flights, key: tailnum,"),
            "sources.flights.user: cannot be combined with key, which replaces the record key; leave it out",
        ),
        (
            ("item: dest\n    kind: topk", "items: dest\n    kind: topk"),
            "sources.flights: no event can have both of the fields 'dest' and 'dest' that the source and "
            "its views read: a text has no fields, and is no list",
        ),
        (
            ("item: dest\n    kind: topk", "item: $.dest.iata\n    kind: topk"),
            "sources.flights: no event can have both of the fields 'dest' and '$.dest.iata' that the "
            "source and its views read: a text has no fields, and is no list",
        ),
        *(
            (
                ("item: dest\n    kind: topk", f"{key}: {path}\n    kind: topk"),
                f'views.busiest.{key}: a path is $ and one .name or ["any text"] after another, as $.page.id or '
                '$["page"]["the id"]; of a list there is no single element to name',
            )
            for key, path in (("item", "$"), ("item", "$dest"), ("items", "$.a[0]"), ("item", "$..a"))
        ),
        (("kbar: 40", "kbar: 2"), "views.busiest.kbar: must be at least k = 3, not 2"),
        (
            ("grace: 1h", "grace: 1h, max_ahead: 0s"),
            "views.destinations.window.max_ahead: must be at least 1s: ticks are 1 s apart",
        ),
        (
            ('delta: "1e-6"', 'delta: "0"'),
            "views.destinations.delta: must be above 0: which keys exist is unknown, and showing one cannot be free of "
            "delta",
        ),
        (
            ('epsilon: "0.25"', 'epsilon: "0.004"'),
            "views.destinations.ladder: level 'overview' has epsilon 1/250 for the 5 counts that one user moves, "
            "1/1250 for one; that must be between 1/1000 and 40",
        ),
        (("- {level: standard", "- {level: overview"), "ladders.standard: duplicate level 'overview'"),
        (
            ("partner: standard", "partner: standart"),
            "audiences.partner: ladder 'standard' has no level 'standart', and view 'destinations' has that ladder; "
            "did you mean 'standard'?",
        ),
        (
            ("topic: flights,", "topic: flights, dead_letter_topic: flights,"),
            "sources.flights.dead_letter_topic: 'flights' is the topic of source 'flights'; choose another topic",
        ),
        (
            ("sources:\n", "topics: {prefix: acme}\nsources:\n"),
            "topics.prefix: must be at most 49 of a-z, A-Z, 0-9, '.', '_' and '-', and end with '.' or '_'",
        ),
        (
            ("sources:\n", "topics: {replication: 2, min_insync_replicas: 3}\nsources:\n"),
            "topics.min_insync_replicas: must be at most topics.replication, 2, not 3: nothing could be written",
        ),
        (
            ("sources:\n", "topics: {replication: 0}\nsources:\n"),
            "topics.replication: must be at least 1, not 0",
        ),
        (
            ("sources:\n", "topics: {copies: 3}\nsources:\n"),
            "topics.copies: unknown key; known: min_insync_replicas, prefix, replication",
        ),
        (
            ("sources:\n  flights: {", "topics: {prefix: acme.}\nsources:\n  flights: {dead_letter_topic: letters, "),
            "sources.flights.dead_letter_topic: 'letters' does not begin with topics.prefix, 'acme.'; add the prefix",
        ),
        (
            ("topic: flights,", "topic: flights.releases.x,"),
            "sources.flights.topic: 'flights.releases.x' could be an internal topic: names that begin with "
            "'flights.releases.' are reserved",
        ),
        (
            ("topic: flights,", "topic: flights-events,"),
            "sources.flights.topic: 'flights-events' could be an internal topic: names that begin with 'flights-' are "
            "reserved",
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nerase_within: 5s"),
            "erase_within: must be at least 10s: a broker erases from its logs in rounds",
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nblock_cache: 7MiB"),
            "block_cache: must be at least 8MiB: it holds the indexes of the tables' files",
        ),
        (("data_dir: ./state", "data_dir: ./state\nstandbys: 10"), "standbys: must be at most 9, not 10"),
        (
            ("data_dir: ./state", "data_dir: ./state\nwindow_memory: 31MiB"),
            "window_memory: must be at least 32MiB: one read takes some of it",
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nwindow_memory: 64"),
            'window_memory: 64 needs a unit: "64MiB", "64GiB"',
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nwindow_memory: 64 MB"),
            'window_memory: write a size as a whole number with its unit: "64MiB", "1GiB"',
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nrelease: {slot: 50ms}"),
            "release.slot: must be at least 100ms: a worker under load wakes up some 10 ms late",
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nrelease: {offset: 2}"),
            'release.offset: 2 needs a unit: "2s", "2m", "2h", "2d"',
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nrelease: {ofset: 2s}"),
            "release.ofset: unknown key; did you mean 'offset'?",
        ),
        (
            ("start: 2013-01-01T00:00:00Z, grace", "start: 2013-01-01T00:00:00, grace"),
            'views.destinations.window.start: a moment needs its offset from UTC: "2013-01-01T00:00:00Z"',
        ),
        (
            ("data_dir: ./state", "data_dir: ./state\nreleases: {slot: 2s}"),
            "releases: unknown key; did you mean 'release'?",
        ),
        (
            ("kind: topk", "kind: topk\n    filter: a"),
            "views.busiest.filter: unknown key; known: audiences, buckets, catalogue, item, item_meaning, items, "
            "items_per_user, k, kbar, kind, ladder, ledger, noise, pacing, retention, selection, share, sharpen, "
            "source, title, unit, unlock, when_short, window, windows_per_user",
        ),
        (
            ("kind: topk", "kind: top"),
            "views.busiest.kind: must be 'bounds', 'catalogue', 'gap', 'histogram', 'keys', 'lookup', 'pure_topk', "
            "'running', 'subset', 'topk', not 'top'",
        ),
    ],
)
def test_what_would_break_a_guarantee_is_refused(planned: Planner, change: tuple[str, str], fault: str) -> None:
    assert fault in faults_of(lambda: planned(change))


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        ("{}", "ledgers.aircraft.zcdp.epsilon: is required"),
        (
            '{epsilons: "1", slack: "1e-7"}',
            "ledgers.aircraft.zcdp.epsilons: unknown key; did you mean 'epsilon'?",
        ),
        ('{epsilon: "1"}', "ledgers.aircraft.zcdp.slack: is required"),
        ('{epsilon: "0", slack: "1e-7"}', "ledgers.aircraft.zcdp.epsilon: must be above 0"),
        (
            '{epsilon: "1", slack: "0"}',
            "ledgers.aircraft.zcdp.slack: must be above 0: without a chance to fail, epsilons just add up",
        ),
        (
            '{epsilon: "1", slack: "1"}',
            "ledgers.aircraft.zcdp.slack: must be below 1: a delta of 1 promises nothing",
        ),
        (
            "{epsilon: 0.5, slack: 1e-7}",
            "ledgers.aircraft.zcdp.slack: 1e-7 becomes a binary float, which is not the number you wrote; quote it: "
            '"1e-7"',
        ),
        (
            '{epsilon: "101", slack: "1e-7"}',
            "ledgers.aircraft.zcdp: it takes epsilon 101 and delta 1/10000000 out of the ledger's epsilon 100 and "
            "delta 1/10000, which are the totals",
        ),
        (
            '{epsilon: "1", slack: "1e-3"}',
            "ledgers.aircraft.zcdp: it takes epsilon 1 and delta 1/1000 out of the ledger's epsilon 100 and delta "
            "1/10000, which are the totals",
        ),
    ],
)
def test_a_pool_that_does_not_fit_is_refused(planned: Planner, pool: str, fault: str) -> None:
    assert fault in faults_of(lambda: planned(("period: 371d", f"period: 371d, zcdp: {pool}")))


@pytest.mark.parametrize(
    ("pool", "short", "key"),
    [
        ('{epsilon: "1/10", slack: "1e-7"}', "rho", "zcdp.epsilon"),
        ('{epsilon: "100", slack: "1e-7"}', "epsilon 3/10000000", "epsilon"),
    ],
)
def test_a_pool_that_pays_for_no_window_is_refused(planned: Planner, pool: str, short: str, key: str) -> None:
    faults = faults_of(lambda: planned(("period: 371d", f"period: 371d, zcdp: {pool}")))
    (fault,) = (words for words in faults if words.startswith("views.busiest.ledger"))
    assert "affords no window: one costs" in fault
    assert short in fault
    assert fault.endswith(f"; raise ledgers.aircraft.{key}")


FROM_2013 = "from 2013-01-01T00:00:00Z on"
FROM_1970 = "from 1970-01-01T00:00:00Z on"


@pytest.mark.parametrize(
    ("changes", "key", "windows", "periods", "window", "ledger"),
    [
        ({"371d": "366d"}, "size", f"7d {FROM_2013}", f"366d {FROM_2013}", "size: 6d", "period: 364d or 371d"),
        ({"371d": "6d"}, "size", f"7d {FROM_2013}", f"6d {FROM_2013}", "size: 6d", "period: 7d"),
        ({"7d": "36h"}, "size", f"1d12h {FROM_2013}", f"371d {FROM_2013}", "size: 1d", "period: 370d12h or 372d"),
        (
            {"371d, start: 2013-01-01T00:00:00Z}": "366d}"},
            "size",
            f"7d {FROM_2013}",
            f"366d {FROM_1970}",
            "size: 6d and start: 2012-12-28T00:00:00Z",
            "period: 364d or 371d and start: 2013-01-01T00:00:00Z",
        ),
        (
            {"371d, start: 2013-01-01T00:00:00Z}": "371d}"},
            "start",
            f"7d {FROM_2013}",
            f"371d {FROM_1970}",
            "start: 2012-12-27T00:00:00Z",
            "start: 2013-01-01T00:00:00Z",
        ),
        (
            {"7d, start: 2013-01-01T00:00:00Z": "7d"},
            "start",
            f"7d {FROM_1970}",
            f"371d {FROM_2013}",
            "start: 2013-01-01T00:00:00Z",
            "start: 1970-01-01T00:00:00Z",
        ),
        (
            {"371d, start: 2013": "371d, start: 1970", "7d, start: 2013-01-01": "7d, start: 1000-01-03"},
            "start",
            "7d from 1000-01-03T00:00:00Z on",
            f"371d {FROM_1970}",
            "start: 1000-01-09T00:00:00Z",
            "start: 1000-01-03T00:00:00Z",
        ),
    ],
)
def test_windows_that_do_not_tile_periods_are_refused_with_what_would_fit(
    planned: Planner, changes: dict[str, str], key: str, windows: str, periods: str, window: str, ledger: str
) -> None:
    faults = faults_of(lambda: planned(*changes.items()))
    assert faults == [
        f"views.{view}.window.{key}: windows of {windows} do not tile the periods of ledger 'aircraft', {periods}: one "
        f"that is in two periods would be charged to the first alone; give the window {window}, or ledger 'aircraft' "
        f"{ledger}"
        for view in ("destinations", "busiest")
    ]


def test_a_window_that_would_have_to_be_too_short_is_not_offered(planned: Planner) -> None:
    fault, _ = faults_of(lambda: planned(("size: 7d", "size: 1s"), ("371d", "1d1ms")))
    assert fault.endswith("; give ledger 'aircraft' period: 1d or 1d1s")


@pytest.mark.parametrize(
    "changes",
    [
        [("size: 7d", "size: 6d"), ("371d", "366d")],
        [("371d", "364d")],
        [("size: 7d, start: 2013-01-01", "size: 7d, start: 2012-12-27"), ("371d, start: 2013", "371d, start: 1970")],
        [("size: 7d, start: 2013-01-01T00:00:00Z", "size: 7d"), ("371d, start: 2013", "371d, start: 1970")],
    ],
)
def test_what_a_fault_about_tiling_offers_is_accepted(planned: Planner, changes: list[tuple[str, str]]) -> None:
    assert all(view.window.shape.grid.tiles(view.ledger.periods) for view in planned(*changes).views.values())


def test_delta_above_what_the_coarsest_level_allows_is_refused(planned: Planner) -> None:
    """specs/lossless 2.9.5: at most 1 - e^(-0.25/5) = 0.0488 at the coarsest level, which has a third of the delta."""
    generous = ('delta: "1/10000"', 'delta: "0.5"')
    assert planned(generous, ('delta: "1e-6"', 'delta: "0.1"')).views["destinations"].keys_at_worst.delta == Fraction(
        1, 10
    )
    faults = faults_of(lambda: planned(generous, ('delta: "1e-6"', 'delta: "0.4"')))
    assert [fault.partition(":")[0] for fault in faults] == ["views.destinations.delta"]


def test_two_sources_of_one_topic_are_refused(planned: Planner) -> None:
    second = "  flights: {topic: flights, partitions: 4}\n"
    faults = faults_of(lambda: planned(("sources:\n", "sources:\n" + second.replace("flights:", "again:"))))
    assert faults == ["sources.flights.topic: 'flights' is the topic of source 'again' already"]


def test_two_ledgers_of_one_population_are_refused_and_views_may_share_one(planned: Planner) -> None:
    words, period = "aircraft by tail number", "period: 371d, start: 2013-01-01T00:00:00Z"
    second = f'  again: {{population: {words}, epsilon: "1", delta: "0", {period}}}\n'
    faults = faults_of(lambda: planned(("ledgers:\n", "ledgers:\n" + second)))
    assert faults == [
        "ledgers.aircraft.population: 'aircraft by tail number' is the population of ledger 'again' already. Use that "
        "ledger for the views of both; or, if these are other people, describe them in other words"
    ]
    assert len(planned(("ledgers:\n", "ledgers:\n" + second.replace(words, "airlines"))).ledgers) == 2
    assert {view.ledger.name for view in planned().views.values()} == {"aircraft"}


def test_reference_to_an_entry_that_is_wrong_is_no_second_fault(planned: Planner) -> None:
    assert faults_of(lambda: planned(("period: 371d", "period: soon"))) == [
        'ledgers.aircraft.period: write a duration as whole numbers with units, largest first: "7d", "1h30m", "250ms"'
    ]


def test_environment_names_the_broker_and_wins(planned: Planner) -> None:
    assert planned(broker="elsewhere:9092").broker.url == "kafka://elsewhere:9092"
    assert planned(("broker: kafka://127.0.0.1:9092\n", ""), broker="memory://").broker.url == "memory://"
    assert faults_of(lambda: planned(broker="elsewhere")) == [
        'STREAM_DP_BROKER: \'elsewhere\' is no broker: write "kafka://host:port" or "memory://"'
    ]


@pytest.mark.parametrize(
    ("written", "full"),
    [
        ("memory://", "memory://"),
        ("kafka://a:1", "kafka://a:1"),
        ("a.b-c:9092", "kafka://a.b-c:9092"),
        ("kafka://a:1,b:2", "kafka://a:1,b:2"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_broker_is_kept_in_full_form(written: str, full: str) -> None:
    assert check_broker(written) == full


@pytest.mark.parametrize("written", ["", "a", "a:0", "a:65536", "http://a:1", "a:1,", "memory://x", "kafka://"])
def test_broker_in_another_form_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is no broker"):
        check_broker(written)


def test_configuration_made_in_memory_is_planned_like_a_file(planned: Planner, flights: str, tmp_path: Path) -> None:
    data, _ = parse_yaml(flights)
    assert build_plan(data, tmp_path) == planned()


@given(st.integers(0, 10**14))
def test_duration_is_read_as_it_is_written(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("7d", 604_800_000), ("1h30m", 5_400_000), ("250ms", 250), ("2w", 1_209_600_000), ("0s", 0)],
)
def test_duration_has_numbers_and_units(text: str, duration_ms: int) -> None:
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "7", "-1h", "1.5h", "30m1h", "1h 30m", "1H", "PT1H"])
def test_duration_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1M", "1mo", "3 months", "1 month", "1y", "2years", "1quarter"])
def test_months_and_years_are_refused_for_what_they_are(text: str) -> None:
    with pytest.raises(ValueError, match="months, quarters and years have no fixed length"):
        parse_duration(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_moment_is_read_as_it_is_written(time_ms: int) -> None:
    assert parse_time(format_time(time_ms)) == time_ms


def test_moment_keeps_its_offset_and_its_milliseconds() -> None:
    assert parse_time("1970-01-01T01:00:00.250+01:00") == 250
    assert format_time(250) == "1970-01-01T00:00:00.250Z"
    with pytest.raises(ValueError, match="whole number of milliseconds"):
        parse_time("1970-01-01T00:00:00.0001Z")
    with pytest.raises(ValueError, match="outside the years"):
        format_time(10**17)
