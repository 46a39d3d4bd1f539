"""What `stream-dp check --sample` shows of the records of a source."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.config.plan import Plan
from stream_dp.control.editions import differing
from stream_dp.errors import ConfigError
from stream_dp.runtime.bootstrap import wrong_sources
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.connecting import connect
from stream_dp.runtime.kafka.control_topic import read_history
from stream_dp.runtime.sources.survey import SourceSurvey, survey


async def sampled(plan: Plan, records: int) -> list[SourceSurvey]:
    """Sample every source of a plan, by the file; where others hold, a line on stderr says so.

    Args:
        plan: of the file.
        records: of each source.

    Raises:
        ConfigError: a source has no topic, or one with other partitions.
        BrokerError: the cluster does not answer, or refuses.
    """
    async with connect(plan.broker) as client:
        if faults := await wrong_sources(plan, client):
            raise ConfigError(faults)
        for newest in (await read_history(plan, client))[-1:]:
            if words := differing(plan, newest.number, newest.sections, "the sample is read by the file"):
                click.echo(words, err=True)
        return await survey(plan, client, wall_clock_ms(), records)


def sample_page(sample: SourceSurvey) -> RenderableType:
    """The sample of one source: what its views make of it, who placed the users, and the clocks."""
    title = Text.assemble("\nsample of source ", (sample.source, "bold"), f" (topic {sample.topic})")
    if not sample.records:
        return Group(title, Padding(Text("The topic holds no record that could be looked at."), (0, 0, 0, 2)))
    lines = [
        f"The newest {sample.records:,} records, {sample.watermarks:,} of them watermarks"
        f"{', all that could be read in time' if sample.cut_short else ''}.",
        *(f"{words[0].upper()}{words[1:]}." for words in sample.clocks),
    ]
    if sample.users and sample.users_placed_by:
        placed = ", ".join(f"{users:,} stand where {name} puts them" for name, users in sample.users_placed_by.items())
        lines.append(f"Of {sample.users:,} users {placed}.")
    words = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return Group(title, *words, Padding(_table(sample), (0, 0, 0, 2)))


def _table(sample: SourceSurvey) -> Table:
    events = sample.records - sample.watermarks
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for heading in ("view", "records", "share", "what becomes of them"):
        table.add_column(heading, justify="right" if heading in ("records", "share") else "left")

    def row(view: str, records: int, what: str, of: int = events) -> None:
        table.add_row(view, f"{records:,}", f"{100 * records / max(1, of):.3g} %", what)

    for reason, records in sample.refused.items():
        row("(any)", records, f"refused: {reason}")
    for view in sample.views:
        of = max(events, view.counted + sum(view.refused.values()))  # an event may have several items
        row(view.view, view.counted, "counted", of)
        for reason, records in view.refused.items():
            row(view.view, records, f"not counted: {reason}", of)
    return table
