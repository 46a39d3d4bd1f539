"""JSON Schema as far as the records use it, and records as a later stream-dp might write them."""

from __future__ import annotations

import json
import re
from typing import Any


def mismatch(
    value: Any, node: dict[str, Any], root: dict[str, Any], path: str = "", *, closed: bool = True
) -> list[str]:
    """Where a value departs from the part of JSON Schema that the records use; unknown keywords are a mismatch.

    With `closed`, so is a field that the schema does not name: a reader may meet one, but none is published.
    """
    if "$ref" in node:
        rest = {key: body for key, body in node.items() if key not in {"$ref", "description", "title"}}
        assert not rest, f"{path}: {rest}"
        return mismatch(value, root["$defs"][node["$ref"].rpartition("/")[2]], root, path, closed=closed)
    known = {"$defs", "$schema", "$id", "title", "description", "type", "properties", "required", "items", "const",
             "enum", "pattern", "minimum", "minItems", "discriminator", "oneOf"}  # fmt: skip
    assert set(node) <= known, f"{path}: {set(node) - known}"
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    found = []
    if "type" in node and type(value) is not types[node["type"]]:
        return [f"{path}: no {node['type']}"]
    if "const" in node and value != node["const"]:
        found.append(f"{path}: not {node['const']}")
    if "enum" in node and value not in node["enum"]:
        found.append(f"{path}: not in {node['enum']}")
    if "pattern" in node and not re.search(node["pattern"], value):
        found.append(f"{path}: not {node['pattern']}")
    if "minimum" in node and value < node["minimum"]:
        found.append(f"{path}: below {node['minimum']}")
    if "oneOf" in node:
        fitting = [one for one in node["oneOf"] if not mismatch(value, one, root, path, closed=closed)]
        found += [] if len(fitting) == 1 else [f"{path}: not one"]
    if isinstance(value, dict):
        declared = node.get("properties", {})
        found += [f"{path}: lacks {name}" for name in node.get("required", []) if name not in value]
        if closed and "properties" in node:
            found += [f"{path}: has {name}" for name in value if name not in declared]
        for name in set(declared) & set(value):
            found += mismatch(value[name], declared[name], root, f"{path}.{name}", closed=closed)
    if isinstance(value, list):
        found += [f"{path}: too short"] if len(value) < node.get("minItems", 0) else []
        for index, item in enumerate(value):
            found += mismatch(item, node["items"], root, f"{path}[{index}]", closed=closed)
    return found


def with_more(value: Any) -> Any:
    """JSON data with fields at every level that nobody knows today."""
    if isinstance(value, list):
        return [with_more(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {**{name: with_more(entry) for name, entry in value.items()}, "later": 1.5, "more": {"items": [{}, None]}}


def later(data: bytes) -> bytes:
    """The bytes of a record with such fields."""
    return json.dumps(with_more(json.loads(data))).encode()
