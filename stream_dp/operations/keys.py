"""The keys of an application: add one, delete the secret of one, replace a lost key file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from stream_dp.errors import ConfigError
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.key_file import HEAD, KeyLine, fresh_line, key_fault, make, read_lines
from stream_dp.text_files import read_text


def replace_lost(path: Path, key_id: str) -> None:
    """Replace a lost key file: its first key is recorded as lost, and a new key is made.

    Raises:
        ConfigError: there is a file, or it cannot be made, or this is no id.
    """
    _check_id(key_id)
    try:
        make(path, f"{HEAD}retired {key_id}\n{fresh_line()}")
    except OSError as error:
        raise key_fault(f"cannot make {path}: {error.strerror}") from None


def rotate(path: Path) -> str:
    """Append a new key; windows to come are sealed with it.

    Returns:
        Its id.

    Raises:
        ConfigError: the file cannot be read or changed.
    """
    _change(path, lambda text, _: f"{text}{fresh_line()}" if text.endswith("\n") else f"{text}\n{fresh_line()}")
    return read_lines(path)[-1].key.id


def retire(path: Path, key_id: str) -> None:
    """Delete the secret of a key; its id stays, so that its windows do not look damaged.

    A key that is not in the file is recorded as lost.

    Args:
        path: the key file.
        key_id: the id of the key.

    Raises:
        ConfigError: the key is in use, or retired already, or this is no id; or the file cannot be read or changed.
    """
    _change(path, lambda text, lines: _retired(text, retirable(lines, key_id), key_id))


def retirable(lines: list[KeyLine], key_id: str) -> KeyLine | None:
    """Return the line of a key that can be retired; None if it is not in the file, so that it is recorded as lost.

    Raises:
        ConfigError: the key is in use, or retired already, or this is no id.
    """
    of = {line.key.id: line for line in lines}
    _check_id(key_id, f"; there are {', '.join(of)}")
    if key_id == KeyRing(tuple(line.key for line in lines)).newest[0]:
        raise ConfigError(f"key {key_id} is in use. Run `stream-dp keys rotate FILE` first", "ID")
    known = of.get(key_id)
    if known is not None and known.key.secret is None:
        raise ConfigError(f"key {key_id} is retired already", "ID")
    return known


def _check_id(key_id: str, known: str = "") -> None:
    if not re.fullmatch("[0-9a-f]{16}", key_id):
        raise ConfigError(f"{key_id!r} is not the id of a key{known}", "ID")


def _retired(text: str, known: KeyLine | None, key_id: str) -> str:
    if known is None:
        return f"{text.rstrip()}\nretired {key_id}\n"
    every = text.split("\n")
    every[known.number] = f"retired {key_id}" + (f"  # made {known.made}" if known.made else "")
    return "\n".join(every)


def _change(path: Path, changed: Callable[[str, list[KeyLine]], str]) -> None:
    """Replace the file by a changed one of the same owner, once that is on disk.

    The new file is made before the old one is read, so of two changes at once the second is refused.
    """
    path = path.resolve()
    fresh = path.with_name(f"{path.name}.new")
    read_lines(path)
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise key_fault(
            f"{fresh} exists: another change is running. If none is, one was interrupted: delete the file"
        ) from None
    except OSError as error:
        raise key_fault(f"cannot make {fresh}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            lines, owner = read_lines(path), path.stat()
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(changed(read_text(path, "surrogateescape"), lines))
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink()
        if isinstance(error, OSError):
            raise key_fault(f"cannot change {path}: {error.strerror}") from None
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
