"""What is left of windows past their retention: in rows, in topics and in files."""

from __future__ import annotations

from stream_dp.releases.rows import OUTBOX, PUBLISHED, TABLE, WINDOW, WindowRow
from stream_dp.windows.encoding import decode, window_start
from tests.support.machine import newest
from tests.support.releasing import Desk


def rows_of(desk: Desk, *kinds: bytes) -> set[tuple[bytes, int]]:
    """Kind and window of the rows of some kinds."""
    found = ((kind, key) for kind in kinds for key in desk.machine.rows if key.startswith(kind))
    return {(kind, window_start(kind, "pages", key)) for kind, key in found}


def standing(desk: Desk) -> set[bytes]:
    """The keys under which something stands in the public topics, once they are compacted."""
    return {key or b"" for (_, _, key), value in newest(desk.published()).items() if value is not None}


def secrets_of(desk: Desk) -> dict[int, set[bytes]]:
    """Every secret that was ever stored, by window or pane."""
    found: dict[int, set[bytes]] = {}
    for key, value in desk.machine.changelog:
        if key.startswith(WINDOW) and value is not None and (secret := decode(WindowRow, value).secret):
            found.setdefault(window_start(WINDOW, "pages", key), set()).add(secret)
    return found


def assert_rows_expired(desk: Desk, kept: set[int]) -> None:
    """Of other windows, or panes, than some nothing is left in rows and files; of these all."""
    assert {start for _, start in rows_of(desk, WINDOW)} == kept
    assert {start for _, start in rows_of(desk, TABLE)} <= kept
    assert {start for _, start in rows_of(desk, PUBLISHED)} <= kept
    assert not rows_of(desk, OUTBOX)
    assert {window_start(TABLE, "pages", key) for key in desk.machine.unerased(TABLE)} <= kept
    gone = [secret for start, secrets in secrets_of(desk).items() if start not in kept for secret in secrets]
    left = b"".join([*desk.machine.rows.values(), *(value for _, value in desk.machine.outdated)])
    assert gone
    assert not [secret for secret in gone if secret in left]
