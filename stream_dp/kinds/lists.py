"""Public lists of keys: written in the configuration, in a file beside it, or in a compacted topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Self

from pydantic import PlainValidator

from stream_dp.errors import ConfigError, Fault
from stream_dp.kinds.settings import Section, Text, Topic, check_topic
from stream_dp.windows.events import MAX_ITEM_BYTES

MOST_KEYS = 1_000_000
"""Of a list; a release of so many is published in parts."""
VERSION_BYTES = 8


@dataclass(frozen=True, slots=True)
class KeyList:
    """A public list of keys.

    Attributes:
        keys: sorted, each once.
        version: names the list by its content: 16 hex digits of a hash over the keys. The same list has the same
            version wherever it stands, so a reader can tell which list a record was made from.
    """

    keys: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, keys: Iterable[str]) -> Self:
        """The list of some keys, in any order."""
        listed = tuple(sorted(set(keys)))
        state = blake2b(digest_size=VERSION_BYTES, person=b"stream-dp keys 1")
        for key in listed:
            state.update(len(key.encode()).to_bytes(4) + key.encode())
        return cls(listed, state.hexdigest())


class FileSettings(Section):
    """A list in a file: UTF-8, one key a line, empty lines left out; relative to the folder of the configuration."""

    file: Text


class TopicSettings(Section):
    """A list in a compacted topic: the key of a record is a key of the list, a record without a value takes it out."""

    topic: Topic


WrittenList = list[str] | FileSettings
"""A list that does not change while a view has state."""
ListSettings = WrittenList | TopicSettings
"""Where a list stands."""


def _settings(value: object) -> ListSettings:
    match value:
        case FileSettings() | TopicSettings():
            return value
        case {"file": str(file), **rest} if file and not rest:
            return FileSettings(file=file)
        case {"topic": str(topic), **rest} if topic and not rest:
            return TopicSettings(topic=check_topic(topic))
        case [*keys] if keys and all(isinstance(key, str) and key for key in keys):
            return [str(key) for key in keys]
    raise ValueError('write a list of keys, {file: "keys.txt"} or {topic: name}')


ListField = Annotated[ListSettings, PlainValidator(_settings)]


def load_list(settings: WrittenList, path: str, folder: Path) -> KeyList:
    """The list that a configuration has, or names the file of.

    Args:
        settings: where it stands.
        path: of the setting, for faults.
        folder: what a file is relative to.

    Raises:
        ConfigError: the file cannot be read, a key stands twice or is too long, or there are too many or none.
    """
    keys = _lines(folder.joinpath(settings.file), f"{path}.file") if isinstance(settings, FileSettings) else settings
    faults = [Fault(path, f"{key!r} stands twice") for key, times in Counter(keys).items() if times > 1]
    if faults:
        raise ConfigError(faults)
    check_keys(keys, path)
    return KeyList.of(keys)


def check_keys(keys: Sequence[str], path: str) -> None:
    """Refuse a list of keys that nothing can be released for.

    Args:
        keys: what the list has.
        path: of the setting, for faults.

    Raises:
        ConfigError: there are too many keys or none, or one is too long for an event to have it.
    """
    faults = []
    if not 0 < len(keys) <= MOST_KEYS:
        faults.append(Fault(path, f"the list must have between 1 and {MOST_KEYS} keys, not {len(keys)}"))
    if long := [key for key in keys if len(key.encode()) > MAX_ITEM_BYTES]:
        sizes = f"{long[0][:40]!r}... has {len(long[0].encode())} bytes in UTF-8"
        faults.append(Fault(path, f"{sizes}; a key has {MAX_ITEM_BYTES} at most, and {len(long)} of them have more"))
    if faults:
        raise ConfigError(faults)


def _lines(file: Path, path: str) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
        return [line for line in (line.removesuffix("\r") for line in lines) if line]
    except OSError as error:
        raise ConfigError([Fault(path, f"cannot be read: {error.strerror}")]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([Fault(path, f"is not text in UTF-8: {error.reason} at byte {error.start}")]) from None
