"""The key file: a line for every key of an application (`releases.keyring`), newest last.

    # comments, and empty lines, count for nothing
    retired c08aa03ad1d5dac7  # made 2026-01-31T09:30:00Z
    <64 hexadecimal digits>  # made 2026-07-31T09:30:00Z

A file is changed by putting another one in its place, so it is there in full, before and after, whatever crashes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stream_dp.errors import ConfigError, Fault
from stream_dp.lossless.prf import KEY_BYTES
from stream_dp.releases.keyring import KeyRing, PrfKey

_HEAD = """\
# The secrets of a stream-dp application, newest last. Who has them and coarse releases reads the finest level.
# `stream-dp keys FILE` lists them; `stream-dp keys rotate FILE` and `stream-dp keys retire FILE ID` change this file.
"""
_LINE = re.compile(r"(?:([0-9a-f]{64})|retired ([0-9a-f]{16}))\s*(?:#(.*))?")
_MADE = re.compile(r"\s*made (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\s*")


class KeyLine(NamedTuple):
    """A line of a key file that holds a key."""

    number: int
    """Of the line, from 0 on."""
    key: PrfKey
    made: str | None
    """When, as its comment says."""


def load_keys(path: Path) -> KeyRing:
    """Read the key file; make one with one key if there is none.

    The file belongs to its owner alone. It is as worthy of protection as the finest level: who has it and a coarse
    release reads the finest one. Every worker of an application needs the same file.

    Raises:
        ConfigError: the file is readable by others, or holds something else than keys, or none that is not retired.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_keys(path)
    except OSError as error:
        raise _fault(f"cannot make {path}: {error.strerror}") from None
    _write(descriptor, _HEAD + _fresh())
    return read_keys(path)


def replace_lost(path: Path, key_id: str) -> None:
    """Make a key file in the place of one that is lost: its first key is written down as lost, and a new one is made.

    Raises:
        ConfigError: there is a file, or it cannot be made, or this is no id.
    """
    _check_id(key_id)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _fault(f"cannot make {path}: {error.strerror}") from None
    _write(descriptor, f"{_HEAD}retired {key_id}\n{_fresh()}")


def _write(descriptor: int, text: str) -> None:
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def has_keys(path: Path) -> bool:
    """Return True if there is a key file.

    Raises:
        ConfigError: there is one, and something is wrong with it, as for `load_keys`.
    """
    return os.path.lexists(path) and bool(read_keys(path))


def read_keys(path: Path) -> KeyRing:
    """Read the key file.

    Raises:
        ConfigError: as for `load_keys`, or there is none.
    """
    return _ring(read_lines(path))


def _ring(lines: Iterable[KeyLine]) -> KeyRing:
    return KeyRing(tuple(line.key for line in lines))


def read_lines(path: Path) -> list[KeyLine]:
    """The keys of a key file, oldest first.

    Raises:
        ConfigError: as for `load_keys`, or there is no such file.
    """
    try:
        mode, text = path.stat().st_mode, path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise _fault(f"cannot read {path}: {error.strerror}") from None
    if mode & 0o077:
        raise _fault(f"{path} can be read by others; `chmod 600` it")
    found = [line for number, one in enumerate(text.split("\n")) if (line := _parsed(path, number, one)) is not None]
    if all(line.key.secret is None for line in found):
        raise _fault(f"{path} holds no key; put back a copy, or, if it was never used, delete it: a worker makes one")
    if len({line.key.id for line in found}) < len(found):
        raise _fault(f"{path} holds a key twice; take one of its lines out")
    return found


def _parsed(path: Path, number: int, line: str) -> KeyLine | None:
    if not (stripped := line.strip()) or stripped.startswith("#"):
        return None
    if (found := _LINE.fullmatch(stripped)) is None:
        raise _fault(
            f"line {number + 1} of {path} is no key; that is {2 * KEY_BYTES} hexadecimal digits, or `retired` and an id"
        )
    secret, retired, comment = found.groups()
    made = _MADE.fullmatch(comment or "")
    key = PrfKey(retired, None) if secret is None else PrfKey.of(bytes.fromhex(secret))
    return KeyLine(number, key, made and made[1])


def rotate(path: Path) -> str:
    """Append a new key, with which windows to come are sealed.

    Returns:
        Its id.

    Raises:
        ConfigError: the file cannot be read or changed.
    """
    _change(path, lambda text, _: f"{text}{_fresh()}" if text.endswith("\n") else f"{text}\n{_fresh()}")
    return read_lines(path)[-1].key.id


def retire(path: Path, key_id: str) -> None:
    """Delete the secret of a key; its id stays, so that nobody takes its windows for damaged.

    A key that the file does not hold is written down as one whose secret is lost.

    Args:
        path: the key file.
        key_id: the id of the key.

    Raises:
        ConfigError: the key is in use, or retired already, or this is no id; or the file cannot be read or changed.
    """
    _change(path, lambda text, lines: _retired(text, retirable(lines, key_id), key_id))


def retirable(lines: list[KeyLine], key_id: str) -> KeyLine | None:
    """The line of a key that can be retired, None where it is to be written down as lost.

    Raises:
        ConfigError: the key is in use, or retired already, or this is no id.
    """
    of = {line.key.id: line for line in lines}
    _check_id(key_id, f"; there are {', '.join(of)}")
    if key_id == _ring(lines).newest[0]:
        raise ConfigError([Fault("ID", f"key {key_id} is in use; `stream-dp keys rotate FILE` first")])
    known = of.get(key_id)
    if known is not None and known.key.secret is None:
        raise ConfigError([Fault("ID", f"key {key_id} is retired already")])
    return known


def _check_id(key_id: str, known: str = "") -> None:
    if not re.fullmatch("[0-9a-f]{16}", key_id):
        raise ConfigError([Fault("ID", f"{key_id!r} is no id of a key{known}")])


def _retired(text: str, known: KeyLine | None, key_id: str) -> str:
    if known is None:
        return f"{text.rstrip()}\nretired {key_id}\n"
    every = text.split("\n")
    every[known.number] = f"retired {key_id}" + (f"  # made {known.made}" if known.made else "")
    return "\n".join(every)


def _fresh() -> str:
    """The line of a new key."""
    return f"{os.urandom(KEY_BYTES).hex()}  # made {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"


def _change(path: Path, changed: Callable[[str, list[KeyLine]], str]) -> None:
    """Put a changed file in the place of the one before, when its content is on the disk, under the same owner.

    The file beside it is made before anything is read, so of two changes at once the second is refused.
    """
    path = path.resolve()
    fresh = path.with_name(f"{path.name}.new")
    read_lines(path)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise _fault(
            f"{fresh} is there: another change is under way; if none is, it was cut short: delete it"
        ) from None
    except OSError as error:
        raise _fault(f"cannot make {fresh}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            lines, owner = read_lines(path), path.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(changed(path.read_text("utf-8", "surrogateescape"), lines))
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink()
        if isinstance(error, OSError):
            raise _fault(f"cannot change {path}: {error.strerror}") from None
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fault(message: str) -> ConfigError:
    return ConfigError([Fault("key_file", message)])
