"""Some settings of one view changed, as `KEY=VALUE`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.config.planning import build_plan
from stream_dp.config.yaml_data import Data, parse_yaml
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import Inexact


def tuned(before: Plan, view: str, assignments: Sequence[str]) -> Plan:
    """Return the plan in effect with some settings of a view changed.

    Args:
        before: in effect, as the plan of a file.
        view: its name.
        assignments: `KEY=VALUE` each.

    Raises:
        ConfigError: there is no such view, an assignment is wrong, or the outcome is no valid configuration.
    """
    raw: dict[str, Any] = copy.deepcopy(dict(before.raw))
    if view not in raw["views"]:
        raise ConfigError([Fault("view", f"no view is named {view!r}; {unknown(view, raw['views'])}")])
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        path = key.split(".")
        if not sign or not all(path):
            raise ConfigError([Fault(assignment, "write KEY=VALUE, such as k=20 or window.grace=1m")])
        entry = raw["views"][view]
        if path[0] == "levels":
            _set_level(raw["ladders"], entry["ladder"], path, assignment, _value(assignment, text))
            continue
        is_start = path[0] == "audiences" and len(path) > 1 and not isinstance(entry.get("audiences"), Mapping)
        _assign(raw if is_start else entry, path, _value(assignment, text))
    return build_plan(raw, before.folder)


def _set_level(ladders: dict[str, Any], name: str, path: Sequence[str], assignment: str, value: Data) -> None:
    """Set the epsilon of a level of a ladder."""
    if len(path) != 3 or path[2] != "epsilon" or value is None:
        raise ConfigError([Fault(assignment, 'write a level and its epsilon: "levels.LEVEL.epsilon=1/2"')])
    levels = {level["level"]: level for level in ladders[name]}
    if path[1] not in levels:
        raise ConfigError([Fault(assignment, f"ladder {name} has no level {path[1]!r}; {unknown(path[1], levels)}")])
    levels[path[1]]["epsilon"] = value


def _value(assignment: str, text: str) -> Data:
    """What a value is in a file. An exact number is meant as it is written: nothing here makes a float of it."""
    try:
        read, faults = parse_yaml(f"value: {text}")
    except ConfigError:
        read, faults = {}, []
    if faults or read.keys() != {"value"}:
        raise ConfigError([Fault(assignment, "the value cannot be read as YAML; quote it for the shell")])
    return _exact(read["value"])


def _exact(value: Data) -> Data:
    match value:
        case Inexact(text):
            return text
        case list():
            return [_exact(one) for one in value]
        case dict():
            return {key: _exact(one) for key, one in value.items()}
        case _:
            return value


def _assign(into: dict[str, Any], path: Sequence[str], value: Data) -> None:
    *above, last = path
    for part in above:
        if not isinstance(into.get(part), dict):
            into[part] = {}
        into = into[part]
    if value is None:
        into.pop(last, None)
    else:
        into[last] = value
