"""Replaces aiokafka's reader of fetched records, so that no content of a record ends a worker.

aiokafka 0.14.0 decompresses every batch whole, and raises an error at the first byte that it cannot parse, again after
every restart. Here every batch becomes records or refused records (`record_batches`), and the position advances.

A consumer whose `key_deserializer` is `BARE` gets records in columns, without topic and partition, because making an
object for each record takes longer than all other work on it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.consumer import fetcher

from stream_dp.runtime.kafka.record_batches import (
    DAMAGED_BATCH,
    GROUP_RECORDS,
    MAX_RECORD_BYTES,
    UNSUPPORTED,
    Answer,
    Batch,
    OldEntry,
    is_too_large,
    make_refusal,
)
from stream_dp.windows.records import Records


class BareRecords(NamedTuple):
    """Consecutive records of a batch.

    Attributes:
        records: the records, in columns.
        took_long: True if reading them took long, so the consumer does other work before it reads more.
    """

    records: Records
    took_long: bool = False


BARE: Any = object()
"""As `key_deserializer` of a consumer: hand out bare records."""


class PartitionRecords(fetcher.PartitionRecords):
    """The records of one answer for a partition.

    Attributes:
        next_fetch_offset: offset to fetch next. It rises with every answer.
        is_bare: True if bare records are handed out.
    """

    next_fetch_offset: int
    _aborted_producers: set[int]
    _records: Answer

    def __init__(self, tp: Any, records: Answer, aborted: Any, offset: int, key_deserializer: Any, *rest: Any) -> None:
        self.is_bare = key_deserializer is BARE
        self._left = Records.of([])
        super().__init__(tp, records, aborted, offset, key_deserializer, *rest)

    def _unpack_records(self) -> Iterator[Any]:
        """Yield the records of the answer, read or refused.

        An answer ends where damaged bytes begin, and the next fetch begins with them. If they are damaged again, they
        become one refused record. Everything after them is fetched again, because the list of aborted transactions that
        comes with an answer cannot be followed across damage.
        """
        has_read = False
        while (entry := self._records.next_entry()) is not None:
            fault = self._find_fault(entry)
            if fault is not None:
                if not has_read:
                    yield from self._refuse(entry, fault)
                return
            if isinstance(entry, OldEntry) and entry.offset >= self.next_fetch_offset:
                yield from self._hand_out([make_refusal(entry.offset, UNSUPPORTED)])
                has_read = True
            elif isinstance(entry, Batch) and entry.next_offset > self.next_fetch_offset:
                yield from self._read(entry)
                has_read = True
                if entry.was_damaged:
                    return
        if not has_read:
            yield from self._refuse(None, DAMAGED_BATCH)

    def _find_fault(self, entry: Batch | OldEntry | str) -> str | None:
        """Return why an entry cannot be read: damaged bytes or an unknown format; None if it can."""
        if isinstance(entry, str):
            return entry
        if isinstance(entry, OldEntry):
            return None
        if (
            entry.fault is None and entry.base_offset > self.next_fetch_offset
        ):  # an entry at the expected offset needs no search
            following = self._records.find_following_offset(self.next_fetch_offset)
            if following is not None and following < entry.next_offset:
                return DAMAGED_BATCH
        return entry.fault

    def _is_aborted(self, batch: Batch) -> bool:
        """Return True for a batch of a transaction that was aborted.

        The broker names an aborted transaction by its producer and first offset. The producer's next control batch ends
        this transaction, so the control batch does not have to be parsed.
        """
        if self._isolation_level != fetcher.READ_COMMITTED:
            return False
        self._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch:
            self._aborted_producers.discard(batch.producer_id)
        return batch.is_transactional and batch.producer_id in self._aborted_producers

    def _read(self, batch: Batch) -> Iterator[Any]:
        is_left_out = self._is_aborted(batch) or batch.is_control_batch
        parsed = None if is_left_out or not batch.has_known_codec else batch.parse_records()
        if parsed is not None:
            records, offsets = parsed
            if offsets and offsets[-1] + 1 == batch.next_offset:
                yield from self._hand_out(records, offsets)
                self.next_fetch_offset = batch.next_offset
                return
        end = self._find_end(batch)
        if is_left_out:
            pass
        elif not batch.has_known_codec:
            yield from self._hand_out([make_refusal(end - 1, UNSUPPORTED)])
        elif parsed is not None and all(offset < end for offset in parsed[1][-1:]):
            yield from self._hand_out(*parsed)  # compaction has removed the last records
        else:
            for group in batch.stream_records(end - 1):
                yield from self._hand_out(group)
        self.next_fetch_offset = max(self.next_fetch_offset, end)

    def _refuse(self, entry: Batch | OldEntry | str | None, fault: str) -> Iterator[Any]:
        """Refuse the first entry of the answer at its last offset, so that a restart does not meet it again."""
        end = self.next_fetch_offset + 1
        if isinstance(entry, Batch):
            end = self._find_end(entry)
            if self._is_aborted(entry):
                self.next_fetch_offset = end
                return
        else:
            following = self._records.find_following_offset(self.next_fetch_offset)
            end = end if following is None else following
        yield from self._hand_out([make_refusal(end - 1, fault)])

    def _find_end(self, batch: Batch) -> int:
        """Return the offset after a batch: that of its header, unless that contradicts itself or the next batch."""
        begin = self.next_fetch_offset
        following = self._records.find_following_offset(begin)
        claimed = batch.next_offset
        is_plausible = claimed > begin and (batch.fault is None or claimed - batch.base_offset == batch.count)
        if is_plausible and (following is None or claimed <= following):
            return claimed
        return begin + 1 if following is None else following

    def _hand_out(self, records: Sequence[Any], offsets: list[int] | None = None) -> Iterator[Any]:
        """Yield records from the current offset on; a batch is fetched whole, even if it begins earlier."""
        if not self.is_bare:
            for record in records:
                if record.offset >= self.next_fetch_offset:
                    found = self._consumer_record(self._tp, record)
                    self.next_fetch_offset = record.offset + 1
                    yield found
            return
        for at in range(0, len(records), GROUP_RECORDS):
            some = records
            known = offsets
            if len(records) > GROUP_RECORDS:
                some = records[at : at + GROUP_RECORDS]
                known = None if offsets is None else offsets[at : at + GROUP_RECORDS]
            columns = Records.of(some, known)
            if columns.offsets[0] < self.next_fetch_offset:
                columns = columns[bisect_left(columns.offsets, self.next_fetch_offset) :]
            if columns:
                self.next_fetch_offset = columns.offsets[-1] + 1
                yield BareRecords(columns, is_too_large(records[-1]))

    def bare(self, most: int) -> tuple[Records, bool]:
        """Return at most this many bare records, of about `MAX_RECORD_BYTES`, and whether there may be more."""
        taken = self._left
        has_more = True
        took_long = False
        while has_more and not took_long and taken.size_bytes < MAX_RECORD_BYTES and len(taken) < most:
            found = next(self, None)
            has_more = found is not None
            if found is not None:
                taken.extend(found.records)
                took_long = found.took_long
        self._left = taken.leave(most)
        if self._left:
            self.next_fetch_offset = self._left.offsets[0]
            has_more = True
        elif taken:
            self.next_fetch_offset = max(self.next_fetch_offset, taken.offsets[-1] + 1)
        return taken, has_more


class FetchResult(fetcher.FetchResult):
    """Records of one answer for a partition, handed out about `MAX_RECORD_BYTES` at a time."""

    _partition_records: Any

    def getall(self, max_records: int | None = None) -> Sequence[Any]:
        """See `aiokafka`; the next call returns the rest."""
        taken: Sequence[Any] = []
        if not self.check_assignment(self._topic_partition) or not self.has_more():
            return taken
        if self._partition_records.is_bare:
            taken, has_more = self._partition_records.bare(sys.maxsize if max_records is None else max_records)
        else:
            taken, has_more = self._one_by_one(max_records)
        self._update_position()
        if not has_more:
            self._partition_records = None
        return taken

    def _one_by_one(self, max_records: int | None) -> tuple[list[Any], bool]:
        taken: list[Any] = []
        size = 0
        for record in self._partition_records:
            taken.append(record)
            size += record.serialized_key_size + record.serialized_value_size
            if size >= MAX_RECORD_BYTES or len(taken) == max_records:
                return taken, True
        return taken, False


def install() -> None:
    """Replace aiokafka's reader for all consumers of this process (docs/faust.md); a second call changes nothing."""
    patched: Any = fetcher
    patched.MemoryRecords = Answer
    patched.PartitionRecords = PartitionRecords
    patched.FetchResult = FetchResult
