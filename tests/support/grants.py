"""Control records that are no grant of a plan."""

from __future__ import annotations

MALFORMED_GRANTS = [
    b"",
    b"{",
    b"[]",
    b'{"type":"grant","audience":"partner"}',
    b'{"type":"grant","audience":"partner","level":"detailed","and":1}',
    b'{"type":"origin","audience":"partner","level":"detailed"}',
    b'{"type":"grant","audience":"nobody","level":"detailed"}',
    b'{"type":"grant","audience":"partner","level":"finest"}',
    b'{"type":"grant","audience":7,"level":"detailed"}',
    b"\xff",
]
"""Values under the key of a grant; the plan has an audience `partner` and a level `detailed`."""
