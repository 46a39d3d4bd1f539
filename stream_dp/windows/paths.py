"""Where a field stands in an event: at its top, by a plain name, or further in, by a path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import msgspec

Names = tuple[str, ...]
"""The names from the top of an event down to a field."""

ABSENT = object()
"""Stands for a field that is not there."""
_STEP = re.compile(r'\.(?P<plain>[\w-]+)|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]')
_FORM = (
    'a path is $ and one .name or ["any text"] after another, as $.page.id or $["page"]["the id"]; of a list there is '
    "no single element to name"
)


def names_of(field: str) -> Names:
    """The names that a field of the configuration stands for: a path begins with `$`, anything else is one name.

    Raises:
        ValueError: it begins like a path and is none.
    """
    if not field.startswith("$"):
        return (field,)
    names: list[str] = []
    at = 1
    while at < len(field):
        step = _STEP.match(field, at)
        if step is None:
            raise ValueError(_FORM)
        names.append(step["plain"] or _unquoted(step["quoted"]))
        at = step.end()
    if not names:
        raise ValueError(_FORM)
    return tuple(names)


def _unquoted(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        raise ValueError(_FORM) from None


def path_of(names: Names) -> str:
    """How the configuration names a field, so that `names_of` reads it back; plain where it can be."""
    if len(names) == 1 and not names[0].startswith("$"):
        return names[0]
    return "$" + "".join(
        f".{name}" if re.fullmatch(r"[\w-]+", name) else f"[{msgspec.json.encode(name).decode()}]" for name in names
    )


def find(event: object, names: Sequence[str]) -> object:
    """What stands at a place of nested mappings, `ABSENT` if nothing does."""
    for name in names:
        if not isinstance(event, Mapping) or name not in event:
            return ABSENT
        event = event[name]
    return event


def put(event: dict[str, object], names: Sequence[str], value: object) -> None:
    """Let a value stand at a place of nested dictionaries; those on the way are made, or copied."""
    *outer, last = names
    for name in outer:
        inner = event.get(name)
        event[name] = event = dict(inner) if isinstance(inner, Mapping) else {}
    event[last] = value


def clash(fields: Iterable[tuple[str, bool]]) -> tuple[str, str] | None:
    """Two fields that no event can have both: one would be an object, or a list, where the other is a text.

    Args:
        fields: by the words of the configuration, and whether it is a list.
    """
    places = {(names_of(field), is_list): field for field, is_list in fields}
    for (one, its), (other, others) in combinations(places, 2):
        shorter = min(len(one), len(other))
        if one[:shorter] == other[:shorter] and (len(one) != len(other) or its is not others):
            return places[one, its], places[other, others]
    return None
