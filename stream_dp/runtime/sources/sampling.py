"""A bounded sample of each source, counted by the rules by which a worker counts, and kept nowhere.

A view that has begun, or will begin with the present window, takes the records as they came: behind those of a second,
by the timestamps of the records, stands a tick of that second. A view whose first window is configured and that has not
begun finds all of them at once, before its first tick: history is not late.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast

from aiokafka import TopicPartition

from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.runtime.factory import counted_view, event_decoder, event_format, key_reader, user_partitioner
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.sources.diagnosis import other_unit
from stream_dp.windows.bounding import Admission, bound_chunk
from stream_dp.windows.counting import CountedPartition
from stream_dp.windows.effects import NoRows
from stream_dp.windows.events import Decoded, Record, Schemas
from stream_dp.windows.open_windows import OpenWindow
from stream_dp.windows.outlying_times import TimeSpread, longest_gap_ms
from stream_dp.windows.participation import Participation
from stream_dp.windows.plausible_times import PlausibleTimes
from stream_dp.windows.rekeying import RekeyedEvent

SAMPLE_RECORDS = 2000
SAMPLE_BYTES = 16 << 20
"""Of keys and values, for each source."""
SAMPLE_SECONDS = 10.0

StoppedBy = Literal["", "time", "size", "topic", "partition", "transaction"]
"""Reason why a sample has fewer records than asked for; empty if it has as many."""
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The newest records of a source, by partition.

    Attributes:
        records: in the order of their partitions.
        stopped_by: why it has fewer records than asked for. "time" or "size": the limit that ended it. "topic": the
            topic has no more. "partition": some partitions have fewer than their part, or some of their offsets have no
            record. "transaction": an open transaction hides the later ones. Empty: it has as many.
    """

    records: Mapping[int, Sequence[Any]]
    stopped_by: StoppedBy = ""

    def __iter__(self) -> Iterator[Any]:
        return (record for records in self.records.values() for record in records)

    def __len__(self) -> int:
        return sum(map(len, self.records.values()))


async def read_sample(
    client: Client, source: SourcePlan, records: int = SAMPLE_RECORDS, within_s: float = SAMPLE_SECONDS
) -> Sample:
    """Read the newest records of a source: as many of each partition.

    Args:
        client: of its broker.
        source: its topic is there.
        records: how many, over all partitions.
        within_s: what was read by then is the sample.

    Raises:
        BrokerError: the cluster does not answer, or refuses.
    """
    found: dict[int, list[Any]] = defaultdict(list)
    places = [TopicPartition(source.topic, partition) for partition in range(source.partitions)]
    ends = await client.ends(places)
    if not any(ends.values()):
        return Sample(found, "topic")
    each, room = -(-records // source.partitions), SAMPLE_BYTES
    newest_of_each = client.follow([source.topic], until_end=True, last=each, foreign=True)
    following = cast("AsyncGenerator[Any]", newest_of_each)
    stopped_by: StoppedBy = "time"
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s), aclosing(following) as newest:
            async for record in newest:
                if room <= 0:
                    stopped_by = "size"
                    break
                found[record.partition].append(record)
                room -= len(record.key or b"") + len(record.value or b"")
            else:
                stopped_by = ""
    if not stopped_by and sum(map(len, found.values())) < records:
        stopped_by = await _why_short(client, places, each)
    return Sample(found, stopped_by)


async def _why_short(client: Client, places: Sequence[TopicPartition], each: int) -> StoppedBy:
    """Return why a sample that was read to the end has fewer records than asked for.

    Args:
        client: of the broker.
        places: the partitions.
        each: number of the newest offsets that were read from each of them.
    """
    begins = await client.begins(places)
    ends = await client.ends(places)
    stable = await client.stable_ends(places)
    short = [place for place in places if stable[place] - begins[place] < each]
    if any(stable[place] < ends[place] for place in short):
        return "transaction"
    return "topic" if len(short) == len(places) else "partition"


@dataclass(frozen=True, slots=True)
class Taken:
    """Result of a sample for a view.

    Attributes:
        counted: how many contributions of events it counts.
        refused: the places of the events of those that it does not, by reason.
        counts: by window, how many users have each item.
    """

    counted: int
    refused: Mapping[str, Sequence[Place]]
    counts: Sequence[Sequence[int]] = ()

    @property
    def clipped_percent(self) -> int:
        """Percentage of contributions that are left out, since their users have too many; rounded up."""
        clipped = len(self.refused.get("clipped", ()))
        return -(-100 * clipped // max(1, self.counted + clipped))

    @property
    def largest(self) -> int:
        """The largest count of any window."""
        return max((max(counts, default=0) for counts in self.counts), default=0)

    def keys_from(self, least: int) -> int:
        """Return the number of items with at least so many users, in the window with the most of them."""
        return max((sum(count >= least for count in counts) for counts in self.counts), default=0)


@dataclass(slots=True)
class Trial:
    """Result of a source's sample.

    Attributes:
        sample: the sample.
        now_ms: the clock of this machine.
        spread: the times of the events, by place.
        schemas: how its values were read, if they are in Avro.
        watermarks: number of believed watermarks, by partition.
        marks: the places of the believed watermarks.
        bad_watermarks: number of refused watermarks, by the unit in which they would be believed; empty for no unit.
        reached_ms: the furthest of them; None where there is none.
        refused: the records that are no event, by reason.
        misplaced: the events in a partition that is not their user's.
        unit: what the times seem to be in that make no sense in the configured unit; nothing where they do.
        mistimed: their events.
        lags_ms: how long after its time each event was written, sorted; only records with a timestamp.
        places: by user, the partitions that have events of them.
        users: the user of each record; a record whose user is not known has no entry.
        views: what each view makes of the events.
    """

    sample: Sample
    now_ms: int
    spread: TimeSpread[Place]
    schemas: Schemas = field(default_factory=dict)
    watermarks: Counter[int] = field(default_factory=Counter)
    marks: set[Place] = field(default_factory=set)
    bad_watermarks: Counter[str] = field(default_factory=Counter)
    reached_ms: int | None = None
    refused: defaultdict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))
    misplaced: list[Place] = field(default_factory=list)
    unit: str = ""
    mistimed: list[Place] = field(default_factory=list)
    lags_ms: list[int] = field(default_factory=list)
    places: defaultdict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    users: dict[Place, bytes] = field(default_factory=dict)
    views: dict[str, Taken] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """Number of records that are no watermark."""
        return len(self.sample) - self.watermarks.total()

    def written_ms(self, record: Record) -> int:
        """Return when a record was written; if it has no timestamp, the clock of this machine."""
        return record.timestamp if record.timestamp >= 0 else self.now_ms

    @property
    def newest_ms(self) -> int | None:
        """Time at which the newest record was written; None if no record has a timestamp."""
        return max((record.timestamp for record in self.sample if record.timestamp >= 0), default=None)

    def faulty(self, view: str) -> set[Place]:
        """Return the records that a view does not count because of a fault that producers have to correct.

        That events are late, or before the first window, is none: history may be older than what a view is about. It is
        where their times make no sense in the unit that is configured.
        """
        own = [place for reason, places in self.views[view].refused.items() if reason == "future" for place in places]
        of_all = [place for places in self.refused.values() for place in places]
        return {*of_all, *self.misplaced, *self.mistimed, *own}

    def users_with(self, places: Collection[Place]) -> tuple[int, int]:
        """Return the number of users with more than half of their records at some places, and the number of users.

        Each user counts once, however many records they wrote. A record whose user is not known counts as one.
        """
        chosen = set(places)
        records: defaultdict[bytes | Place, int] = defaultdict(int)
        among: defaultdict[bytes | Place, int] = defaultdict(int)
        for place in self.events_at:
            user = self.users.get(place, place)
            records[user] += 1
            among[user] += place in chosen
        return sum(2 * among[user] > number for user, number in records.items()), len(records)

    @property
    def events_at(self) -> Iterator[Place]:
        """The places of all records except believed watermarks."""
        marks = self.marks
        places = ((at, record.offset) for at, records in self.sample.records.items() for record in records)
        return (place for place in places if place not in marks)


class _Second(NamedTuple):
    """The events of a partition between two ticks."""

    partition: int
    before_ms: int
    """The tick before them."""
    behind_ms: int
    """The tick behind them."""
    decoded: Decoded


def count_sample(
    source: SourcePlan,
    views: Sequence[ViewPlan],
    sample: Sample,
    begun: Mapping[str, int],
    now_ms: int,
    schemas: Schemas = MappingProxyType({}),
) -> Trial:
    """Count a sample by the rules of counting.

    Args:
        source: where it is from.
        views: the views on it.
        sample: its records.
        begun: by view, the start of the first window of those that have begun.
        now_ms: the clock of this machine.
        schemas: how its values are read, if they are in Avro.
    """
    form = event_format(source, views)
    windows = [view.window for view in views]
    plausible = PlausibleTimes.of((window.first_ms for window in windows), (window.max_ahead_ms for window in windows))
    spread = TimeSpread[Place](plausible, now_ms, longest_gap_ms(window.shape for window in windows))
    trial = Trial(sample, now_ms, spread, schemas)
    seconds = list(_seconds(sample, _reader(source, views, schemas, trial.users), now_ms))
    if source.key_field is None:
        trial.users = {(at, one.offset): one.key for at, some in sample.records.items() for one in some if one.key}
    written = {(at, record.offset): record for at, records in sample.records.items() for record in records}
    events: list[Place] = []
    times: list[tuple[int, int]] = []
    for partition, _, _, decoded in seconds:
        claimed = dict(decoded.watermarks)
        decoded.watermarks, not_believed = plausible.check_watermarks(decoded.watermarks, now_ms)
        decoded.refused += not_believed
        trial.bad_watermarks.update(plausible.unit_of(claimed[offset], now_ms) for offset, _ in not_believed)
        trial.watermarks[partition] += len(decoded.watermarks)
        trial.marks.update((partition, offset) for offset, _ in decoded.watermarks)
        for _, time in decoded.watermarks:
            trial.reached_ms = max(time, trial.reached_ms or time)
        for offset, reason in decoded.refused:
            trial.refused[reason].append((partition, offset))
        misplaced = CountedPartition(source.name, partition, user_partitioner(source)).misplaced(decoded.users)
        spread.add([(partition, offset) for offset in decoded.offsets], decoded.times)
        for offset, user, time in zip(decoded.offsets, decoded.users, decoded.times, strict=True):
            trial.places[user].add(partition)
            events.append((partition, offset))
            record = written[partition, offset]
            times.append((time, trial.written_ms(record)))
            if record.timestamp >= 0:
                trial.lags_ms.append(record.timestamp - time)
            if user in misplaced:
                trial.misplaced.append((partition, offset))
    trial.lags_ms.sort()
    trial.unit, mistimed = other_unit(form, times)
    trial.mistimed = [events[at] for at in mistimed]
    oldest = now_ms if spread.bulk is None else spread.bulk.first_ms
    for column, view in enumerate(views):
        trial.views[view.name] = _taken(view, column, source, seconds, begun.get(view.name), oldest, now_ms)
    return trial


def _reader(
    source: SourcePlan, views: Sequence[ViewPlan], schemas: Schemas, users: dict[Place, bytes]
) -> Callable[[Sequence[Any]], Decoded]:
    """Return what decodes records of a source, keyed by user or not.

    Args:
        source: the source.
        views: the views on it.
        schemas: how its values are read, if they are in Avro.
        users: gets the users that are in the values, if the source is not keyed by user.
    """
    decoder = event_decoder(source, views)
    decoder.learn(schemas)
    if source.key_field is None:
        return decoder.decode
    reader = key_reader(source)
    reader.learn(schemas)

    def rekeyed(records: Sequence[Any]) -> Decoded:
        keyed = reader.read(records)
        at = {record.offset: record.partition for record in records}
        users.update({(at[one.offset], one.offset): user for user, one in keyed.events})
        events = [RekeyedEvent(one.offset, one.timestamp, user, one.value or b"") for user, one in keyed.events]
        decoded = decoder.decode(cast("Sequence[Record]", events))
        decoded.watermarks = keyed.watermarks
        decoded.refused = sorted([*decoded.refused, *keyed.refused])
        return decoded

    return rekeyed


def _seconds(sample: Sample, decode: Callable[[Sequence[Record]], Decoded], now_ms: int) -> Iterator[_Second]:
    """The records of each second, decoded, and the ticks around them; none is later than the machine's clock.

    A record without a timestamp has no known place among the ticks, so they make it neither late nor early.
    """

    def second(record: Record) -> int:
        return min(record.timestamp, now_ms) // 1000

    for partition, records in sample.records.items():
        for at, together in groupby(records, second):
            behind_ms = min(1000 * (at + 1), now_ms) if at >= 0 else now_ms
            yield _Second(partition, 1000 * at, behind_ms, decode(list(together)))


def _taken(
    view: ViewPlan,
    column: int,
    source: SourcePlan,
    seconds: Sequence[_Second],
    began_ms: int | None,
    oldest_ms: int,
    now_ms: int,
) -> Taken:
    """Return the trial of a view on events; one without a start that has not begun is taken as always there."""
    at_once = began_ms is None and view.window.first_ms is not None
    first_ms = view.window.first_ms if began_ms is None else began_ms
    counted = counted_view(view, view.window.charged(oldest_ms).start_ms if first_ms is None else first_ms)
    windows: defaultdict[int, dict[int, OpenWindow]] = defaultdict(dict)
    clocks: defaultdict[int, int] = defaultdict(lambda: counted.first_ms)
    accepted, refused = 0, defaultdict(list)
    bound_windows = counted.participation
    participation = None if bound_windows is None else Participation(counted, bound_windows, NoRows())
    for partition, before_ms, behind_ms, decoded in seconds:
        if counted.clock == "wall" and not at_once:
            clocks[partition] = max(clocks[partition], before_ms)
        bound = bound_chunk(
            counted,
            windows[partition if source.key_field is None else 0],
            decoded.columns[column],
            Admission(
                clocks[partition],
                now_ms if at_once else behind_ms,
                counted.first_ms,
                decoded.watermarks if counted.clock == "event" else (),
                CountedPartition(source.name, partition, user_partitioner(source)).misplaced(decoded.users),
                participation,
            ),
        )
        clocks[partition] = bound.clock_ms
        accepted += len(decoded.columns[column].items) - len(bound.refused)
        for offset, reason in bound.refused:
            refused[reason].append((partition, offset))
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for start, window in (one for opened in windows.values() for one in opened.items()):
        counts[start].update(dict(window.counts()))
    return Taken(accepted, dict(refused), [[*users.values()] for users in counts.values()])
