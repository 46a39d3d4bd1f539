"""`stream-dp apply FILE`: put the settings of a file into effect, from a window on, while the workers run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import click
from rich.console import Console

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import MOMENT, run
from stream_dp.config.plan import Plan
from stream_dp.config.planning import load_plan
from stream_dp.control.proposals import DAY_MS, FormerEdition, Lasting, LedgerChange, Proposal, ViewChange
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_up
from stream_dp.operations.apply import Adoption, Change, Wish, adoptions, draft, post_change, redraft
from stream_dp.operations.numbers import moment
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import format_duration

UNHEARD = 3
MOST_LEDGERS = 3
"""In the summary, which has five lines."""
DIGITS = 4
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Manner:
    """How a command changes settings.

    Attributes:
        yes: nothing is asked.
        dry_run: nothing is posted.
        as_json: one JSON object instead of words.
    """

    yes: bool
    dry_run: bool
    as_json: bool


def options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that changes settings; it gets them as `wish` and `manner`."""

    @click.option(
        "--from",
        "from_ms",
        type=MOMENT,
        help="From the first window on that begins at TIME or later and cuts no other. [default: 11 s from now, by the "
        "view's clock]",
    )
    @click.option("--backfill", is_flag=True, help="Release and charge windows of new views that are already over.")
    @click.option("--dry-run", is_flag=True, help="Show what would change, or why it cannot; change nothing.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option(
        "--expect",
        metavar="N",
        type=click.IntRange(1),
        help="Refuse unless settings N are in effect.",
    )
    @click.option("--note", default="", metavar="TEXT", help="Why. `stream-dp settings` shows it.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --yes or --dry-run.")
    @wraps(command)
    def with_wish(
        from_ms: int | None,
        backfill: bool,
        dry_run: bool,
        yes: bool,
        expect: int | None,
        note: str,
        as_json: bool,
        **arguments: object,
    ) -> None:
        if as_json and not (yes or dry_run):
            raise click.UsageError("--json cannot ask. Add --yes or --dry-run.")
        command(wish=Wish(from_ms, backfill, note, expect), manner=Manner(yes, dry_run, as_json), **arguments)

    return with_wish


@contextmanager
def faults_printed(manner: Manner) -> Iterator[None]:
    """Print for machines, too, why settings cannot be changed."""
    try:
        yield
    except ConfigError as error:
        if manner.as_json:
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            click.echo(json.dumps({"faults": faults}, indent=2, ensure_ascii=False))
        raise


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--take-back", is_flag=True, help="With --yes: also revert what was changed since FILE was written.")
@options
def apply(file: Path, wish: Wish, manner: Manner, *, take_back: bool) -> None:
    """Put the settings of FILE into effect for windows to come, while the workers run.

    This compares FILE with the settings in effect, in the control topic: sources, ledgers, ladders, audiences, views.
    It shows what changes, from which window on, what a day costs and how large the noise is before and after, and how
    long the budgets last, and asks. Then it posts FILE as the next settings, and every worker uses them from the same
    windows on. Earlier windows keep their counts and noise; who sees them follows the new settings at once. Spending
    and revisions continue.

    What cannot be applied is refused with every reason, and nothing changes: a fault in the file; while workers run, a
    source that they do not read, or other words for a population; a time in the past; windows that would be cut; a new
    view whose first windows are over, without --backfill; a changed list of keys in a file of the same name; new topics
    to which the workers' account lacks rights, as far as the cluster shows that.

    The rest of FILE belongs to each machine and is in effect there after a restart: broker, data_dir, key_file,
    erase_within, window_memory, block_cache, release, topics. To go back, apply an older file: `stream-dp settings FILE
    --show N` prints it. If FILE reverts what others have tuned since, this says so; with --yes it is refused unless you
    add --take-back.

    \b
    stream-dp apply app.yaml --dry-run              what would change, or why it cannot
    stream-dp apply app.yaml                        the same, then ask
    stream-dp apply app.yaml --from 2026-03-01 --yes --note "k as agreed"

    Exit codes: 0 done, or no changes; 1 you said no, other settings were posted first, or the broker does not answer;
    2 it cannot be applied; 3 it is posted, and after a minute not every worker uses it, or all workers have ended.
    """
    with faults_printed(manner):
        plan = load_plan(file)
        code, _ = run(plan, lambda client: change(plan, lambda _: plan, client, wish, manner, take_back=take_back))
    sys.exit(code)


async def change(
    local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish, manner: Manner, *, take_back: bool = True
) -> tuple[int, Plan]:
    """Change the settings of an application: show it, ask, post it, and wait for the workers.

    Args:
        local: of a file of it.
        wanted: makes the wanted plan from the one in effect.
        client: of its broker.
        wish: from when on, and why.
        manner: how.
        take_back: what changed since its file was written may be reverted without a warning.

    Returns:
        The exit code, and the wanted plan.
    """
    drafted = await draft(local, wanted, client, wish)
    if drafted.withdrawn_levels and manner.yes and not (take_back or manner.dry_run):
        raise ConfigError(
            [
                Fault("--take-back", f"{words}. To revert it, add --take-back; to keep it, write it into FILE")
                for words in drafted.withdrawn_levels
            ]
        )
    console = Console(highlight=False, markup=False, quiet=manner.as_json, soft_wrap=True)
    number = drafted.posted.number
    if drafted.is_empty:
        console.print(f"No changes: settings {number - 1} of {local.id} are in effect.")
    else:
        console.print(page(drafted, () if take_back else drafted.withdrawn_levels))
    if drafted.is_empty or manner.dry_run:
        if not drafted.is_empty:
            console.print("Dry run: nothing was changed.")
        if manner.as_json:
            click.echo(json.dumps(drafted.as_json(), indent=2, ensure_ascii=False))
        return 0, drafted.after
    if not manner.yes:
        click.confirm("Apply this change?", abort=True)
        shown, drafted = drafted, await redraft(drafted, client)
        for words in waits(shown.proposal, drafted.proposal):
            console.print(words)
    await post_change(drafted)
    console.print(f"Posted: settings {number} of {local.id}.")
    adoption = await _followed(drafted, client, console)
    console.print(adopted(adoption, number))
    if manner.as_json:
        said = {**drafted.as_json(), "settings": number, "posted": True, "workers": adoption.as_json()}
        click.echo(json.dumps(said, indent=2, ensure_ascii=False))
    return 0 if adoption.by_all else UNHEARD, drafted.after


async def _followed(posted: Change, client: Client, console: Console) -> Adoption:
    """Show how many workers use the settings, until all do, or for a minute."""
    before: Adoption | None = None
    async for found in adoptions(posted, client):
        if not found.by_all and before is None:
            console.print("Waiting up to 60 s for the workers ...")
        elif not found.by_all and before is not None and found.used_by != before.used_by:
            count = len(found.used_by)
            console.print(f"{count} of {count + len(found.others) + found.silent} workers use them ...")
        before = found
    assert before is not None  # noqa: S101 - there is at least one
    return before


def adopted(found: Adoption, number: int) -> str:
    """Say which workers use settings that were posted.

    Args:
        found: who uses them.
        number: of the settings.
    """
    used = len(found.used_by)
    everybody = used + len(found.others) + found.silent
    if not everybody and found.ran:
        return f"No worker runs any more: they ended before they used settings {number}. Read their logs."
    if not everybody:
        return f"No worker runs. Workers use settings {number} when they start."
    if found.by_all:
        return f"The worker uses settings {number}." if used == 1 else f"All {used} workers use settings {number}."
    missing = [*found.others, *([f"{found.silent} without a report"] if found.silent else [])]
    refused = "".join(f" {name} cannot use them: {why}." for name, why in found.refusals.items())
    return (
        f"{used} of {everybody} workers use settings {number}. Not yet: {', '.join(missing)}. They read settings "
        f"before they close another window. Check again: `stream-dp status FILE`.{refused}"
    )


def page(change: Change, reverted: Sequence[str] = ()) -> str:
    """Show a change to somebody who is asked to agree: first its outcome, then every detail.

    Args:
        change: the change.
        reverted: what of it sets back what others changed, in sentences.
    """
    proposal, number = change.proposal, change.posted.number - 1
    warnings = [*reverted, *proposal.warnings]
    lines = [*_summary(proposal, f"{change.local.id}, settings {number} -> {number + 1}", len(warnings)), ""]
    for view in proposal.views:
        lines += _view(view)
    shown = {setting.path for view in proposal.views for setting in view.settings}
    for ledger in proposal.ledgers:
        lines += _ledger(ledger, shown)
        shown |= {setting.path for setting in ledger.settings}
    rest = [setting for setting in proposal.settings if setting.path not in shown]
    if rest:
        lines += ["in no view", *(f"  {setting}" for setting in rest)]
    if any(view.change != "new" for view in proposal.views):
        lines.append(
            "Windows that begin earlier keep their counts and noise. Who sees them follows the new settings as soon as "
            "the workers use these."
        )
    if proposal.former:
        lines.append("Earlier windows are published differently from then on:")
        lines += [_former(one) for one in proposal.former]
    if change.new_topics:
        lines.append(f"New topics: {', '.join(change.new_topics)}. On a secured cluster their readers need rights.")
    if change.rights == "not visible":
        lines.append(
            "This account cannot see the rights of others (it lacks Describe on the cluster). The workers need "
            "rights to the new topics. Ask an administrator first: `stream-dp acl FILE --worker PRINCIPAL --apply`."
        )
    return "\n".join([*lines, *(f"warning: {words}" for words in warnings)])


def _summary(proposal: Proposal, head: str, warnings: int) -> Iterator[str]:
    """The outcome in at most five lines."""
    views = [view.view if view.change == "changed" else f"{view.view} ({view.change})" for view in proposal.views]
    first = min((view.at_ms for view in proposal.views), default=None)
    what = f"view{'' if len(views) == 1 else 's'} {', '.join(views)}" if views else "no view"
    yield f"{head}: {what} {'changes' if len(views) < 2 else 'change'}" + (
        "" if first is None else f", from {moment(first)} on"
    )
    for ledger in proposal.ledgers[: MOST_LEDGERS if warnings else MOST_LEDGERS + 1]:
        if ledger.day_after is not None and ledger.lasts_after is not None:
            yield (
                f"  ledger {ledger.ledger}: a day costs {_costs(ledger.day_before, ledger.day_after)}; lasts "
                f"{_lasts(ledger.lasts_after, ledger.lasts_before)}"
            )
    if warnings:
        yield f"  {warnings} warning{'' if warnings == 1 else 's'}, below"


def waits(shown: Proposal, now: Proposal) -> Iterator[str]:
    """Say which views change later than was shown, since time went on."""
    before = {view.view: view.at_ms for view in shown.views}
    for view in now.views:
        if view.at_ms != before[view.view]:
            yield f"Time moved on: view {view.view} now changes at {moment(view.at_ms)}."


def _view(view: ViewChange) -> Iterator[str]:
    at = moment(view.at_ms)
    if view.change == "removed":
        yield f"view {view.view} ends at {at}; what was published stays until its retention is over"
        yield f"  a day cost {_cost(view.day_before)}"
        return
    yield f"view {view.view}{' (new)' if view.change == 'new' else ''}, from the window of {at} on"
    own = f"views.{view.view}."
    yield from (f"  {str(setting).removeprefix(own)}" for setting in view.settings if setting.path + "." != own)
    yield f"  a day costs {_costs(view.day_before, view.day_after)} at worst"
    if view.change == "new":
        noise = [f"{level.level} ±{level.after}" for level in view.levels]
    else:
        noise = [
            f"{level.level} {_interval(level.before)} -> {_interval(level.after)}"
            for level in view.levels
            if level.before != level.after
        ]
    yield f"  95 % error of a count: {', '.join(noise) or 'unchanged'}"
    if view.change == "changed":
        yield "  " + (
            "open windows continue: nothing that is counted or noised changes"
            if view.goes_on
            else "counts and noise begin anew with this window; spending and revisions continue"
        )


def _former(one: FormerEdition) -> str:
    until = " on" if one.until_ms is None else f" until {moment(one.until_ms)}"
    changes = "; ".join(f"{each.what} {each.before or 'none'} -> {each.after or 'none'}" for each in one.changes)
    return f"  view {one.view}, edition {one.edition}, windows from {moment(one.from_ms)}{until}: {changes}"


def _interval(interval: int | None) -> str:
    return "none" if interval is None else f"±{interval}"


def _ledger(ledger: LedgerChange, shown: set[str]) -> Iterator[str]:
    yield f"ledger {ledger.ledger}"
    yield from (f"  {setting}" for setting in ledger.settings if setting.path not in shown)
    if ledger.lasts_after is None or ledger.day_after is None:
        yield "  removed; its spending stays recorded under the words for its population"
        return
    yield f"  a day of all views costs {_costs(ledger.day_before, ledger.day_after)} at worst"
    yield f"  it lasts {_lasts(ledger.lasts_after, ledger.lasts_before)}"
    if ledger.settings and ledger.lasts_after.until_ms is not None:
        yield "  the running period keeps its budget; the next one has the new budget"


def _lasts(after: Lasting, before: Lasting | None) -> str:
    """How long, and what it was: "19d instead of 29d, to 2026-02-08"."""
    if after.until_ms is None:
        words = "the whole period" if after.is_whole else f"{_duration(after.for_ms)} of a period"
        was = "" if before is None or before == after else f" instead of {_duration(before.for_ms)}"
        return f"{words}{was}"
    words = f"{_duration(after.for_ms)}"
    if before is not None and before != after:
        words += f" instead of {_duration(before.for_ms)}"
    end = "the end of its period, " if after.is_whole else ""
    return f"{words}, to {end}{moment(after.until_ms)}"


def _duration(duration_ms: int) -> str:
    """A time, rounded down: to days from two days on, to minutes from an hour on."""
    for at_least, unit in ((2 * DAY_MS, DAY_MS), (HOUR_MS, 60_000), (60_000, 1000)):
        if duration_ms >= at_least:
            return format_duration(duration_ms // unit * unit)
    return format_duration(duration_ms)


def _costs(before: Cost | None, after: Cost | None) -> str:
    """Entry by entry: "epsilon 0.6 -> 0.9, delta 1e-6"."""
    if before is None or after is None:
        return _cost(after)
    names = dict.fromkeys([name for cost in (before, after) for name, _ in cost.entries(at_least=1)])
    return ", ".join(
        f"{name} {_number(before, name)}" + ("" if _same(before, after, name) else f" -> {_number(after, name)}")
        for name in names
    )


def _cost(cost: Cost | None) -> str:
    entries: Sequence[tuple[str, object]] = [] if cost is None else cost.entries(at_least=1)
    return ", ".join(f"{name} {_number(cost, name)}" for name, _ in entries if cost is not None) or "nothing"


def _number(cost: Cost, name: str) -> str:
    return decimal_up(getattr(cost, name), DIGITS)


def _same(before: Cost, after: Cost, name: str) -> bool:
    return bool(getattr(before, name) == getattr(after, name))
