"""JSON Schema as far as the records use it."""

from __future__ import annotations

import re
from typing import Any


def mismatch(value: Any, node: dict[str, Any], root: dict[str, Any], path: str = "") -> list[str]:
    """Where a value departs from the part of JSON Schema that the records use; unknown keywords are a mismatch."""
    if "$ref" in node:
        rest = {key: body for key, body in node.items() if key not in {"$ref", "description", "title"}}
        assert not rest, f"{path}: {rest}"
        return mismatch(value, root["$defs"][node["$ref"].rpartition("/")[2]], root, path)
    known = {"$defs", "$schema", "$id", "title", "description", "type", "properties", "required", "items", "const",
             "enum", "pattern", "minimum", "minItems", "additionalProperties", "discriminator", "oneOf"}  # fmt: skip
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
        found += [] if sum(not mismatch(value, one, root, path) for one in node["oneOf"]) == 1 else [f"{path}: not one"]
    if isinstance(value, dict):
        declared = node.get("properties", {})
        found += [f"{path}: lacks {name}" for name in node.get("required", []) if name not in value]
        if "properties" in node:
            assert node["additionalProperties"] is False
            found += [f"{path}: has {name}" for name in value if name not in declared]
        for name in set(declared) & set(value):
            found += mismatch(value[name], declared[name], root, f"{path}.{name}")
    if isinstance(value, list):
        found += [f"{path}: too short"] if len(value) < node.get("minItems", 0) else []
        for index, item in enumerate(value):
            found += mismatch(item, node["items"], root, f"{path}[{index}]")
    return found
