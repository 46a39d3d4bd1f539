"""`stream-dp check FILE`: the plan of every view in words and numbers, or every fault of the file."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import run
from stream_dp.config.descriptions import LedgerDescription, PartDescription, PlanDescription, ViewDescription
from stream_dp.config.explanation import price_words
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_up
from stream_dp.operations.check import check_plan, sample
from stream_dp.operations.settings import read_differing
from stream_dp.records.models import Amount
from stream_dp.runtime.capacity import Computing, Rate
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.sources.sampling import SAMPLE_RECORDS
from stream_dp.runtime.sources.survey import SourceSurvey

FAULTY, WARNED = 2, 3
COLUMN_DIGITS = 6


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the plan, or the faults.")
@click.option("--strict", is_flag=True, help="Exit with 3 where there is a warning.")
@click.option(
    "--sample",
    "sample_records",
    is_flag=False,
    flag_value=SAMPLE_RECORDS,
    type=click.IntRange(1, 100_000),
    metavar="[=N]",
    help="Also read the newest records of every source, N over all partitions (2,000 if no number is given), and say "
    "what would be counted, what not and why, with the remedy; which partitioner the producers use; whether clocks and "
    "units agree. Needs the broker, and READ on the sources and NAME-control. Counts only: no user, no item is shown.",
)
@click.pass_context
def check(context: click.Context, file: Path, *, as_json: bool, strict: bool, sample_records: int | None) -> None:
    """Check the configuration FILE and print its plan.

    Who is protected against what, how large the noise is at each level, what one window costs and how many windows
    the ledgers afford; when releases leave, how many keys this machine computes until then and how many windows a
    second it releases, which is measured, in a temporary folder, but for the time that the broker takes. Nothing is
    started, and nothing that was written stays. Without --sample nothing is connected to either: which passwords,
    tokens and certificates this machine lacks is said, and is no fault.

    With --sample it looks at the data, too, for at most 10 s: a topic that is not there, or has other partitions, is a
    fault of the file; what the records need is a warning. Nothing is written, and no consumer group is joined. FILE may
    be one that is still to be applied: the records are read by FILE; which views have begun, and when, is told by the
    settings that hold, and where FILE says otherwise than those, a line on stderr says about what.

    \b
    stream-dp check app.yaml                   the plan, without a broker
    stream-dp check app.yaml --sample          and what 2,000 records of every source come to
    stream-dp check app.yaml --sample=20000    a larger sample

    Exit codes: 0 the file is right, 2 it is not (every fault is listed on stderr), 3 it is, but with --strict there is
    a warning (what was measured on this machine is none), 1 any other error.
    """
    try:
        plan = load_plan(file)
        samples = [] if sample_records is None else run(plan, lambda client: _sampled(plan, client, sample_records))
    except ConfigError as error:
        count = len(error.faults)
        click.echo(f"{file}: {count} {'fault' if count == 1 else 'faults'}", err=True)
        for fault in error.faults:
            click.echo(f"  {fault}", err=True)
        if as_json:
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            click.echo(json.dumps({"faults": faults}, indent=2, ensure_ascii=False))
        context.exit(FAULTY)
    checked = check_plan(plan, samples)
    if as_json:
        click.echo(json.dumps(checked.as_json(), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        page = _page(checked.description, checked.computing, checked.rates)
        for part in (*page, *map(sample_page, checked.samples)):
            console.print(part)
        for fault in checked.lacking:
            console.print(Text.assemble(("\nneeded to connect, not on this machine: ", "bold"), str(fault)))
        for words in checked.on_this_machine:
            console.print(Text.assemble(("\non this machine: ", "bold"), words))
        for warning in checked.warnings:
            console.print(Text.assemble(("\nwarning: ", "bold yellow"), warning))
    if strict and checked.warnings:
        context.exit(WARNED)


async def _sampled(plan: Plan, client: Client, records: int) -> list[SourceSurvey]:
    """Sample the sources by the file; where other settings are in effect, a line on stderr says so."""
    found = await sample(plan, client, records)
    number, differs = await read_differing(plan, client)
    if differs:
        click.echo(
            f"settings {number} hold, and the file says otherwise about {', '.join(differs)}: the "
            "sample is read by the file; `stream-dp apply FILE` makes the file hold",
            err=True,
        )
    return found


def _page(plan: PlanDescription, computing: Mapping[str, Computing], asked: Sequence[Rate]) -> Iterator[RenderableType]:
    views = "1 view" if len(plan.views) == 1 else f"{len(plan.views)} views"
    broker = f"{plan.broker} ({plan.access})" if plan.access else plan.broker
    yield Text.assemble((plan.id, "bold"), f": {views}, {plan.partitions} partitions, broker {broker}")
    yield Text(
        f"Releases leave at multiples of {plan.slot}, {plan.offset} after the close of their window at the earliest. A "
        "window that takes longer leaves later, which tells that it took longer."
    )
    yield Text(
        f"An open window of one partition takes about {plan.window_memory} of a worker's memory at most; one with more "
        "users and items goes on on disk, more slowly and just as exactly. The tables take a block cache of "
        f"{plan.block_cache}, and {plan.write_buffers} of write buffers for every partition. A worker that has all "
        f"{plan.partitions} partitions, each with one open window of every view, takes up to {plan.memory}, beside "
        "about 150MiB for Python and its libraries."
    )
    for view in plan.views:
        yield _view(view, computing[view.name].words(plan.offset))
    for ledger in plan.ledgers:
        yield _ledger(ledger)
    windows, records = sum(rate.windows_a_second for rate in asked), sum(rate.records_a_second for rate in asked)
    yield Text.assemble(
        ("\nrate", "bold"), f" in all: {windows:.3g} windows and {records:.3g} records a second are asked for"
    )
    for rate in asked:
        yield Padding(Text(f"{rate.words()}."), (0, 0, 0, 2))


def _view(view: ViewDescription, computing: str) -> RenderableType:
    start = f"from {view.first_window} on" if view.first_window else "from the first start on"
    lines = [
        f"{view.explanation.shows} of {view.item_field!r} in topic {view.topic}, {view.when} {start}; "
        f"{view.clock} clock, {view.grace} grace, sharpened up to {view.retention} later",
        *([view.hops] if view.hops else []),
        view.protection,
        view.explanation.keys,
        view.coalition,
        *view.unlocks.values(),
        *([view.sharpening] if view.sharpening else []),
        f"{computing}.",
    ]
    words = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    tables = [Padding(table, (0, 0, 0, 2)) for table in (_levels(view), *([_modes(view)] if view.modes else []))]
    return Group(Text.assemble("\nview ", (view.name, "bold"), f" ({view.kind})"), *words, *tables)


def _modes(view: ViewDescription) -> Table:
    """What windows that overlap cost and how noisy they are, made in each way."""
    table = _table(["made", "level", "a day\ncosts", "mean\nerror", "95 %\nwithin"], left={"made", "level"})
    for mode in view.modes:
        made = f"{mode.mode} (this)" if mode.configured else mode.mode
        for at, level in enumerate(view.levels):
            cost = mode.day_costs[at]
            table.add_row(
                "" if at else made,
                level.name,
                _short(cost.rho or cost.epsilon),
                mode.expected_errors[at],
                f"±{mode.noise_intervals_95[at]}",
            )
    return table


def _levels(view: ViewDescription) -> Table:
    columns = view.explanation.columns
    headings = ["level", "epsilon", "noise\nscale", "mean\nerror", "95 %\nwithin", *columns]
    headings.append(f"{view.unit}\nrho" if view.levels[0].cost.rho else f"{view.unit}\ncosts")
    table = _table([*headings, "budget\naffords", "audiences"], left={"level", "audiences"})
    for index, level in enumerate(view.levels):
        table.add_row(
            level.name,
            _short(level.epsilon),
            _short(level.noise_scale),
            level.expected_error,
            f"±{level.noise_interval_95}",
            *(cells[index] for cells in columns.values()),
            _short(level.cost.rho or level.cost.epsilon),
            str(level.windows_afforded),
            ", ".join(level.audiences) or "-",
        )
    return table


_USES = {
    "pure": "for all that adds up",
    "selection": "for the draws of selections",
    "zcdp": "for the noise of counts",
}


def _part(part: PartDescription) -> str:
    windows = ", ".join(f"{count} of {view}" for view, count in part.windows_afforded.items())
    reach = f"it lasts {part.lasts}; alone, a view gets {windows}" if windows else "no view is charged to it"
    return (
        f"Part {part.name}, {_USES[part.name]}: promises epsilon {part.epsilon.decimal} and delta "
        f"{part.delta.decimal}, admits {part.unit} {part.cap.decimal}, is asked for {part.asked.decimal}; {reach}."
    )


def _short(amount: Amount) -> str:
    """A number for a column, rounded up."""
    return decimal_up(Fraction(amount.exact), COLUMN_DIGITS)


def _table(headings: Sequence[str], left: Container[str]) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for heading in headings:
        numbers = heading not in left
        table.add_column(heading, justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    return table


def _ledger(ledger: LedgerDescription) -> RenderableType:
    entries = ["epsilon", "delta", *(part.unit for part in ledger.parts[1:])]
    costs = [f"{entry}\na window" for entry in entries]
    table = _table(["view", "level", *costs, "share", "windows\na period", "paid\nfor"], left={"view", "level"})
    for share in ledger.shares:
        prices = dict(share.cost)
        table.add_row(
            share.view,
            share.level,
            *("-" if prices[entry] is None else _short(prices[entry]) for entry in entries),
            share.share or "rest",
            str(share.windows_asked),
            str(share.windows_afforded),
        )
    budget = ledger.budget
    verdict = "the budget pays for all of it" if ledger.affords_schedule else f"for all views it lasts {ledger.lasts}"
    lines = [
        f"Protects {ledger.population}: epsilon {budget.epsilon.decimal} and delta {budget.delta.decimal} every "
        f"{ledger.period}, all views and audiences together; then releases are refused.",
        "A change of this budget or period holds from the next period on: a running one keeps what it began with.",
        "What is spent is kept under these words for the population, whatever ledger and views are called.",
        f"Over a period the odds that one user took part change by a factor of at most {ledger.odds} (but for delta).",
        *map(_part, ledger.parts),
        "At the clearances of the start, and what is unlocked later, the schedule asks for "
        f"{price_words(ledger.asked)}: {verdict}.",
    ]
    words = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return Group(Text.assemble("\nledger ", (ledger.name, "bold")), *words, Padding(table, (0, 0, 0, 2)))


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
    return Group(title, *words, Padding(_sample_table(sample), (0, 0, 0, 2)))


def _sample_table(sample: SourceSurvey) -> Table:
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
