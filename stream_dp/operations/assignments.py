"""Assignments `KEY=VALUE`, which change some settings of a view in the plan in effect."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.config.yaml_data import Data, parse_yaml
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import Inexact, parse_exact
from stream_dp.operations import named


def tuned(before: Plan, view: str, assignments: Sequence[str]) -> Plan:
    """Return the plan in effect with some settings of a view changed.

    Args:
        before: the plan in effect, as that of a file.
        view: the name of the view.
        assignments: `KEY=VALUE` each: a setting of the view; or `ladders.LADDER.LEVEL` or a setting of any view,
            `views.VIEW...`. Without a value a setting, level or view is removed.

    Raises:
        ConfigError: there is no such view, an assignment is wrong, or the result is not a valid configuration.
    """
    return build_plan(assigned(before, view, assignments), before.folder)


def assigned(before: Plan, view: str, assignments: Sequence[str]) -> dict[str, Any]:
    """Return the data of the plan that `tuned` returns, which may be invalid; for the arguments see there.

    Raises:
        ConfigError: there is no such view, or an assignment is wrong.
    """
    raw: dict[str, Any] = copy.deepcopy(dict(before.raw))
    named("view", view, raw["views"], "view")
    for assignment in assignments:
        key, sign, text = assignment.partition("=")
        path = key.split(".")
        if not sign or not all(path):
            raise ConfigError("write KEY=VALUE, such as k=20 or window.grace=1m", assignment)
        entry = _entry(raw.get("views"), view, assignment)
        value = _value(assignment, text)
        if path[0] == "levels":
            path = _in_ladder(raw["ladders"], entry.get("ladder"), path, assignment)
        if path[0] == "ladders":
            _set_level(raw["ladders"], path, assignment, value)
            continue
        is_start = path[0] == "audiences" and len(path) > 1 and not isinstance(entry.get("audiences"), Mapping)
        _assign(raw if is_start or path[0] == "views" else entry, path, value)
    return raw


def _entry(views: Data, view: str, assignment: str) -> dict[str, Any]:
    """Return the settings of a view, as the assignments before this one leave them."""
    entry = named("view", view, views, "view") if isinstance(views, dict) else None
    if not isinstance(entry, dict):
        raise ConfigError(f"the assignments before this one leave view {view} no settings", assignment)
    return entry


def _in_ladder(ladders: Mapping[str, Any], name: Data, path: Sequence[str], assignment: str) -> list[str]:
    """Return the place of a level of a view's ladder among all ladders."""
    if not isinstance(name, str) or name not in ladders:
        raise ConfigError("the view has no ladder that is known", assignment)
    key = _key_of(ladders[name])
    if len(path) != 3 or path[2] != key or assignment.endswith("="):
        raise ConfigError(f'write a level and its {key}: "levels.LEVEL.{key}=1/2"', assignment)
    levels = [level["level"] for level in ladders[name]]
    if path[1] not in levels:
        raise ConfigError(f"ladder {name} has no level {path[1]!r}; {unknown(path[1], levels)}", assignment)
    return ["ladders", name, path[1]]


def _set_level(ladders: dict[str, Any], path: Sequence[str], assignment: str, value: Data) -> None:
    """Set the epsilon or share of a level of a ladder, add a level in the order of these, or remove one."""
    if len(path) != 3 or path[1] not in ladders or isinstance(value, dict | list):
        raise ConfigError('write a ladder, a level and its epsilon or share: "ladders.LADDER.LEVEL=1/2"', assignment)
    levels = ladders[path[1]]
    name = path[2]
    key = _key_of(levels)
    at = next((at for at, level in enumerate(levels) if level["level"] == name), None)
    if value is None:
        ladders[path[1]] = [level for level in levels if level["level"] != name]
    elif at is not None:
        levels[at][key] = value
    else:
        try:
            size = parse_exact(str(value))
            coarser = sum(parse_exact(str(level[key])) < size for level in levels)
        except ValueError as error:
            raise ConfigError(str(error), assignment) from None
        levels.insert(coarser, {"level": name, key: value})


def _key_of(ladder: Sequence[Mapping[str, Any]]) -> str:
    """Return the key of what the levels of a ladder state."""
    return "share" if any("share" in level for level in ladder) else "epsilon"


def _value(assignment: str, text: str) -> Data:
    """Return a value as a file has it. An exact number stays as it is written: nothing here makes a float of it."""
    try:
        read, faults = parse_yaml(f"value: {text}")
    except ConfigError:
        read = {}
        faults = []
    if faults or read.keys() != {"value"}:
        raise ConfigError("the value cannot be read as YAML; quote it for the shell", assignment)
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
