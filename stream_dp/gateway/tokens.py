"""Who may read: readers' tokens in a file, audiences that need none, and limits of requests."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from stream_dp.errors import ConfigError
from stream_dp.runtime.key_file import others_can_use
from stream_dp.text_files import without_mark
from stream_dp.windows.durations import format_time, parse_time

PREFIX: Final = "sdp_"
OPERATORS_PREFIX: Final = "sdpo_"
OPERATOR, LOOKER = "operator", "look"
"""What the tokens of operators give, in place of an audience: everything, or to look."""
COOKIE: Final = "sdp-"
_COOKIE = re.compile(rf"(?:__Host-)?{COOKIE}([a-z0-9-]{{1,63}})")
LOOK_SECONDS = 1.0
"""Time between two looks at the file of tokens."""
_KNOWN_ADDRESSES = 10_000
_COOKIE_SECONDS = 400 * 86_400


class Entry(msgspec.Struct, frozen=True):
    """A line of the file of tokens: a token's hash and the audience that it gives; the token itself is nowhere."""

    id: str
    sha256: str
    audience: str
    made: str
    expires: str | None = None
    note: str = ""

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token gives nothing any more."""
        return self.expires is not None and parse_time(self.expires) <= now_ms

    def lasts_s(self, now_ms: int) -> int:
        """Return the seconds that a browser may keep the token."""
        return (
            _COOKIE_SECONDS
            if self.expires is None
            else min(_COOKIE_SECONDS, (parse_time(self.expires) - now_ms) // 1000)
        )


class Signed(Entry, frozen=True):
    """What a token gives that its issuer has signed: it is in no file, and good until it expires."""


class UncheckedError(Exception):
    """A token that cannot be checked now."""


def read_tokens(file: Path) -> list[Entry]:
    """Return the entries of a file of tokens; none if there is no file yet.

    Raises:
        ConfigError: others may read or write it, or a line is no entry.
    """
    try:
        found, text = file.stat(), without_mark(file.read_bytes())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", str(file)) from None
    if others_can_use(found):
        raise ConfigError("others may read or write it; run chmod 600 on it", str(file))
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entries.append(entry := msgspec.json.decode(line, type=Entry))
            entry.is_expired(0)
        except (msgspec.MsgspecError, ValueError):
            raise ConfigError(f"line {number} is no token; write it with `stream-dp token new`", str(file)) from None
    return entries


def new_token(
    file: Path,
    audience: str,
    now_ms: int,
    expires_ms: int | None = None,
    note: str = "",
    prefix: str = PREFIX,
) -> tuple[Entry, str]:
    """Make a token and add its hash to a file of tokens.

    Returns:
        The entry, and the token, which is kept nowhere.
    """
    token = prefix + secrets.token_urlsafe(32)
    with _changing(file) as entries:
        entry = Entry(
            id=secrets.token_hex(4),
            sha256=_hash(token),
            audience=audience,
            made=format_time(now_ms),
            expires=None if expires_ms is None else format_time(expires_ms),
            note=note,
        )
        entries.append(entry)
    return entry, token


def revoke_token(file: Path, identifier: str) -> Entry:
    """Take a token out of a file; its streams end within 2 s.

    Raises:
        ConfigError: no token has this id.
    """
    with _changing(file) as entries:
        for entry in entries:
            if entry.id == identifier:
                entries.remove(entry)
                return entry
        raise ConfigError(f"no token has the id {identifier!r}; `stream-dp token list FILE` shows them", "token")


@contextmanager
def _changing(file: Path) -> Iterator[list[Entry]]:
    """Hold a lock while the entries are read, changed and replaced as a whole."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.with_name(file.name + ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            entries = read_tokens(file)
            yield entries
            written = file.with_name(file.name + ".new")
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as out:
                out.writelines(msgspec.json.encode(entry) + b"\n" for entry in entries)
                out.flush()
                os.fsync(out.fileno())
            written.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", str(file)) from None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass
class Tokens:
    """The tokens that are good now.

    Attributes:
        file: of the tokens; None: there are none.
        now_ms: the clock.
        prefix: of every token.
        fault: reason why the file cannot be used, for the log; what was good before is good no longer.
        signed: returns by audience what a JWT gives; None: they are not accepted.
    """

    file: Path | None
    now_ms: Callable[[], int]
    prefix: str = PREFIX
    fault: str = ""
    signed: Callable[[str], Awaitable[Mapping[str, Entry]]] | None = None
    _by_hash: dict[str, Entry] = field(default_factory=dict)
    _seen: tuple[int, int, int] | None = None

    def look(self) -> bool:
        """Read the file again if it has changed; returns whether it had."""
        if self.file is None:
            return False
        try:
            status = self.file.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_mode)
        except OSError:
            seen = (0, 0, 0)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._by_hash, self.fault = {entry.sha256: entry for entry in read_tokens(self.file)}, ""
        except ConfigError as error:
            self._by_hash, self.fault = {}, str(error)
        return True

    def entry(self, token: str) -> Entry | None:
        """Return the entry of a token that is good; the work is the same for all others."""
        digest = _hash(token)
        found = self._by_hash.get(digest)
        same = hmac.compare_digest(digest, digest if found is None else found.sha256)
        good = found is not None and same and re.fullmatch(rf"{self.prefix}[A-Za-z0-9_-]{{43}}", token) is not None
        return found if good and found is not None and not found.is_expired(self.now_ms()) else None

    async def given(self, token: str) -> Mapping[str, Entry]:
        """Return by audience what a token gives; nothing if it is not good.

        Raises:
            UncheckedError: it cannot be checked now.
        """
        entry = self.entry(token)
        if entry is None and self.signed is not None and "." in token:
            return await self.signed(token)
        return {} if entry is None else {entry.audience: entry}

    def ended(self, entry: Entry) -> str | None:
        """Return why a token that was good is good no longer: `revoked` or `expired`; None if it still is."""
        if not isinstance(entry, Signed) and self._by_hash.get(entry.sha256) != entry:
            return "revoked"
        return "expired" if entry.is_expired(self.now_ms()) else None


@dataclass(frozen=True)
class Reader:
    """The sender of a request: what it may read, and the name that its limits are kept under.

    Attributes:
        audiences: that its credentials give, with the token's entry; None: without one.
        key: id of its token, or its address.
        is_bad: whether a credential was sent that is not good.
        is_unchecked: whether one was sent that cannot be checked now.
    """

    audiences: Mapping[str, Entry | None]
    key: str
    is_bad: bool = False
    is_unchecked: bool = False


def cookie_audience(name: str) -> str:
    """Return the audience whose token is in a cookie; empty if the cookie is another one."""
    match = _COOKIE.fullmatch(name)
    return "" if match is None else match[1]


async def reader_of(
    tokens: Tokens, public: Sequence[str], authorization: str | None, cookies: Mapping[str, str], address: str
) -> Reader:
    """Return the reader of a request.

    Args:
        tokens: the tokens that are good.
        public: the audiences that need none.
        authorization: that header; with one, cookies do not count.
        cookies: of the request.
        address: of the client.
    """
    found: dict[str, Entry | None] = {}
    is_bad = is_unchecked = False
    if authorization is None:
        sent = [(audience, value) for name, value in sorted(cookies.items()) if (audience := cookie_audience(name))]
    else:
        scheme, _, token = authorization.partition(" ")
        sent = [("", token if scheme.lower() == "bearer" else "")]
    for audience, token in sent:
        try:
            given = await tokens.given(token)
        except UncheckedError:
            is_unchecked = True
            continue
        mine = {name: entry for name, entry in given.items() if audience in ("", name)}
        found |= mine
        is_bad = is_bad or not mine
    key = next((entry.id for entry in found.values() if entry is not None), address)
    is_bad, is_unchecked = is_bad and not found, is_unchecked and not found
    if authorization is None:
        found |= {audience: found.get(audience) for audience in public}
    return Reader(found, key, is_bad, is_unchecked)


@dataclass
class RequestRate:
    """Token bucket for each of many senders; the least active are forgotten first.

    Attributes:
        per_second: requests a second.
        burst: requests at once.
        clock: in seconds.
    """

    per_second: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: str) -> float:
        """Take one; returns 0, or the seconds until there is one again."""
        now = self.clock()
        left, at = self._left.pop(key, (self.burst, now))
        left = min(self.burst, left + (now - at) * self.per_second)
        good = left >= 1
        self._left[key] = (left - 1 if good else left, now)
        if len(self._left) > _KNOWN_ADDRESSES:
            self._left.popitem(last=False)
        return 0 if good else (1 - left) / self.per_second

    def wait(self, key: str) -> float:
        """Return the seconds until there is one, without taking it."""
        left, at = self._left.get(key, (self.burst, 0.0))
        left = min(self.burst, left + (self.clock() - at) * self.per_second)
        return 0 if left >= 1 else (1 - left) / self.per_second
