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
from stream_dp.operations.check import AudienceSummary, Checked, check_plan, sample
from stream_dp.operations.settings import read_differing
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.runtime.capacity import Computing, Rate
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.sources.sampling import SAMPLE_RECORDS
from stream_dp.runtime.sources.survey import SourceSurvey

FAULTY, WARNED = 2, 3
COLUMN_DIGITS = 6


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: the plan, or the faults.")
@click.option("--strict", is_flag=True, help="Exit with 3 if there is a warning.")
@click.option("--explain", is_flag=True, help="Also explain every view, ledger, level and cost in sentences.")
@click.option(
    "--sample",
    "sample_records",
    is_flag=False,
    flag_value=SAMPLE_RECORDS,
    type=click.IntRange(1, 100_000),
    metavar="[=N]",
    help="Also read the newest N records of every source (2,000 if no number is given) and report which are counted, "
    "which are not, why, and the remedy. Needs the broker, and READ on the sources and NAME-control. Shows counts "
    "only, never a user or an item.",
)
@click.pass_context
def check(
    context: click.Context, file: Path, *, as_json: bool, strict: bool, explain: bool, sample_records: int | None
) -> None:
    """Check the configuration FILE and print what it means.

    The table has a line for each view and audience: the level that the audience starts with, the keys it sees, the 95 %
    error of a count, what a window and a period cost one user, and how long the budget lasts. Warnings follow.
    `--explain` adds who is protected, every level, every ledger, memory, and the speed of this machine. The speed is
    measured in a temporary folder; nothing that is written stays.

    Without --sample nothing connects to the broker. Passwords, tokens and certificates that this machine lacks are
    listed and are no fault. With --sample a missing topic, or one with other partitions, is a fault; problems of the
    records are warnings. Sampling takes at most 10 s, writes nothing and joins no consumer group. FILE may be a file
    that is not applied yet: records are read by FILE.

    \b
    stream-dp check app.yaml                   the plan, without a broker
    stream-dp check app.yaml --explain         the same, with every detail in sentences
    stream-dp check app.yaml --sample          and what becomes of 2,000 records of every source
    stream-dp check app.yaml --sample=20000    a larger sample

    Exit codes: 0 the file is right; 1 any other error; 2 the file has faults, listed on stderr; 3 with --strict: there
    is a warning. Measured speed never counts as a warning.
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
        for part in _summary(checked):
            console.print(part)
        if explain:
            for part in _explained(checked.description, checked.computing, checked.rates):
                console.print(part)
        else:
            console.print(Text("\n--explain explains every view, ledger and cost.", "dim"))
        for part in map(sample_page, checked.samples):
            console.print(part)
    if strict and checked.warnings:
        context.exit(WARNED)


def _summary(checked: Checked) -> Iterator[RenderableType]:
    """What the plan means, then what to mend."""
    plan = checked.description
    views, warnings = _many(len(plan.views), "view"), _many(len(checked.warnings), "warning")
    verdict = (warnings, "bold yellow") if checked.warnings else ("OK", "bold green")
    broker = f"{plan.broker} ({plan.access})" if plan.access else plan.broker
    yield Text.assemble((plan.id, "bold"), ": ", verdict, f", {views}, {plan.partitions} partitions, broker {broker}\n")
    yield _audiences(checked.audiences)
    yield Text("")
    for ledger in plan.ledgers:
        yield Text(_ledger_line(ledger))
    for warning in checked.warnings:
        yield Text.assemble(("\nwarning: ", "bold yellow"), warning)
    for fault in checked.lacking:
        yield Text.assemble(("\nmissing on this machine: ", "bold"), f"{fault}. It is needed to connect.")
    for words in checked.on_this_machine:
        yield Text.assemble(("\non this machine: ", "bold"), words)


def _audiences(audiences: Sequence[AudienceSummary]) -> Table:
    left = {"view", "audience", "level", "keys\nseen", "budget\nlasts"}
    headings = [
        "view",
        "audience",
        "level",
        "epsilon",
        "keys\nseen",
        "95 %\nerror",
        "a window\ncosts",
        "a period\ncosts",
    ]
    table = _table([*headings, "budget\nlasts"], left=left)
    before = ""
    for one in audiences:
        table.add_row(
            "" if one.view == before else one.view,
            one.audience,
            one.level + (f", later {one.later}" if one.later else ""),
            _short(one.epsilon),
            one.seen,
            f"±{one.noise_interval_95}",
            _cost(one.cost) + (" a pane" if one.unit == "pane" else ""),
            _cost(one.period_cost),
            f"all {one.period}" if one.lasts == one.period else f"{one.lasts} of {one.period}",
        )
        before = one.view
    return table


def _cost(price: PrivacyCost) -> str:
    """A cost for a column: epsilon, or rho where the ledger counts that."""
    return f"{_short(price.rho)} rho" if price.rho else _short(price.epsilon)


def _ledger_line(ledger: LedgerDescription) -> str:
    lasts = f"all {ledger.period}" if ledger.affords_schedule else f"{ledger.lasts} of {ledger.period}"
    return (
        f"Ledger {ledger.name} ({ledger.population}): {price_words(ledger.budget)} per user per {ledger.period}. "
        f"Planned releases use {price_words(ledger.asked)}. The budget lasts {lasts}."
    )


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


async def _sampled(plan: Plan, client: Client, records: int) -> list[SourceSurvey]:
    """Sample the sources by the file; where other settings are in effect, a line on stderr says so."""
    found = await sample(plan, client, records)
    number, differs = await read_differing(plan, client)
    if differs:
        click.echo(
            f"note: settings {number} are in effect, and FILE differs in {', '.join(differs)}. The sample is read by "
            "FILE. To put FILE into effect: `stream-dp apply FILE`",
            err=True,
        )
    return found


def _explained(
    plan: PlanDescription, computing: Mapping[str, Computing], asked: Sequence[Rate]
) -> Iterator[RenderableType]:
    for view in plan.views:
        yield _view(view, computing[view.name].words(plan.offset))
    for ledger in plan.ledgers:
        yield _ledger(ledger)
    windows, records = sum(rate.windows_a_second for rate in asked), sum(rate.records_a_second for rate in asked)
    yield _paragraphs(
        "release times",
        f"Releases leave at multiples of {plan.slot}, {plan.offset} after their window closes at the earliest. A "
        "window that takes longer to compute leaves later, and readers see that it took longer.",
    )
    yield _paragraphs(
        "memory",
        f"An open window of one partition takes up to about {plan.window_memory}. Larger windows spill to disk: "
        f"slower, same results. The block cache of the tables takes {plan.block_cache}; write buffers take "
        f"{plan.write_buffers} per partition. A worker with all {plan.partitions} partitions and one open window of "
        f"every view takes up to {plan.memory}, plus about 150MiB for Python.",
    )
    yield _paragraphs(
        "speed",
        f"All views need {windows:.3g} windows and {records:.3g} records a second.",
        *(f"{rate.words()}." for rate in asked),
    )


def _paragraphs(title: str, *lines: str) -> RenderableType:
    return Group(Text(f"\n{title}", "bold"), *(Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines))


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
    words = [Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines]
    tables = [
        Padding(table, (0, 0, 0, 2), expand=False) for table in (_levels(view), *([_modes(view)] if view.modes else []))
    ]
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
    "pure": "for costs that add up",
    "selection": "for the draws of selections",
    "zcdp": "for the noise of counts",
}


def _part(part: PartDescription) -> str:
    windows = ", ".join(f"{count} of {view}" for view, count in part.windows_afforded.items())
    reach = f"it lasts {part.lasts}. If a view were alone, it would pay for {windows}" if windows else "no view uses it"
    return (
        f"Part {part.name}, {_USES[part.name]}: epsilon {part.epsilon.decimal} and delta {part.delta.decimal}, which "
        f"is {part.unit} {part.cap.decimal}. Planned releases use {part.asked.decimal}: {reach}."
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
    verdict = "the budget lasts the whole period" if ledger.affords_schedule else f"the budget lasts {ledger.lasts}"
    lines = [
        f"Each of {ledger.population} is guaranteed a total of {price_words(budget)} per {ledger.period}, over all "
        "views and audiences. Releases beyond that are refused.",
        "A changed budget or period is in effect from the next period on. A running period keeps its budget.",
        f"Spending is recorded under the words {ledger.population!r}. Renaming the ledger or its views changes "
        "nothing.",
        f"Over a period the odds that one user took part change by a factor of at most {ledger.odds} (except for "
        "delta).",
        *map(_part, ledger.parts),
        f"Planned releases, with what is unlocked later, use {price_words(ledger.asked)}: {verdict}.",
    ]
    words = [Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines]
    return Group(Text.assemble("\nledger ", (ledger.name, "bold")), *words, Padding(table, (0, 0, 0, 2), expand=False))


def sample_page(sample: SourceSurvey) -> RenderableType:
    """The sample of one source: what its views make of it, who placed the users, and the clocks."""
    title = Text.assemble("\nsample of source ", (sample.source, "bold"), f" (topic {sample.topic})")
    if not sample.records:
        return Group(title, Padding(Text("The topic has no record to sample."), (0, 0, 0, 2), expand=False))
    lines = [
        f"The newest {sample.records:,} records, {sample.watermarks:,} of them watermarks"
        f"{' (stopped after 10 s)' if sample.cut_short else ''}.",
        *(f"{words[0].upper()}{words[1:]}." for words in sample.clocks),
    ]
    if sample.users and sample.users_placed_by:
        placed = ", ".join(f"{users:,} are where {name} puts them" for name, users in sample.users_placed_by.items())
        lines.append(f"Of {sample.users:,} users {placed}.")
    words = [Padding(Text(line), (0, 0, 0, 2), expand=False) for line in lines]
    return Group(title, *words, Padding(_sample_table(sample), (0, 0, 0, 2), expand=False))


def _sample_table(sample: SourceSurvey) -> Table:
    events = sample.records - sample.watermarks
    table = Table(box=None, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for heading in ("view", "records", "share", "outcome"):
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
