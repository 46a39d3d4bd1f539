"""Variables of the environment in the values of a file: `${NAME}`.

They are put in when the file has been read as YAML, so a value never becomes a key, a list or a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stream_dp.config.yaml_data import Data, join
from stream_dp.errors import Fault

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

    def put(value: Data, path: str) -> Data:
        match value:
            case dict():
                return {key: put(inner, join(path, key)) for key, inner in value.items()}
            case list():
                return [put(inner, join(path, index)) for index, inner in enumerate(value)]
            case str():
                return text(value, path)
            case _:
                return value

    def text(value: str, path: str) -> str:
        wrong = []
        for escaped, name in _MARK.findall(value):
            if not escaped and not name:
                wrong.append("`${` begins the name of an environment variable, as in `${NAME}`; write `$${` for itself")
            elif not escaped and name not in environ:
                wrong.append(f"the environment variable {name} is not set")
        faults.extend(Fault(path, message) for message in dict.fromkeys(wrong))
        return value if wrong else _MARK.sub(lambda found: _put(found, environ), value)

    return {key: put(value, key) for key, value in data.items()}, faults


def escape(data: Data) -> Data:
    """Data that come out of `substitute` as they are here."""
    match data:
        case dict():
            return {key: escape(inner) for key, inner in data.items()}
        case list():
            return [escape(inner) for inner in data]
        case str():
            return data.replace("${", "$${")
        case _:
            return data


def _put(found: re.Match[str], environ: Mapping[str, str]) -> str:
    escaped, name = found.groups()
    return found.group()[1:] if escaped else environ[name]
