"""Records that a source should not hold, each made so that one thing is wrong with it, and good ones of odd forms.

The events are those of `FORM`: a user that repeats the key, a page, a time in ms. What is wrong is known from how a
record was made, never from reading it, so that what a worker says of it can be compared.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stream_dp.windows.events import MAX_ITEM_BYTES, MAX_KEY_BYTES, WATERMARK_HEADER, EventFormat

FORM = EventFormat(("page",), "user", "at", "ms")
DEEP, DIGITS = 100_000, b"9" * 5000
_RARE = 0.003
"""How often something very large is made where something smaller would do."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A record, and what is to become of it."""

    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    reason: str
    """Why it is refused; empty if it is not."""


@dataclass(frozen=True, slots=True)
class Visit:
    """An event: whom it is of, what, and when."""

    user: str
    page: str
    time_ms: int


def written(visit: Visit, chance: random.Random) -> bytes:
    """An event as JSON, in one of the forms that JSON allows."""
    event: dict[str, object] = {"user": visit.user, "page": visit.page, "at": visit.time_ms}
    form = chance.randrange(12)
    if form == 0:
        return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    if form == 1:
        return json.dumps(event, indent=3).encode() + b"\r\n\t "
    if form == 2:  # the last of several fields of one name is the one that is read
        twice = json.dumps({"page": "x", "user": "y", "at": -1})[:-1] + "," + json.dumps(event)[1:]
        return twice.encode()
    if form == 3:
        return json.dumps(event).replace('"page"', '"p\\u0061ge"').encode()
    if form == 4:
        more = {"more": [{"deep": [[[None]]]}, -1.5e300, True], "": "", "page2": None, "AT": "x"}
        return json.dumps(dict(chance.sample([*event.items(), *more.items()], 7))).encode()
    if form == 5:
        deep = chance.randrange(1, 400)
        return json.dumps(event).encode()[:-1] + b',"deep":%b}' % (b"[" * deep + b"]" * deep)
    if form == 6 and chance.random() < _RARE:
        return json.dumps({**event, "much": "x" * chance.randrange(1 << 19)}).encode()
    return json.dumps(event).encode()


def _with(visit: Visit, **changes: object) -> bytes:
    event = {"user": visit.user, "page": visit.page, "at": visit.time_ms}
    return json.dumps({**event, **changes}).encode()


def _raw(visit: Visit, field: str, text: bytes) -> bytes:
    """The event with other bytes as a field's value."""
    return _with(visit, **{field: "HERE"}).replace(b'"HERE"', text)


def _malformed(visit: Visit, chance: random.Random) -> bytes:
    good = _with(visit)
    rare = chance.random() < _RARE
    makers: list[Callable[[], bytes]] = [
        lambda: b"\xff" + chance.randbytes(chance.randrange(1 << 19 if rare else 200)),
        lambda: good[: chance.randrange(1, len(good))],
        lambda: good + chance.choice([b"{}", b"]", b"\0", good]),
        lambda: b"\0" * chance.randrange(1, 100) + good,
        lambda: b"\xef\xbb\xbf" + good,
        lambda: good.decode().encode("utf-16"),
        lambda: gzip.compress(good),
        lambda: good.replace(b'"', b"'"),
        lambda: good[:-1] + b",}",
        lambda: _raw(visit, "at", chance.choice([b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b"0x1", b".5"])),
        lambda: _raw(visit, "page", chance.choice([b'"\\ud800"', b'"\\udfff"', b'"\\udc00\\ud800"', b'"\\x41"'])),
        lambda: _raw(
            visit, "page", chance.choice([b'"\xed\xa0\x80"', b'"\xff"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"'])
        ),
        lambda: _raw(visit, "page", chance.choice([b'"a\nb"', b'"a\0b"', b"nul", b"None", b"undefined"])),
        lambda: good[:-1] + b',"x":%b' % (b"[" * (DEEP if rare else 5000)),
        lambda: b'{"x":' * (DEEP if rare else 5000),
    ]
    return chance.choice(makers)()


def _mistyped(visit: Visit, chance: random.Random) -> bytes:
    makers: list[Callable[[], bytes]] = [
        lambda: _with(visit, page=chance.choice([None, 1.5, True, [visit.page], {"page": visit.page}])),
        lambda: _with(visit, at=chance.choice([None, 1.5, True, [visit.time_ms], str(visit.time_ms), 1e300])),
        lambda: _with(visit, user=chance.choice([None, 1.5, False, [visit.user]])),
        lambda: _raw(visit, chance.choice(["at", "page", "user"]), DIGITS),
        lambda: chance.choice([b"[]", b"null", b"7", b'"page"', b"true", b"[%b]" % _with(visit)]),
    ]
    return chance.choice(makers)()


def _incomplete(visit: Visit, chance: random.Random) -> bytes:
    name = chance.choice(["user", "page", "at"])
    return chance.choice([b"{}", _with(visit).replace(b'"%b"' % name.encode(), b'"%bs"' % name.encode())])


def _too_long(_visit: Visit, chance: random.Random) -> object:
    if chance.random() < 0.3:
        return 10 ** chance.randrange(MAX_ITEM_BYTES, 4000)
    return "x" * chance.randrange(MAX_ITEM_BYTES + 1, 1 << 19 if chance.random() < _RARE else 4 * MAX_ITEM_BYTES)


Maker = Callable[[Visit, random.Random], tuple[bytes | None, bytes | None, Mapping[str, bytes]]]

_NOT_A_TIME = [b"", b"soon", b"1e5", b"\xff", b"1.5", b"0x10", DIGITS, b"--1"]

POISON: dict[str, Maker] = {
    "malformed_json": lambda visit, chance: (visit.user.encode(), _malformed(visit, chance), {}),
    "wrong_type": lambda visit, chance: (visit.user.encode(), _mistyped(visit, chance), {}),
    "missing_field": lambda visit, chance: (visit.user.encode(), _incomplete(visit, chance), {}),
    "item_too_long": lambda visit, chance: (
        visit.user.encode(),
        _with(visit, page=_too_long(visit, chance)),
        {},
    ),
    "key_mismatch": lambda visit, chance: (
        visit.user.encode() + chance.choice([b" ", b"\0", b"x"]),
        _with(visit, user=chance.choice([visit.user, visit.user + "y", 7])),
        {},
    ),
    "bad_key": lambda visit, chance: (
        b"k" * chance.choice([0, MAX_KEY_BYTES + 1, 20 * MAX_KEY_BYTES]),
        _with(visit),
        {},
    ),
    "null_key": lambda visit, chance: (None, chance.choice([_with(visit), b"", b"\xff"]), {}),
    "null_value": lambda visit, chance: (
        visit.user.encode(),
        chance.choice([None, b""]),
        {"trace": chance.randbytes(chance.randrange(300))},
    ),
    "bad_watermark": lambda visit, chance: (
        chance.choice([None, visit.user.encode()]),
        b"",
        {WATERMARK_HEADER: chance.choice(_NOT_A_TIME)},
    ),
}
"""By the reason for which it is refused: a record that would be an event but for that."""


def poison(visit: Visit, chance: random.Random) -> Sample:
    """A record that is refused for what it is, in place of an event."""
    reason = chance.choice(list(POISON))
    return Sample(*POISON[reason](visit, chance), reason)


def good(visit: Visit, chance: random.Random) -> Sample:
    """A record of an event; a watermark header on a record with a value says nothing."""
    headers = chance.choices(
        [{}, {"trace": chance.randbytes(9)}, {WATERMARK_HEADER: b"%d" % (visit.time_ms + 10**6)}], [8, 1, 1]
    )[0]
    return Sample(visit.user.encode(), written(visit, chance), headers, "")


def mutated(value: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, added or taken away; never empty."""
    changed = bytearray(value)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        match chance.randrange(3):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                changed.insert(at, chance.choice(b'"{}[],:0123\\eE.-+nul \xff\x00\x80\xed'))
            case _:
                del changed[at : at + 1]
    return bytes(changed) or b"{"
