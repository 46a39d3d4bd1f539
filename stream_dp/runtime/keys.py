"""The secret that the noise of coarser levels is derived from (lossless 6.2)."""

from __future__ import annotations

import hmac
import os
from pathlib import Path

from stream_dp.errors import ConfigError
from stream_dp.lossless.prf import KEY_BYTES


def load_key(path: Path) -> bytes:
    """Read the key file; make one if there is none.

    The file holds 32 random bytes and belongs to its owner alone. It is as worthy of protection as the finest level:
    who has it and a coarse release reads the finest one. Every worker of an application needs the same file.

    Raises:
        ConfigError: the file is readable by others, or is not a key.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError as error:
        raise ConfigError(f"key_file: cannot make {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(os.urandom(KEY_BYTES))
        file.flush()
        os.fsync(descriptor)
    return _read(path)


def _read(path: Path) -> bytes:
    try:
        mode, key = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise ConfigError(f"key_file: cannot read {path}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(f"key_file: {path} can be read by others; `chmod 600` it")
    if len(key) != KEY_BYTES:
        raise ConfigError(f"key_file: {path} holds {len(key)} bytes, a key has {KEY_BYTES}")
    return key


def key_id(key: bytes) -> bytes:
    """A name of the key that does not tell it."""
    return hmac.digest(key, b"stream-dp key id", "sha256")[:8]
