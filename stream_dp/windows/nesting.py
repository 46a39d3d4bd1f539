"""The nesting of a JSON value, by its bytes alone.

msgspec 0.22 gives up where the interpreter's stack ends. How much of the stack is left depends on the version of Python
and on the thread that decodes, and other users' counts decide which thread that is. So a value is refused at a
fixed depth instead, well before any stack ends.
"""

from __future__ import annotations

import re

MAX_NESTING = 450
"""Largest number of objects and lists inside one another."""
SURELY_FLAT_BYTES = 2 * MAX_NESTING
"""A shorter value is not too deep: every object and list takes two bytes, unless it is cut off."""

_BRACKET_OR_TEXT = re.compile(rb'[\[{]|[\]}]|"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)


def is_too_deep(value: bytes) -> bool:
    """Return True if more than `MAX_NESTING` objects and lists of a value are inside one another."""
    if len(value) <= SURELY_FLAT_BYTES or value.count(b"[") + value.count(b"{") <= MAX_NESTING:
        return False
    depth = 0
    for found in _BRACKET_OR_TEXT.finditer(value):
        match value[found.start()]:
            case 0x5B | 0x7B:
                depth += 1
                if depth > MAX_NESTING:
                    return True
            case 0x5D | 0x7D:
                depth -= 1
    return False
