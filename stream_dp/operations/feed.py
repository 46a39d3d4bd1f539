"""Feed history into a source topic: choose the source, check the rows, write events and watermarks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokafka import TopicPartition

from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.errors import ConfigError, Fault
from stream_dp.operations import named
from stream_dp.operations.event_tables import EventTable
from stream_dp.operations.events_file import FORMS, Columns, Events, FileSurvey, Written
from stream_dp.operations.outliers import Limits, check_outliers
from stream_dp.operations.reports import look
from stream_dp.records.models import PartitionStatus
from stream_dp.runtime.factory import SourceRecords
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import format_time, moment
from stream_dp.windows.effects import Message
from stream_dp.windows.events import TimeUnit


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """Options of a feed.

    Attributes:
        user: column of the user; None: as in the source.
        time: column of the time; None: as in the source.
        time_format: form of the time; None: as in the source.
        all_fields: write every column, not only those that views count.
        unchecked_data: write the rows even if their times look wrong.
        skip_bad: skip rows that are no events.
        append: write behind the records of the topic.
        from_row: the first row that is written.
        watermarks: write watermarks; None: if a view of the source needs them.
        from_ms: leave out events before this time; None: no such limit.
        until_ms: time of the last watermark; outlying events at this time or later are left out. None: just after the
            last plausible event.
        drop_outliers: leave out events with outlying times.
    """

    user: str | None = None
    time: str | None = None
    time_format: TimeUnit | None = None
    all_fields: bool = False
    unchecked_data: bool = False
    skip_bad: bool = False
    append: bool = False
    from_row: int = 1
    watermarks: bool | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    drop_outliers: bool = False

    @property
    def limits(self) -> Limits:
        """Limits on the times of the events that are written."""
        return Limits(self.from_ms, None if self.unchecked_data else self.until_ms, self.drop_outliers)


async def counting(plan: Plan, client: Client) -> list[ViewPlan]:
    """Return the definitions that workers still count: all but former ones that every partition has closed.

    Args:
        plan: in effect, with every edition of every view.
        client: of its broker.
    """
    if all(view.until_ms is None for view in plan.views.values()):
        return [*plan.views.values()]
    parts = (await look(plan, client, accounts=False)).partitions
    return [view for view in plan.views.values() if not _is_closed(view, plan.partitions, parts)]


def _is_closed(view: ViewPlan, partitions: int, parts: Mapping[int, PartitionStatus]) -> bool:
    """Return True if every partition has closed a definition; a view without an open window is not reported."""
    until_ms = view.until_ms
    if until_ms is None or len(parts) < partitions:
        return False
    opened = [part.views.get(view.view) for part in parts.values()]
    return all(part.views for part in parts.values()) and all(
        status is None or until_ms <= status.open_from_ms for status in opened
    )


def source_named(counting: Sequence[ViewPlan], name: str | None) -> SourcePlan:
    """Return the source that has a name, or the only one.

    Raises:
        ConfigError: no source has this name, or there are several and none is named.
    """
    sources = {view.source.name: view.source for view in counting}
    if name is None and len(sources) == 1:
        (name,) = sources
    if name is None:
        raise ConfigError(f"name one of the sources: {', '.join(sources)}", "SOURCE")
    return named("source with a view", name, sources, "SOURCE")


def source_of_history(counting: Sequence[ViewPlan], name: str | None) -> SourcePlan:
    """Return the source that is fed.

    Raises:
        ConfigError: as `source_named`, or the source is in Avro, or its events have no time.
    """
    source = source_named(counting, name)
    if source.format != "json":
        message = "`feed` writes JSON. For Avro use a producer with the serializer of the schema registry"
        raise ConfigError(message, f"sources.{source.name}.format")
    if source.time_field is None:
        message = "history needs a field for its times, because they decide how long the broker keeps a record"
        raise ConfigError(message, f"sources.{source.name}.time")
    return source


def columns_of(
    source: SourcePlan, views: Sequence[ViewPlan], file: Path, table: EventTable, options: FeedOptions
) -> Columns:
    """Return the columns of an event's fields.

    Raises:
        ConfigError: nothing names the column of the user, or the table lacks a column.
    """
    user = options.user or source.user_field or source.key_field
    if user is None:
        raise ConfigError(f"name the column of the user; source {source.name} has no `user` field", "--user")
    columns = Columns(
        user=user,
        time=options.time or source.time_field or "",
        time_form=options.time_format or source.time_unit,
        items=list(dict.fromkeys(view.item_field for view in views)),
        everything=options.all_fields,
    )
    has = table.columns
    if has is not None and (missing := columns.missing(has)):
        raise ConfigError([Fault(str(file), f"it has no column {name!r}; {unknown(name, has)}") for name in missing])
    return columns


def last_watermark(
    file: Path,
    survey: FileSurvey,
    events: Events,
    views: Sequence[ViewPlan],
    options: FeedOptions,
    now_ms: int,
    *,
    from_option: str = "--from",
) -> int:
    """Check the rows before the first is written, because nothing removes a record from a topic.

    Args:
        file: the file with the rows.
        survey: survey of the rows.
        events: events of the file.
        views: the views that count the events.
        options: options of the feed.
        now_ms: the clock of this machine.
        from_option: name of the option that sets the first time.

    Returns:
        The time of the last watermark.

    Raises:
        OutlyingTimesError: rows have outlying times.
        ConfigError: most times look like another form than the one in which they are read, no view counts any row, rows
            are invalid, no row is left, or the last watermark is too early, or too late to be believed.
    """
    last_ms = survey.last_ms
    columns = events.columns
    if (form := survey.other_form) and not options.unchecked_data:
        rows = f"{survey.other_forms[form]:,} of {survey.rows:,} rows"
        said = f"column {columns.time!r} is read as {columns.time_form}, but in {rows} it looks like {form}"
        remedy = f"Add --time-format {form}" if form in FORMS else "Convert it to ms; there is no format for it"
        raise ConfigError(f"{said}. Nothing was written. {remedy}", str(file))
    if not options.unchecked_data:
        check_outliers(file, survey.spread, from_option)
    begin = [begins_ms(view) for view in views]
    if last_ms is not None and not options.unchecked_data and all(at is not None and last_ms < at for at in begin):
        raise ConfigError(
            "all rows are before the first window of every view, the last one at "
            f"{format_time(last_ms)}. Nothing was written. Correct --time or --time-format, write an "
            "earlier window.start, or add --unchecked-data",
            str(file),
        )
    if survey.refused and not options.skip_bad:
        count = sum(survey.refused.values())
        raise ConfigError(f"{file}: {count:,} invalid {'row' if count == 1 else 'rows'}. Add --skip-bad to skip them")
    if options.until_ms is not None and (survey.events or survey.left_out):
        _check_until(options.until_ms, survey, events, options, now_ms)
    if last_ms is None:
        reason = "all events are left out because of their times" if survey.left_out else "the file has no event"
        raise ConfigError(f"{file}: {reason}")
    if options.until_ms is not None:
        return options.until_ms
    # With --unchecked-data, a mistyped date must not become the last watermark: it would close all windows up to it.
    plausible = survey.spread.plausible
    if plausible is None:
        return last_ms + 1
    return min(plausible.last_ms + 1, events.plausible.until(now_ms))


def _check_until(until_ms: int, survey: FileSurvey, events: Events, options: FeedOptions, now_ms: int) -> None:
    """Check the time of the last watermark.

    Raises:
        ConfigError: there are later events that are not outlying, or workers would not believe the watermark.
    """
    bulk = survey.all_times.bulk
    last_ms = bulk.last_ms if bulk is not None and not options.unchecked_data else survey.last_ms
    if last_ms is not None and until_ms <= last_ms:
        raise ConfigError(f"--until {format_time(until_ms)}: there are later events, up to {format_time(last_ms)}")
    if not options.unchecked_data and not events.plausible.has(until_ms, now_ms):
        believed = f"from {moment(events.plausible.from_ms)} to {moment(events.plausible.until(now_ms))}"
        raise ConfigError(
            f"workers do not believe a watermark of {moment(until_ms)}. Give a time {believed}, which is now plus "
            "window.max_ahead",
            "--until",
        )


def begins_ms(view: ViewPlan) -> int | None:
    """Return the start of the first counted window of a view; None: that of its first start."""
    return view.begins_ms if view.editions else view.window.first_ms


@dataclass
class FeedProgress:
    """Progress of a feed: events that the broker has acknowledged.

    Attributes:
        topic: the topic.
        row: row of the last event; all events up to it are in the topic.
        events: number of events.
    """

    topic: str
    row: int = 0
    events: int = 0

    def words(self) -> str:
        """Return what is in the topic after a failure, and how to continue."""
        return (
            f"{self.events:,} events, up to row {self.row:,}, are in topic {self.topic}. To continue, add --append "
            f"--from-row {self.row + 1}. Some later rows may be there already. They count once: a user counts once "
            "for an item in a window"
        )


class Watermarks:
    """Watermarks among events: one at the end; if they are in order of time, one before the first event of each window.

    Attributes:
        at: returns the records of a watermark with a time.
        last: those of the last watermark.
    """

    def __init__(self, source: SourcePlan, views: Sequence[ViewPlan], until_ms: int, *, ordered: bool) -> None:
        self.at = SourceRecords(source).watermark
        self._shapes = [view.window.shape for view in views]
        self._ordered = ordered
        self._until_ms = until_ms
        self._next: int | None = None
        self.last = list(self.at(until_ms))

    def among(self, events: Sequence[Written]) -> list[Message]:
        """Return the records of events, with the watermarks that are due between them."""
        out: list[Message] = []
        for event in events:
            if self._ordered and (self._next is None or event.time_ms >= self._next):
                begins = [shape.start_of(event.time_ms) for shape in self._shapes]
                if max(begins) <= self._until_ms:
                    out += self.at(max(begins))
                self._next = min(shape.next(start) for shape, start in zip(self._shapes, begins, strict=True))
            out.append(event.record)
        return out


async def make_room(plan: Plan, source: SourcePlan, client: Client, *, append: bool) -> bool:
    """Create the source topic if it is missing.

    Args:
        plan: the application.
        source: one of its sources.
        client: a client of its broker.
        append: the topic may have records.

    Returns:
        True if it was created.

    Raises:
        ConfigError: the topic has another number of partitions than the file says, or has records.
        BrokerError: the cluster does not answer.
    """
    count = await client.partitions(source.topic)
    if count is None:
        await client.create([Topics.of(plan).source(source)])
        return True
    if count != source.partitions:
        raise ConfigError(
            f"sources.{source.name}.partitions: topic {source.topic} has {count}, not {source.partitions}"
        )
    ends = await client.ends([TopicPartition(source.topic, partition) for partition in range(count)])
    if any(ends.values()) and not append:
        raise ConfigError(
            f"topic {source.topic} has records already, up to {sum(ends.values()):,}. Add --append to write after "
            "them. Events of released windows are too late"
        )
    return False


async def write(
    events: Events, client: Client, progress: FeedProgress, watermarks: Watermarks | None
) -> AsyncIterator[None]:
    """Write events, from the row behind that of the progress on, and wait until all of them are in the topic.

    Args:
        events: the events.
        client: a client of the broker.
        progress: is kept up to date.
        watermarks: of the source, None for none.

    Yields:
        After each step.

    Raises:
        BrokerError: the cluster did not take all of it.
    """
    for chunk in events.chunks(progress.row + 1):
        await client.publish(watermarks.among(chunk) if watermarks else [event.record for event in chunk])
        if chunk:
            progress.events += len(chunk)
            progress.row = chunk[-1].row
        yield
    if watermarks is not None:
        await client.publish(watermarks.last)
