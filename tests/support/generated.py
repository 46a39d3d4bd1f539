"""Random configurations, most of them valid, with everything that a configuration may say about what is counted."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.config.yaml_data import Data
from stream_dp.windows.events import names_of

START = "2024-01-01T00:00:00Z"
START_MS = 1_704_067_200_000
KEYS = ("a", "b", "c", "d")
FILE = "keys.txt"
"""Name of the file with `KEYS`, next to the configuration."""

ODD_NAMES = (
    "page",
    "the page",
    "$.page",
    "$.page.id",
    '$["the page"]',
    '$["page"].id["no. 1"]',
    '$["page"][""]',
    '$["a\\"b"]',
    '$["a\\\\b"]',
    '$["a\\u0001b"]',
    'a"b',
    "a\\b",
    "a\tb",
    " ",
    "$",
    "$x",
    "$.a b",
    "page.id",
    "Größe",
    '$["Größe"]',
    "页",
    "\u2028",
    "x" * 300,
    "$" + ".deep" * 30,
    "$" + ".deep" * 70,
    "field_0",
    "__class__",
    "__struct_fields__",
    "None",
    "class",
    "-",
    "0",
)
APPLICATIONS = ("shop", "a", "a-b", "x" * 63, "0")
PREFIXES = ("", "a.", "a_", "team.prod_", "A-b.")
NAMES = ("pages", "v", "a-b", "0", "x" * 63, "counts", "releases", "control")
WINDOWS: Sequence[dict[str, Data]] = (
    {"size": "1m"},
    {"size": "1s", "grace": "0s"},
    {"size": "1h", "grace": "1m", "clock": "event", "max_ahead": "1h", "idle": "10s", "catch_up": "0s"},
    {"size": "1d", "zone": "Europe/Berlin"},
    {"size": "1mo"},
    {"size": "1mo", "zone": "Pacific/Apia", "clock": "event"},
    {"size": "1w"},
    {"size": "4m", "step": "2m"},
    {"size": "4m", "step": "2m", "pane": "1m"},
    {"size": "4m", "pane": "1m"},
    {"size": "1d", "step": "6h", "pane": "6h", "clock": "event"},
    {"size": "7d", "pane": "1d", "start": START},
    {"size": "7d", "start": START},
)
PLAIN_WINDOWS = WINDOWS[:3]
LEDGERS: Sequence[dict[str, Data]] = (
    {"epsilon": "1000", "delta": "1/100", "period": "28d", "start": START},
    {"epsilon": "1000", "delta": "1/100", "period": "1d", "start": START},
    {"epsilon": "1000", "delta": "1/100", "period": "28d", "start": START, "zcdp": {"epsilon": "100", "slack": "1e-6"}},
)
SINGLE: list[Data] = [{"level": "fine", "epsilon": "1"}]
MIDDLE: list[Data] = [{"level": str(number), "epsilon": f"{number}/8"} for number in range(2, 9)]
LADDERS: Sequence[list[Data]] = (
    [{"level": "coarse", "epsilon": "1/4"}, {"level": "fine", "epsilon": "1"}],
    [{"level": "coarse", "share": "1/4"}, {"level": "x" * 63, "share": "1/2"}, {"level": "fine", "share": "1"}],
    [
        {"level": "coarse", "epsilon": "1/8"},
        *MIDDLE,
        {"level": "fine", "epsilon": "3"},
    ],
)
LISTS: Sequence[Data] = (
    list(KEYS),
    [*KEYS, 'a"b', "\u2028", "Größe", "0", " ", "x" * 1024],
    {"file": FILE},
    {"numbers": {"from": 0, "to": 9}},
    {"numbers": {"from": 1, "to": 999_999}},
)


def _chosen_list(chance: random.Random) -> Data:
    return chance.choice(LISTS)


def _kind(chance: random.Random) -> dict[str, Data]:
    """Return a kind and its own settings."""
    k = chance.choice((1, 2, 3))
    strict: dict[str, Data] = {"rows": chance.choice((4, 50)), "largest_count": 1000}
    gumbel: dict[str, Data] = {"mechanism": "gumbel", "epsilon": "1/10", "delta": "1e-7"}
    kinds: Sequence[dict[str, Data]] = (
        {"kind": "histogram", "delta": "1e-6"},
        {"kind": "histogram", "delta": "1e-6", "rank": k},
        {"kind": "histogram", "delta": "1e-6", "strict": strict},
        {"kind": "histogram", "delta": "1e-6", "remember": {"audience": "public", "keep": 2}},
        {"kind": "topk", "k": k, "kbar": k + 3, "selection": gumbel},
        {"kind": "topk", "k": k, "catalogue": _chosen_list(chance), "kbar": k + 1, "selection": gumbel},
        {"kind": "catalogue", "catalogue": _chosen_list(chance)},
        {"kind": "catalogue", "catalogue": _chosen_list(chance), "rank": k},
        {"kind": "catalogue", "catalogue": _chosen_list(chance), "strict": {"largest_count": 1000}},
        {"kind": "gap", "k": k, "catalogue": _chosen_list(chance), "selection": {"epsilon": "1/10"}},
        {"kind": "subset", "k": k, "catalogue": _chosen_list(chance), "selection": {"epsilon": "1/10"}},
        {"kind": "running", "catalogue": _chosen_list(chance)},
        {"kind": "bounds", "grid": [1, 2, 3]},
        {"kind": "keys", "delta": "1e-6"},
        {"kind": "pure_topk", "k": k, "key_bytes": 4, "largest_count": 100},
        {"kind": "lookup", "rows": 20, "key_bytes": 4, "largest_count": 100},
    )
    return dict(chance.choice(kinds))


def _calendar_ledger(window: Mapping[str, Data], ledgers: dict[str, dict[str, Data]]) -> str:
    """Return the ledger of years in the zone of a window; it is added where it is not there."""
    zone = str(window.get("zone", "UTC"))
    name = "years-" + zone.partition("/")[0].lower()
    ledgers[name] = {**LEDGERS[0], "population": f"people of {zone}", "period": "1y", "zone": zone}
    del ledgers[name]["start"]
    return name


def _view(chance: random.Random, sources: Sequence[str], ledgers: dict[str, dict[str, Data]]) -> dict[str, Any]:
    view: dict[str, Any] = _kind(chance)
    field = chance.choice(ODD_NAMES) if chance.random() < 0.2 else chance.choice(("page", "$.what.id", "shop"))
    view["items" if chance.random() < 0.25 else "item"] = field
    view |= {
        "source": chance.choice(sources),
        "ledger": chance.choice([*ledgers]),
        "ladder": "standard",
        "items_per_user": chance.choice((1, 1, 2, 3, 50)),
        "window": dict(chance.choice(WINDOWS if chance.random() < 0.4 else PLAIN_WINDOWS)),
    }
    optional: dict[str, Any] = {
        "buckets": chance.choice((1, 2, 16, 4096)),
        "retention": chance.choice(("0s", "1h", "365d")),
        "when_short": "coarser",
        "windows_per_user": chance.choice((1, 2, 20)),
        "noise": chance.choice(("discrete-gaussian", "truncated-laplace", "discrete-laplace")),
        "share": chance.choice(("1/4", "1/2")),
        "unlock": {"public": [{"level": "fine", "after": "2d"}]},
        "sharpen": {"audience": "public", "level": "fine", "every": "1d"},
        "title": chance.choice(("Pages", 'a"b', "\U0001f600")),
        "unit": "visitors",
        "audiences": ["partner"],
    }
    for name, value in optional.items():
        if chance.random() < 0.06:
            view[name] = value
    if "zone" in view["window"] or view["window"]["size"] == "1mo":
        view["ledger"] = _calendar_ledger(view["window"], ledgers)
    if view["kind"] == "bounds":
        view["items_per_user"] = 4
    if view["kind"] == "running" and chance.random() < 0.8:
        view["window"] = {"size": "7d", "pane": "1d", "start": START}
    if "strict" in view or view["kind"] in ("pure_topk", "lookup", "bounds"):
        view |= {"ladder": "single", "audiences": ["partner"]}
    if "windows_per_user" in view and chance.random() < 0.5:
        view["pacing"] = "even"
    return view


def _is_same_field(one: str, other: str) -> bool:
    try:
        return names_of(one) == names_of(other)
    except ValueError:
        return False


def generated(chance: random.Random) -> dict[str, Any]:
    """Return the data of a random configuration on the embedded log.

    Args:
        chance: draws it.
    """
    partitions = chance.choice((1, 2, 3))
    sources = {}
    for name in chance.sample(("visits", "v", "a-b", "0"), chance.choice((1, 1, 2))):
        source: dict[str, Any] = {"topic": f"in.{name}", "partitions": partitions, "time": {"field": "at"}}
        source["time"]["unit"] = chance.choice(("ms", "ms", "s", "iso"))
        if chance.random() < 0.2:
            source["time"]["field"] = chance.choice(ODD_NAMES)
        if chance.random() < 0.4:
            who = chance.choice(("key", "user"))
            source[who] = chance.choice(ODD_NAMES) if chance.random() < 0.2 else chance.choice(("user", "$.who.id"))
        if "user" in source and _is_same_field(source["user"], source["time"]["field"]):  # no user is called by a time
            del source["user"]
        if chance.random() < 0.2:
            source["partitioner"] = chance.choice(("crc32", "unchecked"))
        if chance.random() < 0.1:
            source["dead_letter_topic"] = chance.choice((f"refused.{name}", f"in_{name}", "x" * 249))
        sources[name] = source
    ledgers: dict[str, dict[str, Data]] = {
        name: {"population": f"people of {name}", **chance.choice(LEDGERS if chance.random() < 0.3 else LEDGERS[:1])}
        for name in chance.sample(("users", "l", "0"), chance.choice((1, 1, 2)))
    }
    names = chance.sample(NAMES, chance.choice((1, 1, 1, 2, 3)))
    data = {
        "name": chance.choice(APPLICATIONS),
        "broker": "memory://",
        "data_dir": "state",
        "key_file": "shop.key",
        "window_memory": "32MiB",
        "block_cache": "8MiB",
        "sources": sources,
        "ledgers": ledgers,
        "ladders": {"standard": chance.choice(LADDERS), "single": SINGLE},
        "audiences": {"public": "coarse", "partner": {"level": "fine"}},
        "views": {name: _view(chance, list(sources), ledgers) for name in names},
    }
    if chance.random() < 0.3:
        data["topics"] = {"prefix": chance.choice(PREFIXES)}
    return data
