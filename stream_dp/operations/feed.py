"""History into a source topic: which source, which columns, what to refuse, and the writing with its watermarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aiokafka import TopicPartition

from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.errors import ConfigError, Fault
from stream_dp.operations.history import FORMS, Columns, Events, Survey, Table, Written
from stream_dp.operations.reports import look
from stream_dp.records.models import PartitionStatus
from stream_dp.runtime.kafka.client import Client, Outgoing
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.source_records import SourceRecords
from stream_dp.windows.durations import format_time


async def counting(plan: Plan, client: Client) -> list[ViewPlan]:
    """The definitions that workers still count: all but former ones whose last window is closed in every partition.

    Args:
        plan: that holds, with every edition of every view.
        client: of its broker.
    """
    if all(view.until_ms is None for view in plan.views.values()):
        return [*plan.views.values()]
    parts = (await look(plan, client, accounts=False)).partitions
    return [view for view in plan.views.values() if not _is_closed(view, plan.partitions, parts)]


def _is_closed(view: ViewPlan, partitions: int, parts: Mapping[int, PartitionStatus]) -> bool:
    """Whether workers have said so of every partition; of a view without an open window they say nothing."""
    until_ms = view.until_ms
    if until_ms is None or len(parts) < partitions:
        return False
    opened = [part.views.get(view.view) for part in parts.values()]
    return all(part.views for part in parts.values()) and all(
        status is None or until_ms <= status.open_from_ms for status in opened
    )


def source_named(counting: Sequence[ViewPlan], name: str | None) -> SourcePlan:
    """The source that is fed.

    Raises:
        ConfigError: there is none of that name, none is named and there are several, it is in Avro, or its events have
            no time.
    """
    sources = {view.source.name: view.source for view in counting}
    if name is None and len(sources) == 1:
        (name,) = sources
    if name is None:
        raise ConfigError([Fault("SOURCE", f"name one of the sources: {', '.join(sources)}")])
    if name not in sources:
        raise ConfigError([Fault("SOURCE", f"no source with a view is named {name!r}; {unknown(name, sources)}")])
    if sources[name].format != "json":
        message = "`feed` writes JSON. For Avro use a producer with the serializer of the schema registry"
        raise ConfigError([Fault(f"sources.{name}.format", message)])
    if sources[name].time_field is None:
        message = "history needs a field for its times, because they decide how long the broker keeps a record"
        raise ConfigError([Fault(f"sources.{name}.time", message)])
    return sources[name]


def columns_of(
    source: SourcePlan,
    views: list[ViewPlan],
    user: str | None,
    time: str | None,
    time_format: Literal["iso", "s", "ms"] | None,
    *,
    everything: bool,
) -> Columns:
    """Return where in a row the fields of an event are.

    Raises:
        ConfigError: nobody says where the user does.
    """
    user = user or source.user_field or source.key_field
    if user is None:
        raise ConfigError([Fault("--user", f"name the column of the user; source {source.name} has no `user` field")])
    items = list(dict.fromkeys(view.item_field for view in views))
    return Columns(user, time or source.time_field or "", time_format or source.time_unit, items, everything)


def check_columns(file: Path, table: Table, columns: Columns) -> None:
    """Make sure that the table has what is needed.

    Raises:
        ConfigError: it has not.
    """
    has = table.columns
    missing = columns.missing(has) if has is not None else []
    if missing:
        raise ConfigError(
            [Fault(str(file), f"it has no column {name!r}; {unknown(name, has or ())}") for name in missing]
        )


def check_times(file: Path, survey: Survey, columns: Columns, views: Sequence[ViewPlan]) -> None:
    """Make sure that most times make sense in the form they are read in, and that a view counts some of them.

    Raises:
        ConfigError: they do not, or none does. Nothing removes a record that is written.
    """
    if form := survey.other_form:
        rows = f"{survey.other_forms[form]:,} of {survey.rows:,} rows"
        said = f"column {columns.time!r} is read as {columns.time_form}, but in {rows} it looks like {form}"
        mend = f"add --time-format {form}" if form in FORMS else "convert it to ms; there is no format for it"
        raise ConfigError([Fault(str(file), f"{said}. Nothing was written. {mend[0].upper()}{mend[1:]}")])
    begin = [begins_ms(view) for view in views]
    if survey.last_ms is not None and all(at is not None and survey.last_ms < at for at in begin):
        raise ConfigError(
            [
                Fault(
                    str(file),
                    "all rows are before the first window of every view, the last one at "
                    f"{format_time(survey.last_ms)}. Nothing was written. Correct --time or --time-format, write an "
                    "earlier window.start, or add --unchecked-data",
                )
            ]
        )


def begins_ms(view: ViewPlan) -> int | None:
    """Return the start of the first window of a view that is counted; None: that of its first start."""
    return view.begins_ms if view.editions else view.window.first_ms


@dataclass
class Progress:
    """How far the writing has come: events that the broker has acknowledged, and the row that the last of them is.

    Attributes:
        topic: where they stand.
        events: how many.
        row: number of a row; all events up to it are there.
    """

    topic: str
    events: int = 0
    row: int = 0

    def words(self) -> str:
        """Say what is in the topic after a failure, and how to continue."""
        return (
            f"{self.events:,} events, up to row {self.row:,}, are in topic {self.topic}. To continue, add --append "
            f"--from-row {self.row + 1}. Some later rows may be there already. They count once: a user counts once "
            "for an item in a window"
        )


class Watermarks:
    """The watermarks of events in order of time: one for each window that begins, before its first event."""

    def __init__(self, source: SourcePlan, views: Sequence[ViewPlan]) -> None:
        self._records = SourceRecords(source)
        self._shapes = [view.window.shape for view in views]
        self._next: int | None = None

    def among(self, events: Sequence[Written]) -> list[Outgoing]:
        """The records of events, with the watermarks that are due between them."""
        out: list[Outgoing] = []
        for event in events:
            if self._next is None or event.time_ms >= self._next:
                begins = [shape.start_of(event.time_ms) for shape in self._shapes]
                out += self._records.watermark(max(begins))
                self._next = min(shape.next(start) for shape, start in zip(self._shapes, begins, strict=True))
            out.append(event.record)
        return out

    def last(self, time_ms: int) -> list[Outgoing]:
        """The watermark behind everything."""
        return list(self._records.watermark(time_ms))


async def make_room(plan: Plan, source: SourcePlan, client: Client, *, append: bool) -> bool:
    """Create the source topic if it is not there; whether that was so.

    Args:
        plan: the application.
        source: one of its sources.
        client: a client of its broker.
        append: write after the records of the topic.

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
    events: Events,
    client: Client,
    progress: Progress,
    *,
    watermarks: Watermarks | None,
    ordered: bool,
    until_ms: int,
    from_row: int = 1,
    report: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Write events and wait until all of them are in the topic.

    Args:
        events: what is written.
        client: a client of the broker.
        progress: is kept up to date.
        watermarks: of the source, None for none.
        ordered: whether the events are in order of time; if not, there is the last watermark alone.
        until_ms: what the last watermark says.
        from_row: the first row that is written.
        report: is called after each step.

    Raises:
        BrokerError: the cluster did not take all of it.
    """
    for chunk in events.chunks(from_row):
        among = watermarks is not None and ordered
        await client.publish(watermarks.among(chunk) if watermarks and among else [event.record for event in chunk])
        if chunk:
            progress.events += len(chunk)
            progress.row = chunk[-1].row
        report(progress)
    if watermarks is not None:
        await client.publish(watermarks.last(until_ms))
