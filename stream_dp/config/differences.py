"""Differences of two configurations, setting by setting, in the words of the file.

Only the sections that say what is counted and released are compared; where the cluster, the folders and the key file
are is each machine's own. Values are compared, not texts: `60s` is `1m`, and what is left out is its default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stream_dp.config.file_schema import ENTRIES, LevelConfig, is_duration
from stream_dp.config.loading import Sections, read_data
from stream_dp.config.yaml_data import join
from stream_dp.exact.rationals import exact_text
from stream_dp.windows.durations import format_duration

WIDEST = 60
"""Of a value in words; a longer one is cut."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that differs.

    Attributes:
        path: its place in the file; a level of a ladder stands there by its name, `ladders.standard.fine.epsilon`.
        change: whether it stands in both, in the second only, or in the first only.
        before: its former value as it was written, with "(default)" where it was not; None if it is `added`, or had
            none.
        after: its value as it is written; None if it is `removed`, or has none.
    """

    path: str
    change: Literal["changed", "added", "removed"]
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        if self.change == "changed":
            return f"{self.path} {self.before or 'none'} -> {self.after or 'none'}"
        value = self.after or self.before
        return f"{self.path} {'is new' if self.change == 'added' else 'is gone'}{'' if value is None else f': {value}'}"

    @property
    def section(self) -> str:
        """The section it stands in."""
        return self.path.partition(".")[0]

    @property
    def entry(self) -> str:
        """The entry of the section that it stands in or is: the name of a view, of a ladder."""
        return self.path.split(".")[1]


_Leaf: TypeAlias = tuple[object, str | None]
"""A value as it was read, and in words."""


def sections_of(raw: Mapping[str, Any]) -> Sections:
    """Return the models of these sections, which have no faults; other sections need not be there."""
    return read_data(dict(raw))[0]


def differences(former: Mapping[str, Any], latter: Mapping[str, Any]) -> list[Setting]:
    """Every setting that differs between two configurations, in the order of the second one.

    Args:
        former: the data of the first one's sections, without faults.
        latter: of the second one's.
    """
    before, after = sections_of(former), sections_of(latter)
    found: list[Setting] = []
    for section in ENTRIES:
        old, new = getattr(before, section), getattr(after, section)
        for name in dict.fromkeys([*new, *old]):
            path, was, is_now = join(section, name), _word(former, section, name), _word(latter, section, name)
            if name not in old:
                found.append(Setting(path, "added", after=is_now))
            elif name not in new:
                found.append(Setting(path, "removed", before=was))
            elif old[name] != new[name] and section == "audiences" and was is not None and is_now is not None:
                found.append(Setting(path, "changed", was, is_now))
            elif old[name] != new[name]:
                leaves = _leaves(path, old[name], former[section][name])
                found += _between(leaves, _leaves(path, new[name], latter[section][name]))
    return found


def concerning(settings: Sequence[Setting], section: str, names: Collection[str]) -> list[Setting]:
    """Those of some settings that stand in some entries of a section."""
    return [one for one in settings if one.section == section and one.entry in names]


def _between(before: Mapping[str, _Leaf], after: Mapping[str, _Leaf]) -> Iterator[Setting]:
    for path, leaf in after.items():
        if path not in before:
            yield Setting(path, "added", after=leaf[1])
        elif before[path][0] != leaf[0]:
            yield Setting(path, "changed", before[path][1], leaf[1])
    for path, leaf in before.items():
        if path not in after:
            yield Setting(path, "removed", before=leaf[1])


def _word(raw: Mapping[str, Any], section: str, name: str) -> str | None:
    """An entry that is written in one word, or a list: an audience, a ladder."""
    written = raw.get(section, {}).get(name)
    return _words(written) if isinstance(written, str | list) else None


def _leaves(path: str, entry: object, written: object) -> dict[str, _Leaf]:
    """The values of an entry by their paths; one that is none is no setting: a view of another kind has others."""
    return {place: leaf for place, leaf in _walk(path, entry, written, None) if leaf[0] is not None}


def _walk(path: str, value: object, written: object, default: FieldInfo | None) -> Iterator[tuple[str, _Leaf]]:
    """Every value below a path.

    Args:
        path: of the value.
        value: as it was read.
        written: as it stands in the file, as far as it does.
        default: the field that it is the default of; None where it was written.
    """
    below = dict(written) if isinstance(written, Mapping) else {}
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            unset = None if name in value.model_fields_set else field
            yield from _walk(join(path, name), getattr(value, name), below.get(name), unset)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _walk(join(path, name), inner, below.get(name), None)
    elif isinstance(value, list) and value and isinstance(value[0], LevelConfig) and isinstance(written, list):
        for level, one in zip(value, written, strict=True):
            key = "share" if level.epsilon is None else "epsilon"
            yield f"{join(path, level.level)}.{key}", (level.size, _words(one[key]))
    elif default is None:
        yield path, (value, _words(value if written is None else written))
    elif isinstance(value, int) and is_duration(default):
        yield path, (value, f"{format_duration(value)} (default)")
    else:
        yield path, (value, f"{_words(value)} (default)")


def _words(value: object) -> str:
    """A value as a file has it, on one line."""
    match value:
        case bool():
            text = str(value).lower()
        case Fraction():
            text = exact_text(value)
        case Mapping():
            text = f"{{{', '.join(f'{key}: {_words(inner)}' for key, inner in value.items())}}}"
        case list() | tuple():
            text = f"[{', '.join(map(_words, value))}]"
        case _:
            text = str(value)
    return text if len(text) <= WIDEST else text[: WIDEST - 3] + "..."
