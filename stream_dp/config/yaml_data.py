"""From the text of a YAML file to plain data, without the guesses YAML makes.

Only `true`, `false`, `null` and numbers are more than text. A number with a point or an exponent stays what was
written (`Inexact`), so that it can be refused by name. A duplicate key is a fault, not an overwrite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import yaml

from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import Inexact

_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,400}")
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


Data: TypeAlias = dict[str, "Data"] | list["Data"] | str | int | bool | Inexact | None
"""Return the data of a file."""


def join(path: str, part: str | int) -> str:
    """The path of a part of what stands at `path`: `views.destinations`, `ladders.standard[1]`."""
    if isinstance(part, int):
        return f"{path}[{part}]"
    return f"{path}.{part}" if path else part


def parse_yaml(text: str) -> tuple[dict[str, Data], list[Fault]]:
    """Read one YAML document whose top is a mapping.

    Args:
        text: the file's content.

    Returns:
        The data, and a fault for each duplicate key (its first value is kept).

    Raises:
        ConfigError: not YAML, more than one document, or the top is not a mapping.
    """
    try:
        top = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}") from None
    except RecursionError:
        raise ConfigError("not a configuration: lists or mappings are nested too deeply") from None
    if not isinstance(top, yaml.MappingNode):
        raise ConfigError("the file must be a mapping of keys such as name, broker, sources, views")
    faults: list[Fault] = []
    return _mapping(top, "", faults, ()), faults


def unwritable(data: Data, path: str = "") -> Iterator[Fault]:
    """Texts that no file name, topic or message can hold: those with a zero character or half a character.

    Args:
        data: what a file holds.
        path: where it is in the file.
    """
    match data:
        case dict():
            for key, value in data.items():
                if _UNWRITABLE.search(key):
                    yield Fault(path, f"the key {key!a} has a character that no text has; remove it")
                else:
                    yield from unwritable(value, join(path, key))
        case list():
            for index, value in enumerate(data):
                yield from unwritable(value, join(path, index))
        case str() if _UNWRITABLE.search(data):
            yield Fault(path, f"{data!a} has a character that no text has; remove it")


class _Written(yaml.SafeDumper):
    """Writes texts in quotes that would be read back as something else."""


def _written(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = yaml.ScalarNode("tag:yaml.org,2002:str", text)
    style = None if _scalar(plain) == text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Written.add_representer(str, _written)


def write_yaml(data: Mapping[str, Data]) -> str:
    """Data as the text of a file, from which `parse_yaml` reads the same.

    Args:
        data: without numbers that are no integers.
    """
    return yaml.dump(data, Dumper=_Written, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def with_value(text: str, place: Sequence[str | int], value: str | int) -> str:
    """Return the text of a file with another value in a place; comments and everything else stay.

    Args:
        text: the file's content.
        place: keys of mappings and numbers of entries of lists; all but the last part are there.
        value: the new value.

    Raises:
        ConfigError: the place is not there, or it has no single value.
    """
    written = json.dumps(value, ensure_ascii=False)
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, part in enumerate(place, start=1):
        found = None
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
        elif isinstance(node, yaml.MappingNode):
            found = next((inner for key, inner in node.value if key.value == part), None)
            if found is None and depth == len(place) and node.value:
                key = node.value[0][0].start_mark
                behind = ", " if node.flow_style else "\n" + " " * key.column
                return f"{text[: key.index]}{part}: {written}{behind}{text[key.index :]}"
        if found is None:
            raise ConfigError("is not in the file", ".".join(map(str, place)))
        node = found
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError("is no single value", ".".join(map(str, place)))
    return text[: node.start_mark.index] + written + text[node.end_mark.index :]


def _value(node: yaml.Node, path: str, faults: list[Fault], above: tuple[yaml.Node, ...]) -> Data:
    if any(node is ancestor for ancestor in above):
        raise ConfigError("an alias to something that contains it", path)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, faults, above)
    if isinstance(node, yaml.SequenceNode):
        inner = (*above, node)
        return [_value(item, join(path, index), faults, inner) for index, item in enumerate(node.value)]
    return _scalar(node)


def _mapping(node: yaml.MappingNode, path: str, faults: list[Fault], above: tuple[yaml.Node, ...]) -> dict[str, Data]:
    out: dict[str, Data] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            faults.append(Fault(path, f"line {line}: a key must be text"))
            continue
        name = str(key.value)
        if name in out:
            faults.append(Fault(join(path, name), f"duplicate key: line {lines[name]} and line {line}"))
            continue
        lines[name] = line
        out[name] = _value(value, join(path, name), faults, (*above, node))
    return out


def _scalar(node: yaml.Node) -> Data:
    text = str(node.value)
    if isinstance(node, yaml.ScalarNode) and node.style is not None:  # quoted, or a block of text
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return Inexact(text) if _FLOAT.fullmatch(text) else text


_MARK = re.compile(r"\$(\$)?\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?")


def substitute(data: dict[str, Data], environ: Mapping[str, str]) -> tuple[dict[str, Data], list[Fault]]:
    """Put the variables that texts name in their places; `$${` becomes `${`.

    Args:
        data: what a file holds; its keys are left as they are.
        environ: the variables.

    Returns:
        The data, and a fault for each text that names a variable that is not set; that text is left as it is.
    """
    faults: list[Fault] = []

    def put(value: str, path: str) -> str:
        wrong = []
        for escaped, name in _MARK.findall(value):
            if not escaped and not name:
                wrong.append("`${` begins the name of an environment variable, as in `${NAME}`; write `$${` for itself")
            elif not escaped and name not in environ:
                wrong.append(f"the environment variable {name} is not set")
        faults.extend(Fault(path, message) for message in dict.fromkeys(wrong))
        return value if wrong else _MARK.sub(lambda found: found[0][1:] if found[1] else environ[found[2]], value)

    return {key: _each_text(value, put, key) for key, value in data.items()}, faults


def escape(data: Data) -> Data:
    """Data that come out of `substitute` as they are here."""
    return _each_text(data, lambda text, _: text.replace("${", "$${"))


def _each_text(data: Data, change: Callable[[str, str], str], path: str = "") -> Data:
    """Data with each text changed; `change` gets the text and its path."""
    match data:
        case dict():
            return {key: _each_text(value, change, join(path, key)) for key, value in data.items()}
        case list():
            return [_each_text(value, change, join(path, index)) for index, value in enumerate(data)]
    return change(data, path) if isinstance(data, str) else data
