"""`stream-dp check FILE`: the plan of every view in words and numbers, or every fault of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from stream_dp.cli.command_line import note_differences, print_faults, print_json, run
from stream_dp.cli.display import indented, many, price, table
from stream_dp.config.explanation import (
    LedgerDescription,
    PartDescription,
    PlanDescription,
    ViewDescription,
    price_words,
)
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_down, decimal_up
from stream_dp.operations.check import AudienceSummary, Checked, check_plan, sample
from stream_dp.operations.settings_history import read_differing
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.runtime.capacity import Computing, Rate
from stream_dp.runtime.construction import construct_file
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.sources.sampling import SAMPLE_RECORDS, StoppedBy
from stream_dp.runtime.sources.survey import SourceSurvey

FAULTY, WARNED = 2, 3
DIGITS = 4
WEAK_EPSILON = 10
"""A promise above this is called weak."""
STOPPED: Mapping[StoppedBy, str] = {
    "": "",
    "time": " (stopped after {limit})",
    "size": " (stopped at {limit})",
    "topic": " (the topic has no more)",
    "partition": " (some partitions have fewer records than others)",
    "transaction": " (an open transaction hides later records)",
}
"""Text after the first line about a sample, by the reason why it is smaller than asked for."""
NO_RECORD = "The topic has no record to sample."
NOTHING_READ: Mapping[StoppedBy, str] = {
    "time": "No records could be read within {limit}.",
    "transaction": "An open transaction hides all records of the topic.",
}
"""Text about a sample without records, by the reason."""
WORDS = {"view", "audience", "audiences", "level", "made", "keys\nseen", "budget\nlasts"}
"""Headings of columns without numbers."""


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
        construct_file(plan)
        samples = [] if sample_records is None else run(plan, lambda client: _sampled(plan, client, sample_records))
    except ConfigError as error:
        click.echo(f"{file}: {many(len(error.faults), 'fault')}", err=True)
        for fault in error.faults:
            click.echo(f"  {fault}", err=True)
        if as_json:
            print_faults(error)
        context.exit(FAULTY)
    checked = check_plan(plan, samples)
    if as_json:
        print_json(checked.as_json())
    else:
        hint = Text("\n--explain explains every view, ledger and cost.", "dim")
        details = _explained(checked.description, checked.computing, checked.rates) if explain else [hint]
        console = Console(highlight=False)
        for part in (*_summary(checked), *details, *map(sample_page, checked.samples)):
            console.print(part)
    if strict and checked.warnings:
        context.exit(WARNED)


def _summary(checked: Checked) -> Iterator[RenderableType]:
    """Yield the meaning of the plan, then the warnings."""
    plan = checked.description
    views, warnings = many(len(plan.views), "view"), many(len(checked.warnings), "warning")
    verdict = (warnings, "bold yellow") if checked.warnings else ("OK", "bold green")
    broker = f"{plan.broker} ({plan.access})" if plan.access else plan.broker
    yield Text.assemble((plan.id, "bold"), ": ", verdict, f", {views}, {plan.partitions} partitions, broker {broker}\n")
    yield _audiences(checked.audiences)
    yield from _notes(plan, checked.audiences)
    yield from (Text(words) for words in checked.better)
    yield Text("")
    for ledger in plan.ledgers:
        yield Text(_ledger_line(ledger))
    for warning in checked.warnings:
        yield Text.assemble(("\nwarning: ", "bold yellow"), warning)
    for fault in checked.missing:
        yield Text.assemble(("\nmissing on this machine: ", "bold"), f"{fault}. It is needed to connect.")
    for words in checked.on_this_machine:
        yield Text.assemble(("\non this machine: ", "bold"), words)


def _audiences(audiences: Sequence[AudienceSummary]) -> Table:
    costs = ("cost per\nwindow", "cost per\nperiod", "budget\nlasts")
    rows = _table("view", "audience", "level", "epsilon", "keys\nseen", "95 %\nerror", *costs, apart=1)
    before = ""
    for one in audiences:
        view, before = "" if one.view == before else one.view, one.view
        level = one.level + (f", later {one.later}" if one.later else "")
        cost = _cost(one.cost) + (" a pane" if one.unit == "pane" else "")
        lasts = f"all {one.period}" if one.lasts == one.period else f"{one.lasts} of {one.period}"
        noise = f"±{one.noise_interval_95}"
        rows.add_row(
            view, one.audience, level, _epsilon(one.epsilon), one.seen, noise, cost, _cost(one.period_cost), lasts
        )
    return rows


def _cost(cost: PrivacyCost) -> str:
    """Return a cost for a column: epsilon, or rho if the ledger counts that."""
    return f"{_short(cost.rho)} rho" if cost.rho else _short(cost.epsilon)


def _ledger_line(ledger: LedgerDescription) -> str:
    lasts = f"all {ledger.period}" if ledger.affords_schedule else f"{ledger.lasts} of {ledger.period}"
    return (
        f"Ledger {ledger.name} ({ledger.population}): {price_words(ledger.budget)} per user per {ledger.period}"
        f"{_parts_words(ledger)}. Planned releases use {price(ledger.asked)}. The budget lasts {lasts}."
    )


def _parts_words(ledger: LedgerDescription) -> str:
    """Return both parts of a budget with a pool: their epsilon, and what is counted in each; else nothing."""
    parts = [
        f"epsilon {part.epsilon.decimal} {_USES[part.name]} (counted as {part.unit}, at most "
        f"{decimal_down(part.cap.value, DIGITS)})"
        for part in ledger.parts
    ]
    return f", kept in two parts: {'; '.join(parts)}" if parts else ""


def _notes(plan: PlanDescription, audiences: Sequence[AudienceSummary]) -> Iterator[RenderableType]:
    """Yield notes to the costs of the table: what adds up and what does not, and the price of chosen keys."""
    if any(sum(len(level.audiences) for level in view.levels) > 1 for view in plan.views):
        yield Text("Do not add the rows of a view: its audiences together cost what the finest level costs.", "dim")
    at_once = [view.name for view in plan.views if view.levels[0].epsilon is None]
    if at_once:
        yield Text(
            f"{' and '.join(at_once)}: Gaussian noise has no epsilon by itself. A window pays for its finest level "
            "with its first release; all levels are paid for then.",
            "dim",
        )
    if any(one.later for one in audiences if one.view not in at_once):
        yield Text("The costs are those of the first level; a later level costs more.", "dim")
    for view in plan.views:
        if view.listed:
            yield Text(f"{view.name}: {view.listed}", "dim")
        if view.explanation.half:
            yield Text(f"{view.name}: {view.explanation.half}", "dim")
        if view.participation:
            yield Text(f"{view.name}: {view.participation}", "dim")
        keys = view.keys_at_worst
        if keys.epsilon.value or keys.rho:
            included = ", the rho included above" if keys.rho else "" if view.levels[0].cost.rho else ", included above"
            yield Text(f"Choosing the keys of {view.name} costs {price(keys)} a window at worst{included}.", "dim")


async def _sampled(plan: Plan, client: Client, records: int) -> list[SourceSurvey]:
    """Sample the sources by the file. If other settings are in effect, print a note on stderr."""
    found = await sample(plan, client, records)
    note_differences(*await read_differing(plan, client), "The sample is read by FILE.")
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
        f"A release leaves at least {plan.offset} after its window closes, at the next multiple of {plan.slot}. A "
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
    return Group(Text(f"\n{title}", "bold"), indented(*map(Text, lines)))


def _view(view: ViewDescription, computing: str) -> RenderableType:
    start = f"from {view.first_window} on" if view.first_window else "from the first start on"
    stays = f"kept for {view.retention}" if len(view.levels) == 1 else f"sharpened up to {view.retention} later"
    lines = [
        f"{view.explanation.shows} of {view.item_field!r} in topic {view.topic}, {view.when} {start}; "
        f"{view.clock} clock, {view.grace} grace, {stays}",
        *([view.hops] if view.hops else []),
        view.protection,
        *([view.participation] if view.participation else []),
        view.explanation.keys,
        *_affords(view),
        view.coalition,
        *view.unlocks.values(),
        *([view.sharpening] if view.sharpening else []),
        f"{computing}.",
    ]
    tables = [_levels(view), *([_modes(view)] if view.modes else [])]
    head = Text.assemble("\nview ", (view.name, "bold"), f" ({view.kind})")
    return Group(head, indented(*map(Text, lines), *tables))


def _affords(view: ViewDescription) -> Iterator[str]:
    if view.affords is not None:
        yield (
            f"The levels are shares of epsilon {_short(view.affords)}. Ledger {view.ledger} pays for that in every "
            f"{view.unit} of a period."
        )


def _modes(view: ViewDescription) -> Table:
    """Return the cost and noise of windows that overlap, by each way to make them."""
    rows = _table("made", "level", "a day\ncosts", "mean\nerror", "95 %\nwithin")
    for mode in view.modes:
        made = f"{mode.mode} (this)" if mode.configured else mode.mode
        for at, (level, cost) in enumerate(zip(view.levels, mode.day_costs, strict=True)):
            error = (mode.expected_errors[at], f"±{mode.noise_intervals_95[at]}")
            rows.add_row("" if at else made, level.name, _short(cost.rho or cost.epsilon), *error)
    return rows


def _levels(view: ViewDescription) -> Table:
    columns = view.explanation.columns
    costs = f"{view.unit}\nrho" if view.levels[0].cost.rho else f"{view.unit}\ncosts"
    errors = ("noise\nscale", "mean\nerror", "95 %\nwithin")
    rows = _table("level", "epsilon", *errors, *columns, costs, "budget\naffords", "audiences")
    for index, level in enumerate(view.levels):
        noise = (_short(level.noise_scale), level.expected_error, f"±{level.noise_interval_95}")
        seen = (cells[index] for cells in columns.values())
        afforded, audiences = str(level.windows_afforded), ", ".join(level.audiences) or "-"
        cost = _short(level.cost.rho or level.cost.epsilon)
        rows.add_row(level.name, _epsilon(level.epsilon), *noise, *seen, cost, afforded, audiences)
    return rows


_USES = {"pure": "for costs that add up", "zcdp": "for the noise of counts and the draws of selections"}


def _part(part: PartDescription) -> str:
    windows = ", ".join(f"{count} of {view}" for view, count in part.windows_afforded.items())
    reach = f"it lasts {part.lasts}. If a view were alone, it would pay for {windows}" if windows else "no view uses it"
    return (
        f"Part {part.name}, {_USES[part.name]}: epsilon {part.epsilon.decimal} and delta {_short(part.delta)}, which "
        f"is {part.unit} {decimal_down(part.cap.value, DIGITS)}. Planned releases use {_short(part.asked)}: {reach}."
    )


def _epsilon(amount: Amount | None) -> str:
    return "-" if amount is None else _short(amount)


def _short(amount: Amount) -> str:
    """Return a number for a column, rounded up."""
    return decimal_up(amount.value, DIGITS)


def _table(*headings: str, apart: int = 2) -> Table:
    return table(*headings, words=WORDS, apart=apart, no_wrap=True)


def _ledger(ledger: LedgerDescription) -> RenderableType:
    entries = ["epsilon", "delta", *(part.unit for part in ledger.parts[1:])]
    costs = [f"{entry}\na window" for entry in entries]
    rows = _table("view", "level", *costs, "share", "windows\na period", "windows\naffordable")
    for share in ledger.shares:
        prices = dict(share.cost)
        cells = ("-" if prices[entry] is None else _short(prices[entry]) for entry in entries)
        windows = (str(share.windows_asked), str(share.windows_afforded))
        rows.add_row(share.view, share.level, *cells, share.share or "rest", *windows)
    budget = ledger.budget
    verdict = "the budget lasts the whole period" if ledger.affords_schedule else f"the budget lasts {ledger.lasts}"
    weak = " This is a weak promise; a lower epsilon is a stronger one." if budget.epsilon.value > WEAK_EPSILON else ""
    plus = ", plus delta" if budget.delta.value else ""
    lines = [
        f"Each of {ledger.population} is guaranteed a total of {price_words(budget)} per {ledger.period}, over all "
        "views and audiences. Releases beyond that are refused.",
        "A changed budget or period is in effect from the next period on. A running period keeps its budget.",
        f"Spending is recorded under the words {ledger.population!r}. Do not change them: other words are another "
        "population, with an unspent budget. Renaming the ledger or its views changes nothing.",
        f"Over a period, any outcome is at most {ledger.odds} (e^{_short(budget.epsilon)}) times as likely with one "
        f"user as without{plus}.{weak}",
        *map(_part, ledger.parts),
        f"Planned releases, with what is unlocked later, use {price(ledger.asked)}: {verdict}.",
    ]
    return Group(Text.assemble("\nledger ", (ledger.name, "bold")), indented(*map(Text, lines), rows))


def sample_page(sample: SourceSurvey) -> RenderableType:
    """Return the sample of one source: its records by outcome, the partitioner, and the clocks."""
    title = Text.assemble("\nsample of source ", (sample.source, "bold"), f" (topic {sample.topic})")
    if not sample.records:
        why = NOTHING_READ.get(sample.stopped_by, NO_RECORD).format(limit=sample.limit)
        return Group(title, indented(Text(why)))
    stopped = STOPPED[sample.stopped_by].format(limit=sample.limit)
    lines = [
        f"The newest {sample.records:,} records, {sample.watermarks:,} of them watermarks{stopped}.",
        *(f"{words[0].upper()}{words[1:]}." for words in sample.clocks),
    ]
    if sample.users and sample.users_placed_by:
        placed = ", ".join(f"{users:,} are where {name} puts them" for name, users in sample.users_placed_by.items())
        lines.append(f"Of {sample.users:,} users {placed}.")
    return Group(title, indented(*map(Text, lines), _sample_table(sample)))


def _sample_table(sample: SourceSurvey) -> Table:
    events = sample.records - sample.watermarks
    found = [("(any)", records, events, f"refused: {reason}") for reason, records in sample.refused.items()]
    for view in sample.views:
        of = max(events, view.counted + sum(view.refused.values()))  # an event may have several items
        found.append((view.view, view.counted, of, "counted"))
        found += [(view.view, records, of, f"not counted: {reason}") for reason, records in view.refused.items()]
    rows = ((view, f"{part:,}", f"{100 * part / max(1, of):.3g} %", outcome) for view, part, of, outcome in found)
    return table("view", "records", "share", "outcome", rows=rows, words={"view", "outcome"}, apart=1)
