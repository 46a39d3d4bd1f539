"""Any value at any key of the file: a plan, or a fault with its path."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.differences import differences
from stream_dp.config.explanation import describe
from stream_dp.config.forecast import backlog_faults
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan, load_plan
from stream_dp.config.yaml_data import Data, parse_yaml
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import Inexact
from stream_dp.windows.durations import parse_time
from tests.support.file_keys import file_keys

Call = Callable[..., Any]
Place = tuple[str | int, ...]
Case = tuple[str, dict[str, Data]]

FULL = """\
name: flights
broker:
  address: kafka-1.example.com:9093
  client_id: flights
  tls: {ca: ca.pem, certificate: own.pem, key: own.key, key_password: {file: password}}
  sasl: {mechanism: scram-sha-512, username: flights, password: {env: PASSWORD}}
data_dir: state
key_file: flights.key
erase_within: 10m
window_memory: 64MiB
block_cache: 64MiB
standbys: 1
release: {slot: 1s, offset: 2s}
topics: {prefix: a., replication: 3, min_insync_replicas: 2}
registry: {url: "https://example.com", tls: {ca: ca.pem}, username: flights, password: {file: password}}
serve:
  tokens: readers.tokens
  public: [public]
  origins: ["https://example.com"]
  jwt: {issuer: "https://example.com", audience: flights, jwks: "https://example.com/keys", claim: reads}
console: {tokens: operators.tokens}
sources:
  flights: {topic: flights, partitions: 4, format: json, user: tailnum, time: {field: time_hour, unit: ms}}
  visits: {topic: visits, partitions: 4, key: $.who.id, dead_letter_topic: a.refused, partitioner: murmur2}
ledgers:
  aircraft:
    population: aircraft
    epsilon: "1000"
    delta: "1/100"
    period: 91d
    start: 2013-01-01T00:00:00Z
    zcdp: {epsilon: "100", slack: "1e-6"}
  guests: {population: guests, epsilon: "1000", delta: "1/100", period: 1mo, zone: Europe/Berlin}
ladders:
  standard:
  - {level: overview, epsilon: "0.25"}
  - {level: detailed, epsilon: 4}
  single: [{level: detailed, epsilon: 4}]
audiences:
  public: {level: overview, unlock: [{level: detailed, after: 14d}]}
  partner: detailed
views:
  destinations:
    kind: histogram
    source: flights
    item: dest
    items_per_user: 5
    windows_per_user: 20
    pacing: even
    when_short: coarser
    window:
      {size: 7d, step: 7d, start: 2013-01-01T00:00:00Z, grace: 1h, catch_up: 1m, clock: event, max_ahead: 1d, idle: 1m}
    delta: "1e-6"
    ledger: aircraft
    ladder: standard
    share: "1/2"
    audiences: [public, partner]
    unlock: {public: [{level: detailed, after: 7d}]}
    sharpen: {audience: public, level: detailed, reserve: "1/4", every: 1d}
    retention: 21d
    title: Busiest destinations
    unit: aircraft
    item_meaning: the airport of arrival
    buckets: 8
    noise: discrete-laplace
    remember: {audience: public, keep: 2}
  busiest:
    kind: topk
    k: 2
    kbar: 5
    selection: {mechanism: gumbel, epsilon: "1/10", delta: "1e-7"}
    source: visits
    items: $.page
    items_per_user: 5
    window: {size: 7d, start: 2013-01-01T00:00:00Z, grace: 1h}
    ledger: aircraft
    ladder: standard
  largest:
    kind: pure_topk
    k: 2
    key_bytes: 8
    largest_count: 1000
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 7d, start: 2013-01-01T00:00:00Z}
    ledger: aircraft
    ladder: single
    audiences: [partner]
  steady:
    kind: histogram
    delta: "1e-6"
    strict: {rows: 1000, largest_count: 1000}
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 7d, start: 2013-01-01T00:00:00Z}
    ledger: aircraft
    ladder: single
    audiences: [partner]
  asked:
    kind: lookup
    rows: 100
    key_bytes: 8
    largest_count: 1000
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 7d, start: 2013-01-01T00:00:00Z}
    ledger: aircraft
    ladder: single
    audiences: [partner]
  counted:
    kind: catalogue
    catalogue: [a, b, c]
    rank: 2
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 4d, step: 2d, pane: 1d, clock: event}
    ledger: aircraft
    ladder: standard
    audiences: [partner]
  ahead:
    kind: gap
    catalogue: {numbers: {from: 1, to: 9}}
    k: 2
    selection: {epsilon: "1/10", scale: general, resolution: "1/10"}
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 1d}
    ledger: aircraft
    ladder: standard
  set:
    kind: subset
    catalogue: {topic: keys}
    k: 2
    selection: {epsilon: "1/10", mechanism: canonical, noise: gumbel, gamma: "0", loss: signed}
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 1d}
    ledger: aircraft
    ladder: standard
  sofar:
    kind: running
    catalogue: {file: keys.txt}
    source: flights
    item: dest
    items_per_user: 2
    window: {size: 7d, pane: 1d, start: 2013-01-01T00:00:00Z}
    ledger: aircraft
    ladder: standard
  spread:
    kind: bounds
    grid: [1, 2, 5]
    source: flights
    item: dest
    items_per_user: 6
    window: {size: 7d, start: 2013-01-01T00:00:00Z}
    ledger: aircraft
    ladder: single
    audiences: [partner]
  local:
    kind: histogram
    source: flights
    item: dest
    items_per_user: 1
    window: {size: 1d, zone: Europe/Berlin}
    delta: "1e-6"
    ledger: guests
    ladder: standard
"""

SHAPES: tuple[Data, ...] = (
    None,
    "",
    [],
    {},
    ["a", 1],
    {"a": 1},
    [None],
    [[]],
    [{}],
    {"": None},
    "text",
    "1/0",
    "${",
    "a\x00b",
    "a\ud800b",
    "x" * 300,
    "\N{ARABIC-INDIC DIGIT THREE}",
    "-1s",
    "999999999999999d",
    "0s",
    "1ms",
    "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00",
    "1e-99",
    "9" * 60,
    0,
    1,
    -1,
    7,
    10**30,
    -(10**399),
    True,
    False,
    Inexact("0.5"),
    Inexact(".nan"),
    Inexact("-.inf"),
)
"""What a place of a file is replaced with."""
OF_PYDANTIC = ("Input should", "Value error", "validation error", "Unable to")
"""Words that are about classes, not about a file."""
NOW_MS = parse_time("2026-01-01T00:00:00Z")


# -- files -------------------------------------------------------------------------------------------------------


def full() -> dict[str, Data]:
    data, faults = parse_yaml(FULL)
    assert not faults
    return data


def places(data: Data, path: Place = ()) -> Iterator[Place]:
    """Every place of a file."""
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(data: dict[str, Data], path: Place, change: Callable[[Any, Any], object]) -> dict[str, Data]:
    """A copy of a file in which one place is different."""
    copied = dict(data)
    inner: Any = copied
    for key in path[:-1]:
        inner[key] = inner[key].copy()
        inner = inner[key]
    change(inner, path[-1])
    return copied


def variants(data: dict[str, Data], path: Place) -> Iterator[Case]:
    """Every shape at a place; nothing there; its key misspelt."""
    words = ".".join(map(str, path))
    for shape in SHAPES:
        yield f"{words} = {shape!a}", changed(data, path, partial(_put, shape))
    yield f"{words} left out", changed(data, path, lambda at, key: at.__delitem__(key))
    if isinstance(path[-1], str):
        yield f"{words} misspelt", changed(data, path, lambda at, key: at.__setitem__(f"{key}x", at.pop(key)))


def _put(shape: Data, at: Any, key: Any) -> None:
    at[key] = shape


def files() -> Iterator[tuple[dict[str, Data], list[Place]]]:
    """The full file in parts that are planned quickly, and the places to change in each."""
    data: Any = full()
    aircraft = {key: value for key, value in data["ledgers"]["aircraft"].items() if key != "zcdp"}
    plain = {**data, "ledgers": {**data["ledgers"], "aircraft": aircraft}}
    for number, (name, view) in enumerate(data["views"].items()):
        one = {**plain, "views": {name: view}}
        yield one, [path for path in places(one) if number == 0 or path[0] in ("views", "audiences")]
    one = {**data, "views": {"counted": data["views"]["counted"]}}
    yield one, [path for path in places(one) if "zcdp" in path]


def cases() -> Iterator[Case]:
    for data, changing in files():
        for path in changing:
            yield from variants(data, path)


def pairs(seed: int) -> Iterator[Case]:
    """Files in which two places at random are different, without end."""
    chance = random.Random(seed)
    each = [(data, changing) for data, changing in files()]
    while True:
        data, changing = chance.choice(each)
        first, once = chance.choice([*variants(data, chance.choice(changing))])
        second, twice = chance.choice([*variants(once, chance.choice([*places(once)]))])
        yield f"{first}, {second}", twice


def text_of(data: Data) -> str:
    """A file that is read as these data."""
    match data:
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)}: {text_of(value)}' for key, value in data.items())}}}"
        case list():
            return f"[{', '.join(map(text_of, data))}]"
        case Inexact(text):
            return text
        case _:
            return json.dumps(data)


# -- what is done with them --------------------------------------------------------------------------------------


def complaint(words: str, plan: Callable[[], Plan], former: Mapping[str, Any]) -> str:
    """What is wrong with what is said of a file; nothing where it is planned and described, or refused clearly."""
    try:
        planned = plan()
        describe(planned)
        list(backlog_faults(planned, planned.views, NOW_MS))
        differences(former, planned.raw)
    except ConfigError as error:
        unclear = [
            str(fault)
            for fault in error.faults
            if not fault.path or not fault.message or any(said in fault.message for said in OF_PYDANTIC)
        ]
        return f"{words}: {unclear}" if unclear else ""
    except Exception as error:
        return f"{words}: {type(error).__name__}: {error}"
    return ""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "keys.txt").write_text("a\nb\nc\n", encoding="utf-8")
    return tmp_path


def complaints(folder: Path, tried: Iterator[Case]) -> list[str]:
    former = full()
    found = (complaint(words, lambda data=data: build_plan(data, folder), former) for words, data in tried)  # type: ignore[misc]
    return [one for one in found if one]


def test_the_full_file_is_right_and_has_every_key(folder: Path) -> None:
    build_plan(full(), folder)
    written = {path[-1] for path in places(full())}
    assert file_keys() - written == {"profile", "token"}


def test_a_value_of_any_shape_is_planned_or_refused_with_its_path(folder: Path) -> None:
    assert complaints(folder, islice(cases(), 0, None, 37)) == []


@pytest.mark.slow
def test_every_shape_at_every_key_is_planned_or_refused_with_its_path(folder: Path) -> None:
    assert complaints(folder, cases()) == []
    assert complaints(folder, islice(pairs(22), 10_000)) == []


@pytest.mark.slow
def test_every_shape_in_a_file_is_planned_or_refused_with_its_path(folder: Path) -> None:
    former, file, found = full(), folder / "app.yaml", []
    for words, data in cases():
        file.write_text(text_of(data), encoding="utf-8")
        found.append(complaint(words, lambda: load_plan(file, {}), former))
    assert [one for one in found if one] == []


# -- what is said of some of them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        (("audiences",), {}, "audiences: needs at least one entry"),
        (("audiences",), ["public"], "audiences: must be a mapping of keys, not a list"),
        (("audiences",), None, "audiences: must be a mapping of keys, not nothing"),
        (
            ("audiences", "partner"),
            "detaild",
            "audiences.partner: ladder 'standard' has no level 'detaild', and view 'busiest' has that ladder; did you "
            "mean 'detailed'?",
        ),
        (
            ("audiences", "public", "level"),
            "finest",
            "audiences.public.level: ladder 'standard' has no level 'finest', and view 'busiest' has that ladder; "
            "known: detailed, overview",
        ),
        (
            ("views", "busiest", "selection", "delta"),
            "1e-40",
            f"views.busiest.selection.delta: 1/1{'0' * 40} is too small: no count reaches the threshold for it; write "
            "at least 1e-30",
        ),
        (
            ("views", "busiest", "selection", "epsilon"),
            "1e-20",
            f"views.busiest.selection.epsilon: 1/1{'0' * 20} is too small: the noise for it has no end; write at "
            "least 1e-9",
        ),
        (("erase_within",), "99999d", "erase_within: must be at most 36500d (100 years)"),
        (
            ("views", "busiest", "window", "start"),
            "0001-01-01T00:00:00Z",
            "views.busiest.window.start: must be from 1000-01-01T00:00:00Z on and before 3000-01-01T00:00:00Z",
        ),
        (("data_dir",), "a\0b", "data_dir: 'a\\x00b' has a character that no text has; remove it"),
    ],
)
def test_the_fault_names_the_place_and_the_remedy(folder: Path, path: Place, value: Data, fault: str) -> None:
    data: Any = full()
    data["views"] = {"busiest": data["views"]["busiest"]}
    data = changed(data, path, lambda at, key: at.__setitem__(key, value))
    with pytest.raises(ConfigError) as caught:
        build_plan(data, folder)
    assert [str(one) for one in caught.value.faults] == [fault]


def test_a_level_of_another_ladder_blames_the_view(folder: Path) -> None:
    data: Any = full()
    data["ladders"] = {**data["ladders"], "other": [{"level": "finest", "epsilon": 5}]}
    data["audiences"] = {"public": "finest"}
    data["views"] = {"busiest": data["views"]["busiest"]}
    with pytest.raises(ConfigError) as caught:
        build_plan(data, folder)
    assert str(caught.value) == (
        "views.busiest.ladder: ladder 'standard' has no level 'finest', at which audience 'public' starts; choose "
        "another ladder, or other audiences"
    )


def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(f"name: {'[' * 1500}{']' * 1500}", encoding="utf-8")
    with pytest.raises(ConfigError, match="nested too deeply"):
        load_plan(file, {})
