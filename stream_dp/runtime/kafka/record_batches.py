"""Reader of record batches as a broker sends them; no bytes from a producer or a disk end a worker.

The client's C code decompresses and parses an ordinary batch at once. A batch that is large, or that the C code
rejects, is read as a stream, record by record: a record that cannot be read is refused, and all others are the same on
both paths. A record that is too large is skipped without being kept, so memory stays bounded. Whether a record is
refused depends on its own bytes, not on the other records of its batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from stream_dp.runtime.kafka.decompression import DamagedError, decompress, stream
from stream_dp.windows.events import UNREADABLE_HEADER

MAX_RECORD_BYTES = 32 << 20
"""Size of the largest record that is read, and of the largest batch that is decompressed at once."""
GROUP_RECORDS = 1000
GROUP_BYTES = 1 << 20
"""Number of records of a stream that are yielded together."""

TOO_LARGE = "record_too_large"
BAD_HEADER = "bad_header"
DAMAGED_RECORD = "damaged_record"
DAMAGED_BATCH = "damaged_batch"
UNSUPPORTED = "unsupported_format"

NO_TIMESTAMP = -1
_MAGIC = 2
"""Format of every batch since Kafka 0.11."""
_LENGTH_AT = 8
_OLD_CHECKSUM_AT = 12
_MAGIC_AT = 16
_CODEC_AT = 22
_COUNT_AT = 57
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_HEADER_BYTES = 61
_MIN_ENTRY_BYTES = 26
"""Size of the smallest entry of any format."""
_MAX_GAP = 1 << 31
"""Most offsets that can be missing between two batches of a compacted topic; a larger gap means damage."""
_MAX_VARINT_BYTES = 10
_MAX_PREFIX_BYTES = 1 + 2 * _MAX_VARINT_BYTES
"""Size of the fields of a record up to its offset."""


_offset_of = attrgetter("offset")
_read_length = struct.Struct("!i").unpack_from


class RefusedRecord(NamedTuple):
    """Stand-in for a record that cannot be read, with the attributes of the client's records."""

    offset: int
    timestamp: int
    timestamp_type: int | None
    headers: tuple[tuple[str, bytes], ...]
    key: None = None
    value: None = None
    checksum: None = None

    @property
    def reason(self) -> str:
        """Why the record cannot be read."""
        return self.headers[0][1].decode()


def make_refusal(offset: int, reason: str, timestamp: int = NO_TIMESTAMP) -> RefusedRecord:
    """Return the stand-in for a record, or for a batch at the offset of its last record."""
    return RefusedRecord(offset, timestamp, None, ((UNREADABLE_HEADER, reason.encode()),))


def is_too_large(record: Any) -> bool:
    """Return True for the stand-in of a record that was too large; skipping it may have taken a second."""
    return isinstance(record, RefusedRecord) and record.reason == TOO_LARGE


class _Record(NamedTuple):
    """A record that this module parsed, with the attributes of the client's records."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    checksum: None = None


@dataclass(frozen=True, slots=True)
class _Frames:
    """Consecutive records of a stream.

    Attributes:
        raw: their bytes.
        bodies: where in `raw` each of them is, without its length.
    """

    raw: bytes
    bodies: list[slice]

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.bodies)


@dataclass(frozen=True, slots=True)
class _TooLarge:
    """The first bytes of a skipped record."""

    prefix: bytes
    count: int = 1


class Batch:
    """A batch of records.

    Attributes:
        codec: compression type, 0 for none.
        base_offset: offset of the first record.
        next_offset: offset after the last record, according to the header.
        is_intact: True if the checksum is right, and so the length. The checksum does not cover offset and format.
        fault: why the header cannot be trusted; None if it can.
        was_damaged: True if `stream_records` found records that it could not tell apart.
    """

    def __init__(self, data: memoryview) -> None:
        """Set up the batch.

        Args:
            data: its bytes, at least a header.
        """
        self._data = data
        self._batch: Any = DefaultRecordBatch(data)
        self._attributes: int = self._batch.attributes
        self.codec = self._attributes & DefaultRecordBatch.CODEC_MASK
        self.base_offset: int = self._batch.base_offset
        self.next_offset: int = self._batch.next_offset
        self.is_intact: bool = self._batch.validate_crc()
        self.was_damaged = False
        self.fault: str | None = None
        if data[_MAGIC_AT] != _MAGIC:
            self.fault = UNSUPPORTED
        elif not self.is_intact or self.next_offset <= self.base_offset:
            self.fault = DAMAGED_BATCH

    @property
    def count(self) -> int:
        """Number of records, according to the header."""
        return int(struct.unpack_from("!i", self._data, _COUNT_AT)[0])

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self._attributes & _TRANSACTIONAL)

    @property
    def is_control_batch(self) -> bool:
        """True if the batch marks the end of a transaction."""
        return bool(self._attributes & _CONTROL)

    @property
    def producer_id(self) -> int:
        """Id of the producer, -1 for none."""
        return int(self._batch.producer_id)

    @property
    def has_known_codec(self) -> bool:
        """True if the compression type is known."""
        return bool(self.codec <= DefaultRecordBatch.CODEC_ZSTD)

    def parse_records(self) -> tuple[list[Any], list[int]] | None:
        """Return all records and their offsets; None if the batch must be read as a stream."""
        if len(self._data) > MAX_RECORD_BYTES + _HEADER_BYTES:
            return None
        with suppress(Exception):  # reading as a stream finds the faulty record
            batch = self._batch
            if self.codec != DefaultRecordBatch.CODEC_NONE:
                payload = self._data[_HEADER_BYTES:]
                batch = DefaultRecordBatch(decompress(self.codec, payload, self._header(), MAX_RECORD_BYTES))
            records = list(batch)
            offsets = list(map(_offset_of, records))
            if _are_rising(offsets, self.base_offset, self.next_offset):
                return records, offsets
        return None

    def stream_records(self, last: int) -> Iterator[list[Any]]:
        """Yield the records in groups; records that cannot be read are refused.

        If records can no longer be told apart, one stand-in at the last offset represents the rest of the batch. It
        replaces the record at that offset if there is one, because nothing says where that record ends.

        Args:
            last: offset of the last record.
        """
        group: list[Any] = []
        size = 0
        records = self._records(last)
        while True:
            try:
                record = next(records, None)
            except DamagedError:
                self.was_damaged = True
                if group and group[-1].offset == last:
                    group.pop()
                group.append(make_refusal(last, DAMAGED_BATCH, self._batch.max_timestamp))
                break
            if record is None:
                break
            if len(group) == GROUP_RECORDS or size >= GROUP_BYTES:
                yield group
                group = []
                size = 0
            group.append(record)
            size += MAX_RECORD_BYTES if is_too_large(record) else len(record.key or b"") + len(record.value or b"")
        if group:
            yield group

    def _header(self) -> bytearray:
        """Return the header that the batch has without compression."""
        header = bytearray(self._data[:_HEADER_BYTES])
        header[_CODEC_AT] &= ~DefaultRecordBatch.CODEC_MASK & 0xFF
        return header

    def _records(self, last: int) -> Iterator[Any]:
        """Yield the records one by one. The offset of each leaves enough offsets for the records after it.

        Raises:
            DamagedError: the records that follow cannot be told apart.
        """
        before = self.base_offset - 1
        left = self.count
        has_room = left <= last - before  # otherwise the number of records is wrong
        pieces = stream(self.codec, self._data[_HEADER_BYTES:])
        for found in _frames(pieces, left):
            left -= found.count
            for record in self._parse_frames(found, before, last - left if has_room else last):
                if record.offset > last:
                    raise DamagedError
                yield record
                before = record.offset

    def _parse_frames(self, found: _Frames | _TooLarge, before: int, highest: int) -> Iterator[Any]:
        if isinstance(found, _TooLarge):
            yield self._refuse(found.prefix, TOO_LARGE, before, highest)
            return
        with suppress(Exception):
            header = self._header()
            struct.pack_into("!i", header, _COUNT_AT, found.count)
            records = list(DefaultRecordBatch(header + found.raw))
            if _are_rising(list(map(_offset_of, records)), before + 1, highest + 1):
                yield from records
                return
        for number, place in enumerate(found.bodies, 1):
            behind = found.count - number
            record = self._parse_record(found.raw[place], before, max(before + 1, highest - behind))
            yield record
            before = record.offset

    def _parse_record(self, body: bytes, before: int, highest: int) -> Any:
        """Return a record, or its stand-in at its own offset, or at the next possible one if its own is wrong."""
        try:
            fields = _Fields(body)
            record = _Record(
                self.base_offset + fields.offset_delta,
                self._timestamp(fields.timestamp_delta),
                self._batch.timestamp_type,
                fields.read_bytes(),
                fields.read_bytes(),
                fields.read_headers(),
            )
        except UnicodeDecodeError:
            return self._refuse(body, BAD_HEADER, before, highest)
        except DamagedError:
            return self._refuse(body, DAMAGED_RECORD, before, highest)
        if before < record.offset <= highest:
            return record
        return self._refuse(body, DAMAGED_RECORD, before, highest)

    def _timestamp(self, delta: int) -> int:
        if self._batch.timestamp_type:
            return int(self._batch.max_timestamp)
        return _wrap(self._batch.first_timestamp + delta)

    def _refuse(self, body: bytes, reason: str, before: int, highest: int) -> RefusedRecord:
        offset = before + 1
        with suppress(DamagedError):
            own = self.base_offset + _Fields(body).offset_delta
            if before < own <= highest:
                offset = own
        return make_refusal(offset, reason, self._batch.max_timestamp)


class OldEntry(NamedTuple):
    """An entry in a format older than Kafka 0.11."""

    offset: int


class Answer:
    """The entries that a broker sent for a partition. Replaces aiokafka's `MemoryRecords`."""

    def __init__(self, data: bytes) -> None:
        """Set up the answer; the last entry may be cut off."""
        self._data = data
        self._view = memoryview(data)
        self._at = 0
        self._found: tuple[int, Batch] | None = None
        """The batch that was parsed last, and where it begins, because computing its checksum takes time."""

    def size_in_bytes(self) -> int:
        """Return the size of the answer."""
        return len(self._data)

    def has_next(self) -> bool:
        """Return True if there is anything to read, even if it is only damaged bytes."""
        return self._at < len(self._data)

    def next_entry(self) -> Batch | OldEntry | str | None:
        """Return the next entry, or why it cannot be read; None after the last whole one.

        A damaged entry is returned again by the next call, because nothing says where it ends.
        """
        at = self._at
        end = self._end(at)
        if end is None:
            return None
        size = end - at
        if size < _MIN_ENTRY_BYTES:
            return DAMAGED_BATCH
        if self._data[at + _MAGIC_AT] < _MAGIC and self._is_old(at, end):
            self._at = end
            return OldEntry(*struct.unpack_from("!q", self._data, at))
        if size < _HEADER_BYTES:
            return DAMAGED_BATCH
        batch = self._batch(at, end)
        if batch.fault is None:
            self._at = end
        return batch

    def find_following_offset(self, position: int) -> int | None:
        """Return the offset of the next intact batch after a position; None if there is none.

        The search tries every byte, because a damaged length does not say where the next batch begins.
        """
        place = self._data.find(_MAGIC, self._at + _MAGIC_AT)
        while place != -1:
            at = place - _MAGIC_AT
            end = self._end(at)
            if end is not None and end - at >= _HEADER_BYTES:
                (offset,) = struct.unpack_from("!q", self._data, at)
                if position < offset <= position + _MAX_GAP and self._batch(at, end).is_intact:
                    return int(offset)
            place = self._data.find(_MAGIC, place + 1)
        return None

    def _end(self, at: int) -> int | None:
        """Return where an entry ends, according to its length; None if the answer ends before that."""
        if len(self._data) - at < _LENGTH_AT + 4:
            return None
        (length,) = _read_length(self._data, at + _LENGTH_AT)
        end: int = at + _LENGTH_AT + 4 + length
        return None if end > len(self._data) else end

    def _is_old(self, at: int, end: int) -> bool:
        """Return True if an entry is intact in a format older than Kafka 0.11."""
        (checksum,) = struct.unpack_from("!I", self._data, at + _OLD_CHECKSUM_AT)
        return bool(zlib.crc32(self._view[at + _MAGIC_AT : end]) == checksum)

    def _batch(self, at: int, end: int) -> Batch:
        if self._found is None or self._found[0] != at:
            self._found = at, Batch(self._view[at:end])
        return self._found[1]


class _Fields:
    """The fields of a record, in their order."""

    def __init__(self, body: bytes) -> None:
        """Read the first fields.

        Raises:
            DamagedError: they are cut off.
        """
        self._body = body
        self._at = 1  # after the attributes, which are unused
        self.timestamp_delta = self._read_number()
        self.offset_delta = self._read_number()

    def read_bytes(self) -> bytes | None:
        """Read a key or a value."""
        size = self._read_number()
        if size < 0:
            return None
        end = self._at + size
        if end > len(self._body):
            raise DamagedError
        content = self._body[self._at : end]
        self._at = end
        return content

    def read_headers(self) -> list[tuple[str, bytes | None]]:
        """Read the headers, which end the record.

        Raises:
            DamagedError: the record does not end there.
            UnicodeDecodeError: a name is not UTF-8, but everything else is valid.
        """
        count = self._read_number()
        if not 0 <= count <= len(self._body):
            raise DamagedError
        found = []
        for _ in range(count):
            name = self.read_bytes()
            if name is None:
                raise DamagedError
            found.append((name, self.read_bytes()))
        if self._at != len(self._body):
            raise DamagedError
        return [(name.decode(), content) for name, content in found]

    def _read_number(self) -> int:
        number, self._at = _varint(self._body, self._at)
        return number


def _frames(pieces: Iterator[bytes], count: int) -> Iterator[_Frames | _TooLarge]:
    """Cut a stream into records.

    Raises:
        DamagedError: the stream has fewer or more bytes than the records; the records before that were yielded.
    """
    buffer = _Buffer(pieces)
    left = count
    while left > 0:
        bodies: list[slice] = []
        size = 0
        is_damaged = False
        while len(bodies) < min(left, GROUP_RECORDS) and size < GROUP_BYTES:
            buffer.fill(size + _MAX_VARINT_BYTES)
            try:
                length, begin = _varint(buffer.content, size)
            except DamagedError:
                is_damaged = True
                break
            if length > MAX_RECORD_BYTES and not bodies:
                yield _TooLarge(buffer.pass_over(begin, length))
                left -= 1
                continue
            if length > MAX_RECORD_BYTES:
                break
            is_damaged = length < 0 or not buffer.fill(begin + length)
            if is_damaged:
                break
            bodies.append(slice(begin, begin + length))
            size = begin + length
        if bodies:
            yield _Frames(buffer.take(size), bodies)
            left -= len(bodies)
        if is_damaged:
            raise DamagedError
    if left < 0 or buffer.fill(1) or buffer.is_damaged:
        raise DamagedError


class _Buffer:
    """The part of a stream that was read but not taken yet.

    Attributes:
        content: the bytes.
        is_damaged: True if the stream could not be read to its end.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.content = bytearray()
        self.is_damaged = False

    def fill(self, size: int) -> bool:
        """Read until there are this many bytes; return False if the stream ends or is damaged before that."""
        while len(self.content) < size:
            piece = self._next_piece()
            if piece is None:
                return False
            self.content += piece
        return True

    def take(self, size: int) -> bytes:
        """Take this many bytes, which must have been read."""
        taken = bytes(self.content[:size])
        del self.content[:size]
        return taken

    def pass_over(self, begin: int, size: int) -> bytes:
        """Drop the bytes of a record and all bytes before it; return the record's first bytes.

        Raises:
            DamagedError: the stream ends before the record does.
        """
        self.fill(begin + _MAX_PREFIX_BYTES)
        prefix = bytes(self.content[begin : begin + _MAX_PREFIX_BYTES])
        left = begin + size
        while left > len(self.content):
            left -= len(self.content)
            self.content.clear()
            if not self.fill(1):
                raise DamagedError
        del self.content[:left]
        return prefix

    def _next_piece(self) -> bytes | None:
        try:
            return next(self._pieces, None)
        except DamagedError:
            self.is_damaged = True
            return None  # a generator that raised has ended, so it yields nothing more


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and the position after it.

    Raises:
        DamagedError: the number is cut off, or takes more than 64 bits.
    """
    encoded = 0
    for number, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        encoded |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            if encoded >> 64:
                break
            return (encoded >> 1) ^ -(encoded & 1), at + number + 1
    raise DamagedError


def _wrap(number: int) -> int:
    """Return a number wrapped to 64 bits, as in the client's C code."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _are_rising(offsets: Sequence[int], begin: int, end: int) -> bool:
    """Return True if offsets are strictly increasing and within a range."""
    if not offsets:
        return True
    is_sorted = sorted(offsets) == offsets  # together with the next line, three times as fast as comparing one by one
    is_unique = len(set(offsets)) == len(offsets)
    return is_sorted and is_unique and begin <= offsets[0] and offsets[-1] < end
