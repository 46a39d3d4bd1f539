"""Diagnosis of sampled records that are no events: a guess at the cause.

Nothing here decides what is counted. No user and no value is told. The name of a field is told where most users have
it: then it belongs to the form of the records, and is nobody's own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from stream_dp.windows.avro import has_header
from stream_dp.windows.events import ABSENT, EventFormat, Partitioner, Record, RefusedError, find, names_of, path_of
from stream_dp.windows.local_times import text_ms

LEAST_USERS = 10
"""Fewer have no form in common that could be told, and no partitioner that could be known by them."""
MOST_NAMES = 20
NAME_LENGTH = 64
FITS_PERCENT = 95
"""Of the users, for a partitioner to be that of the producers."""
PLAUSIBLE_MS = 30 * 366 * 86_400_000
"""Events lie within so long of the time at which they were written, or the unit of their times is in doubt."""

_HEADS = (
    (b"\x1f\x8b", "they look compressed (gzip): let the producers set compression.type instead"),
    (b"\x28\xb5\x2f\xfd", "they look compressed (zstd): let the producers set compression.type instead"),
    (b"\x04\x22\x4d\x18", "they look compressed (lz4): let the producers set compression.type instead"),
    (b"\x82SNAPPY", "they look compressed (snappy): let the producers set compression.type instead"),
    (b"Obj\x01", "they look like files of Avro: write JSON objects, or convert them to a topic that holds JSON"),
    (b"\xef\xbb\xbf", "they begin with a byte order mark: write UTF-8 without one"),
    (b"\xff\xfe", "they look like UTF-16: write UTF-8"),
    (b"\xfe\xff", "they look like UTF-16: write UTF-8"),
    (b"<", "they look like XML: write JSON objects"),
)
_REGISTRY = 5
"""Bytes in front of a value whose schema stands in a registry: a zero and the schema's number."""


def form_of(value: bytes) -> str:
    """Return a guess at the form of a value that is no JSON."""
    if value[:1] == b"\0" and len(value) > _REGISTRY:
        if value[_REGISTRY : _REGISTRY + 1] in (b"{", b"["):
            return "they look like JSON behind the number of a registry's schema: use a plain JSON serializer"
        return (
            "they look like Avro or Protobuf of a schema registry (a zero byte and a schema's number in front): where "
            "it is Avro, write format: avro, and registry; else write JSON objects, or convert them"
        )
    head = next((words for head, words in _HEADS if value.startswith(head)), "")
    return head or _form_of_text(value)


def _form_of_text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    if not text or not all(character.isprintable() or character.isspace() for character in text):
        return "they look binary (Protobuf, Avro, MessagePack): write JSON objects, or convert them"
    if not text.lstrip().startswith("{"):
        return "they look like plain text: write JSON objects"
    slip = json_slip(value)
    if slip:
        return f"they contain {slip}"
    return (
        "they begin like JSON objects but are cut off or contain several objects: write one complete object per record"
    )


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SLIPS = (
    (re.compile(r"\b(?:NaN|Infinity)\b"), "NaN or Infinity, which JSON does not have: write null"),
    (re.compile("'"), "single quotes: write double quotes, as a JSON serializer does"),
    (re.compile(r"\b(?:None|True|False)\b"), "None, True or False of Python: use a JSON serializer"),
    (re.compile(r",\s*[}\]]"), "a trailing comma: remove it"),
    (re.compile(r"[{,]\s*[A-Za-z_$][\w$]*\s*:"), "names without quotes: write them in double quotes"),
)
"""Common mistakes in JSON written by hand, searched for outside quoted text."""


def json_slip(value: bytes) -> str:
    """Return which common mistake keeps an object from being JSON, and the remedy; empty if it is none of them."""
    text = value.decode(errors="replace").strip()
    if not (text.startswith("{") and text.endswith("}")):
        return ""
    unquoted = _STRING.sub('""', text)
    return next((words for pattern, words in _SLIPS if pattern.search(unquoted)), "")


_NUMBER_BYTES = {8: "Long", 4: "Integer"}
JSON_KEY = "JSON"
REGISTRY_KEY = "Avro, Protobuf or JSON of a schema registry"
COMPOSITE_KEYS = (JSON_KEY, REGISTRY_KEY)
"""Forms of keys that may contain more than a user."""


def form_of_key(key: bytes) -> str:
    """Return a guess at the form of a key that is not the plain text of a user; empty if it looks like text."""
    if not key:
        return "empty"
    is_avro_text = has_header(key) and key[_REGISTRY:][:1] == bytes([2 * (len(key) - _REGISTRY - 1) % 256])
    if len(key) in _NUMBER_BYTES and key[0] in (0x00, 0xFF) and not is_avro_text:
        return f"a whole number in {len(key)} bytes, as written by Java's {_NUMBER_BYTES[len(key)]}Serializer"
    if has_header(key):
        return REGISTRY_KEY
    if key[:1] in (b"{", b"[", b'"'):
        return JSON_KEY
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return "binary"
    return "" if text.isprintable() else "binary"


def form_of_no_avro(value: bytes) -> str:
    """Return a guess at the form of a value that is no Avro behind the number of a schema."""
    if has_header(value):
        return "they have the id of a schema, but are not Avro, or are cut off: check the serializer of the producers"
    if value.lstrip().startswith(b"{"):
        return "they look like JSON: write format: json, or let the producers use the serializer of the registry"
    return "they have no number of a schema in front: let the producers use the serializer of the registry"


def most_common_form(values: Iterable[bytes], form: Callable[[bytes], str] = form_of) -> str:
    """Return the form that most of some values have; nothing if there are none.

    Args:
        values: none of them is what it should be.
        form: what one of them looks like.
    """
    return _most(map(form, values))


class Fields:
    """The fields of the objects in a sample, and of what type they are: one object of every user."""

    def __init__(
        self,
        records: Iterable[Record],
        read: Callable[[bytes], Any] = msgspec.json.decode,
        written_ms: Callable[[Record], int] = attrgetter("timestamp"),
    ) -> None:
        """Read the records; those that cannot be read are passed over.

        Args:
            records: of one source.
            read: from a value to the object that it holds.
            written_ms: returns the time at which a record was written.
        """
        self.objects: list[Mapping[str, Any]] = []
        self.keys: list[bytes] = []
        self.written: list[int] = []
        self._others: Counter[str] = Counter()
        seen: set[bytes | None] = set()
        for record in records:
            if record.key in seen:
                continue
            seen.add(record.key)
            try:
                value = read(record.value or b"")
            except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, RefusedError):
                continue
            if isinstance(value, dict):
                self.objects.append(value)
                self.keys.append(record.key or b"")
                self.written.append(written_ms(record))
            else:
                self._others[_type(value)] += 1

    @property
    def names(self) -> list[str]:
        """Of the fields that most users have; none of fewer than `LEAST_USERS`."""
        return self._common(self.objects)

    def _common(self, objects: Sequence[Mapping[str, Any]]) -> list[str]:
        if len(objects) < LEAST_USERS:
            return []
        found = Counter(name for one in objects for name in one if len(name) <= NAME_LENGTH and name.isprintable())
        return sorted(name for name, users in found.items() if 2 * users > len(objects))[:MOST_NAMES]

    def missing(self, wanted: Iterable[str]) -> list[str]:
        """Those of some fields, plain or paths, that most objects lack."""
        return [field for field in dict.fromkeys(wanted) if 2 * len(self._values(names_of(field))) < len(self)]

    def around(self, field: str) -> str:
        """The path of a field that most objects have inside another one, an envelope as of change data capture."""
        *outside, name = names_of(field)
        inner = [] if outside else [(outer, name) for outer in self.names]
        return next((path_of(names) for names in inner if 2 * len(self._values(names)) > len(self)), "")

    def beside(self, field: str) -> list[str]:
        """The fields that most users have where a field was looked for, or as far in as most have anything."""
        names = names_of(field)[:-1]
        while names and 2 * sum(isinstance(one, dict) for one in self._values(names)) <= len(self):
            names = names[:-1]
        around = self._values(names)
        return [path_of((*names, name)) for name in self._common([one for one in around if isinstance(one, dict)])]

    def types(self, field: str) -> str:
        """Of which type a field mostly is; nothing if it is not there."""
        return _most(map(_type, self._values(names_of(field))))

    def types_inside(self, field: str) -> str:
        """Of which type the elements of a list mostly are that are neither texts nor whole numbers."""
        lists = (value for value in self._values(names_of(field)) if isinstance(value, list))
        return _most(kind for value in lists for kind in map(_type, value) if kind not in ITEM_TYPES)

    def _values(self, names: Sequence[str]) -> list[object]:
        found = (find(one, names) for one in self.objects)
        return [value for value in found if value is not ABSENT]

    def no_objects(self) -> str:
        """Of which type the values mostly are, where most are no objects; nothing otherwise."""
        return self._others.most_common(1)[0][0] if self._others.total() > len(self) else ""

    def like_keys(self) -> list[str]:
        """The fields that say what the key says, for nearly all users."""
        pairs = list(zip(self.objects, self.keys, strict=True))
        alike = {name: sum(_is_key(one.get(name), key) for one, key in pairs) for name in self.names}
        return [name for name, users in alike.items() if 100 * users >= FITS_PERCENT * len(self)]

    def unit(self, name: str, written_ms: int) -> str:
        """The unit that a time field seems to have: `ms`, `s` or `iso`; nothing if none fits.

        Args:
            name: of the field.
            written_ms: when the records were written.
        """
        values = self._values(names_of(name))
        for unit, read in _TIMES.items():
            times = [time for value in values if (time := read(value)) is not None]
            fitting = sum(unit == "iso" or is_plausible(time, written_ms) for time in times)
            if 2 * fitting > len(values):
                return unit
        return ""

    def times(self) -> Iterator[tuple[str, str, int]]:
        """The fields that look like times: name, unit, and the median of how long after it records are written."""
        for name in self.names:
            for unit, read in _TIMES.items():
                found = [(read(one.get(name)), at) for one, at in zip(self.objects, self.written, strict=True)]
                lags = sorted(at - time for time, at in found if time is not None and is_plausible(time, at))
                if 100 * len(lags) >= FITS_PERCENT * len(self):
                    yield name, unit, lags[len(lags) // 2]

    def __len__(self) -> int:
        return len(self.objects)


def _most(words: Iterable[str]) -> str:
    found = Counter(words)
    return found.most_common(1)[0][0] if found else ""


def _is_key(value: object, key: bytes) -> bool:
    return isinstance(value, str | int) and str(value).encode() == key


_TYPES: Mapping[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a whole number",
    float: "a number with a decimal point",
    str: "a text",
    list: "a list",
    dict: "an object",
}


ITEM_TYPES = (_TYPES[str], _TYPES[int])


def _type(value: object) -> str:
    return _TYPES.get(type(value), "bytes")


def is_plausible(time_ms: int, written_ms: int) -> bool:
    """Return True if an event of a time may have been written at another."""
    return abs(time_ms - written_ms) <= PLAUSIBLE_MS


def _iso_ms(value: object) -> int | None:
    try:
        return text_ms(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_TIMES: Mapping[str, Callable[[object], int | None]] = {
    "ms": _number,
    "s": lambda value: None if (number := _number(value)) is None else 1000 * number,
    "iso": _iso_ms,
}
"""By unit: a value of a field as a time in ms; None where it is none."""


_OTHERS = {
    "ms": (("s", 1000, 1), ("microseconds", 1, 1000), ("nanoseconds", 1, 10**6)),
    "s": (("ms", 1, 1000), ("microseconds", 1, 10**6), ("nanoseconds", 1, 10**9)),
}
"""By configured unit: other units, and what turns ms read so into ms."""


def other_unit(form: EventFormat, times: Sequence[tuple[int, int]]) -> tuple[str, list[int]]:
    """The unit that times have which were read in the wrong one.

    Args:
        form: how they were read.
        times: in ms as they were read, and when each record was written.

    Returns:
        The unit, and which of the times it makes plausible that were not; nothing where none does.
    """
    doubtful = [at for at, (time, written) in enumerate(times) if not is_plausible(time, written)]
    for unit, factor, divisor in _OTHERS.get(form.unit, ()) if form.time is not None else ():
        mended = [at for at in doubtful if is_plausible(times[at][0] * factor // divisor, times[at][1])]
        if 2 * len(mended) > len(doubtful):
            return unit, mended
    return "", []


def fitting(places: Mapping[bytes, set[int]], partitioners: Mapping[str, Partitioner]) -> dict[str, int]:
    """By partitioner, how many users stand where it puts them, and nowhere else.

    Args:
        places: by user, the partitions that have records of them.
        partitioners: by name.
    """
    users = list(places)
    return {
        name: sum(places[user] == {at} for user, at in zip(users, place(users), strict=True))
        for name, place in partitioners.items()
    }


def fits(users: int, all_users: int) -> bool:
    """Return True if a partitioner that puts so many users where they stand is that of the producers."""
    return all_users >= LEAST_USERS and 100 * users >= FITS_PERCENT * all_users
