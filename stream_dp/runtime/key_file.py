"""The key file: a line for every key of an application (`releases.keyring`), newest last.

    # comments, and empty lines, count for nothing
    retired c08aa03ad1d5dac7  # made 2026-01-31T09:30:00Z
    <64 hexadecimal digits>  # made 2026-07-31T09:30:00Z

A file is changed by putting another one in its place, so it is there in full, before and after, whatever crashes.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from stream_dp.errors import ConfigError
from stream_dp.lossless.sealed import KEY_BYTES
from stream_dp.releases.keyring import KeyRing, PrfKey
from stream_dp.text_files import read_text

HEAD = """\
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
    if not os.path.lexists(path):
        try:
            make(path, HEAD + fresh_line())
        except FileExistsError:
            pass
        except OSError as error:
            raise key_fault(f"cannot make {path}: {error.strerror}") from None
    return read_keys(path)


def make(path: Path, text: str) -> None:
    """Make a key file: written beside its place first, so that whoever finds it reads the whole.

    Raises:
        FileExistsError: there is one; it stays as it is.
        OSError: it cannot be made.
    """
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as file:  # 0600
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.link(file.name, path)


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
    return KeyRing(tuple(line.key for line in read_lines(path)))


def read_lines(path: Path) -> list[KeyLine]:
    """The keys of a key file, oldest first.

    Raises:
        ConfigError: as for `load_keys`, or there is no such file.
    """
    try:
        found, text = path.stat(), read_text(path, "surrogateescape")
    except OSError as error:
        raise key_fault(f"cannot read {path}: {error.strerror}") from None
    if others_can_use(found):
        raise key_fault(f"{path} can be read by others; `chmod 600` it")
    lines = [line for number, one in enumerate(text.split("\n")) if (line := _parsed(path, number, one)) is not None]
    if all(line.key.secret is None for line in lines):
        raise key_fault(
            f"{path} holds no key; put back a copy, or, if it was never used, delete it: a worker makes one"
        )
    if len({line.key.id for line in lines}) < len(lines):
        raise key_fault(f"{path} holds a key twice; take one of its lines out")
    return lines


def others_can_use(found: os.stat_result) -> bool:
    """Return True if accounts that have no business with a secret can read or change its file.

    A file of root's may be readable by its group. Secrets are handed like that to an account that must not change them,
    by Kubernetes among others.
    """
    is_handed_over = found.st_uid == 0 and os.geteuid() != 0
    return bool(found.st_mode & (0o037 if is_handed_over else 0o077))


def _parsed(path: Path, number: int, line: str) -> KeyLine | None:
    if not (stripped := line.strip()) or stripped.startswith("#"):
        return None
    if (found := _LINE.fullmatch(stripped)) is None:
        raise key_fault(
            f"line {number + 1} of {path} is no key; that is {2 * KEY_BYTES} hexadecimal digits, or `retired` and an id"
        )
    secret, retired, comment = found.groups()
    made = _MADE.fullmatch(comment or "")
    key = PrfKey(retired, None) if secret is None else PrfKey.of(bytes.fromhex(secret))
    return KeyLine(number, key, made and made[1])


def fresh_line() -> str:
    """Return the line of a new key."""
    return f"{os.urandom(KEY_BYTES).hex()}  # made {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"


def key_fault(message: str) -> ConfigError:
    """Return the error of a key file."""
    return ConfigError(message, path="key_file")
