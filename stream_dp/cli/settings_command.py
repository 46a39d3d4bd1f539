"""Settings of an application: `stream-dp settings` lists them, `apply` and `tune` change them while workers run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from stream_dp.accounting import Cost
from stream_dp.cli.command_line import FILE, MOMENT, command_line, print_faults, print_json, run
from stream_dp.cli.display import many, table
from stream_dp.cli.output import write_data
from stream_dp.config.differences import Setting, differences
from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.control.editions import editions
from stream_dp.control.settings_change import FormerEdition, Lasting, LedgerChange, SettingsChange, ViewChange
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_up
from stream_dp.operations import plain
from stream_dp.operations.assignments import tuned
from stream_dp.operations.settings_changes import Draft, Rollout, Wish, draft, post_change, rollout
from stream_dp.operations.settings_history import as_file, changes_made, history_json, read_settings
from stream_dp.runtime.kafka.client import Client
from stream_dp.windows.durations import DAY_MS, format_duration, moment

REFUSED = 2
UNHEARD = 3
LEDGERS, AUDIENCES = "ledgers", "audiences"
MOST_LEDGERS = 3
"""In the summary, which has five lines."""
DIGITS = 4
HOUR_MS = 3_600_000
SHOWN = 3
"""Changes of one record that the list of settings names."""


@dataclass(frozen=True, slots=True)
class Manner:
    """Manner of a command that changes settings.

    Attributes:
        yes: do not ask.
        dry_run: post nothing.
        as_json: print one JSON object instead of words.
    """

    yes: bool
    dry_run: bool
    as_json: bool


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a command that changes settings; it gets them as `wish` and `manner`."""

    @click.option(
        "--from",
        "from_ms",
        type=MOMENT,
        help="Start with the first window that begins at TIME or later and cuts no other. [default: 30 s from now, by "
        "the view's clock]",
    )
    @click.option("--backfill", is_flag=True, help="Release and charge windows of new views that are already over.")
    @click.option("--dry-run", is_flag=True, help="Show what would change, or why it cannot; change nothing.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option("--expect", metavar="N", type=click.IntRange(1), help="Refuse unless settings N are in effect.")
    @click.option("--note", default="", metavar="TEXT", help="Why. `stream-dp settings` shows it.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --yes or --dry-run.")
    @wraps(command)
    def with_wish(**given: Any) -> None:  # noqa: ANN401  the options above, and those of the command
        wish = Wish(**{one.name: given.pop(one.name) for one in fields(Wish)})
        manner = Manner(**{one.name: given.pop(one.name) for one in fields(Manner)})
        if manner.as_json and not (manner.yes or manner.dry_run):
            raise click.UsageError("--json cannot ask. Add --yes or --dry-run.")
        command(wish=wish, manner=manner, **given)

    return with_wish


@click.command()
@FILE
@click.option("--take-back", is_flag=True, help="With --yes: also revert what was changed since FILE was written.")
@options
def apply(file: Path, wish: Wish, manner: Manner, *, take_back: bool) -> None:
    """Put the settings of FILE into effect for windows to come, while the workers run.

    This compares FILE with the settings in effect, in the control topic: sources, ledgers, ladders, audiences, views.
    It shows what changes and from which window on, what a day costs and how large the noise is before and after, and
    how long the budgets last, and asks whether to apply it. Then it posts FILE as the next settings. A worker plans
    them and accepts or refuses them. All workers use accepted settings, starting with the same windows; refused
    settings change nothing. Earlier windows keep their counts and noise; their audiences follow the new settings at
    once. Spending and revisions continue.

    A change that cannot be applied is refused with all reasons, and nothing changes: a fault in the file; another
    number of partitions; a missing topic of a source or list; while workers run, a source that they do not read, or
    other words for a population; a time in the past; windows that would be cut; a new view whose first windows have
    ended, without --backfill; a changed list of keys in a file of the same name; new topics that the workers' account
    has no rights to, if the cluster shows its rights.

    The rest of FILE belongs to each machine and is in effect there after a restart: broker, data_dir, key_file,
    erase_within, window_memory, block_cache, standbys, release, topics. To go back, apply an older file: `stream-dp
    settings FILE --show N` prints it. If FILE reverts what others have tuned since, this says so; with --yes it is
    refused unless you add --take-back.

    \b
    stream-dp apply app.yaml --dry-run              what would change, or why it cannot
    stream-dp apply app.yaml                        the same, then ask
    stream-dp apply app.yaml --from 2026-03-01 --yes --note "k as agreed"

    Exit codes: 0 done, or no changes; 1 you said no, other settings were posted first, or the broker does not answer;
    2 it cannot be applied, or a worker refused it; 3 it is posted, but after a minute not every worker uses it, or all
    workers have ended.
    """
    code, _, _ = change(file, lambda _, plan: plan, wish, manner, take_back=take_back)
    sys.exit(code)


def change(
    file: Path, wanted: Callable[[Plan, Plan], Plan], wish: Wish, manner: Manner, *, take_back: bool = True
) -> tuple[int, Plan, Plan]:
    """Change the settings of an application: show the change, ask, post it, and wait for the workers.

    Args:
        file: of the application.
        wanted: makes the wanted plan from the one in effect and that of the file.
        wish: from when on, and why.
        manner: what it asks and prints.
        take_back: revert without a warning what changed since the file was written.

    Returns:
        The exit code, the plan of the file, and the wanted plan.
    """
    try:
        local = load_plan(file)
        code, after = run(
            local, lambda client: _change(local, lambda before: wanted(before, local), client, wish, manner, take_back)
        )
    except ConfigError as error:
        if manner.as_json:
            print_faults(error)
        raise
    return code, local, after


async def _change(
    local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish, manner: Manner, take_back: bool
) -> tuple[int, Plan]:
    drafted = await draft(local, wanted, client, wish)
    if drafted.reverts and manner.yes and not (take_back or manner.dry_run):
        remedy = "To revert it, add --take-back; to keep it, write it into FILE"
        raise ConfigError([Fault("--take-back", f"{words}. {remedy}") for words in drafted.reverts])
    console = Console(highlight=False, markup=False, quiet=manner.as_json, soft_wrap=True)
    number = drafted.posted.number
    is_empty = drafted.is_empty
    if is_empty:
        is_waiting = drafted.log.history.state(drafted.number) == "waiting"
        state = "wait for a worker to accept them" if is_waiting else "are in effect"
        console.print(f"No changes: settings {drafted.number} of {local.id} {state}.")
    else:
        if manner.dry_run:
            console.print("Dry run: nothing was changed. To apply this, run the command without --dry-run.\n")
        console.print(page(drafted, () if take_back else drafted.reverts))
    if is_empty or manner.dry_run:
        if manner.as_json:
            print_json(drafted.as_json())
        return 0, drafted.after
    if not manner.yes:
        click.confirm("Apply this change?", abort=True)
        shown = drafted
        expected = replace(wish, expect=drafted.number)
        drafted = await draft(local, lambda _: shown.after, client, expected)
        for words in waits(shown.proposal, drafted.proposal):
            console.print(words)
    await post_change(drafted)
    console.print(f"Posted: settings {number} of {local.id}.")
    last = await _followed(drafted, client, console)
    console.print(outcome(last, number))
    if manner.as_json:
        print_json({**drafted.as_json(), "settings": number, "posted": True, "workers": plain(last)})
    if last.state == "refused":
        return REFUSED, drafted.after
    return 0 if last.by_all else UNHEARD, drafted.after


async def _followed(drafted: Draft, client: Client, console: Console) -> Rollout:
    """Follow the rollout of a posted change, print its progress, and return the last of it."""
    number = drafted.posted.number
    seen: list[Rollout] = []
    async for found in rollout(drafted, client):
        is_over = found.by_all or found.state == "refused"
        if not is_over and not seen:
            console.print("Waiting up to 60 s for the workers ...")
        elif not is_over and found.state != seen[-1].state:
            console.print(f"A worker accepted settings {number} ...")
        elif not is_over and found.used_by != seen[-1].used_by:
            console.print(f"{len(found.used_by)} of {found.workers} workers use them ...")
        seen.append(found)
    return seen[-1]


def outcome(found: Rollout, number: int) -> str:
    """Return the outcome of a rollout in a sentence.

    Args:
        found: its end.
        number: of the settings.
    """
    used, everybody = len(found.used_by), found.workers
    if found.state == "refused":
        return f"A worker refused settings {number}, so nothing changes: {found.reason}."
    if not everybody and found.ran:
        return f"No worker runs any more: they ended before they used settings {number}. Read their logs."
    if not everybody:
        return f"No worker runs. Settings {number} wait until a worker starts and accepts them."
    if found.by_all:
        return f"The worker uses settings {number}." if used == 1 else f"All {used} workers use settings {number}."
    if found.state == "waiting":
        return f"No worker has accepted settings {number} yet. Read the logs. Check again: `stream-dp status FILE`."
    missing = [*found.others, *([f"{found.silent} without a report"] if found.silent else [])]
    return (
        f"{used} of {everybody} workers use settings {number}. Not yet: {', '.join(missing)}. They read settings "
        f"before they close another window. Check again: `stream-dp status FILE`."
    )


@click.command()
@FILE
@click.argument("view")
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
@options
def tune(file: Path, view: str, assignments: tuple[str, ...], wish: Wish, manner: Manner) -> None:
    """Change some settings of a VIEW of the application that FILE describes, for windows to come.

    This starts from the settings in effect, whatever FILE says, changes the named ones, and continues as `stream-dp
    apply` does: it shows from which window on they change and what that costs, and asks. FILE is not changed: this
    prints what to write into it. Until you do, applying FILE would revert the change.

    KEY is the place of a setting in the view, with dots: k, items_per_user, ladder, window.size, selection.epsilon.
    `audiences.NAME=LEVEL` is where an audience starts, in every view that it reads.
    `levels.LEVEL.epsilon`, or `.share`, is a level of its ladder, in every view with that ladder;
    `ladders.LADDER.LEVEL` may be a new level; `views.VIEW.KEY` is a setting of another view. VALUE is what the file
    would have: 20, 1m, "[public, staff]". An exact number needs no quotes here. An empty VALUE removes: a setting,
    whose default is in effect then, a level, or a view.

    \b
    stream-dp tune app.yaml busiest k=20 kbar=80
    stream-dp tune app.yaml busiest window.size=1h window.grace=1m --from 2026-03-01
    stream-dp tune app.yaml busiest share= --dry-run

    Exit codes: those of `stream-dp apply`.
    """
    code, plan, after = change(file, lambda before, _: tuned(before, view, assignments), wish, manner)
    missing = [] if manner.dry_run or manner.as_json else differences(plan.raw, after.raw)
    if missing:
        click.echo(f"{file} differs from the settings in effect. To keep them, write into it:")
        for setting in missing:
            click.echo(f"  {setting}")
        click.echo(f"  ({command_line('apply', file)} would revert them)")
    sys.exit(code)


@click.command()
@FILE
@click.option("--show", "number", metavar="N", type=click.IntRange(1), help="Print settings N as a file to apply.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the sections.")
def settings(file: Path, number: int | None, *, as_json: bool) -> None:
    """Show the settings in effect of the application that FILE describes, and all earlier ones.

    Every change is in the control topic under a number: 1 is the file of the first worker, the others come from
    `stream-dp apply` and `stream-dp tune`. An edition of a view is in effect from one of its windows on until the next
    edition; its number is in the view's records. Who sees what of all editions follows the newest settings.

    `--show N` prints settings N as a file, with the rest of FILE. Put it beside FILE, because paths in it are relative
    to that folder. To go back:

    \b
    stream-dp settings app.yaml
    stream-dp settings app.yaml --show 3 > former.yaml
    stream-dp apply former.yaml

    Exit codes: 0 done; 1 the application was never started, or the broker does not answer; 2 no such number.
    """
    plan = load_plan(file)
    history = run(plan, lambda client: read_settings(plan, client))
    if number is not None:
        write_data(as_file(file, history, number), nl=False)
    elif as_json:
        print_json(history_json(plan.id, history))
    else:
        console = Console(highlight=False, markup=False)
        newest = history.accepted[-1]
        note = f" ({newest.note})" if newest.note else ""
        console.print(f"Settings of {plan.id} in effect: {newest.number}, posted {moment(newest.at_ms)}{note}.")
        console.print("The second table says from which window on each view uses which settings: its editions.\n")
        rows = (
            (str(one.number), moment(one.at_ms), history.state(one.number), _first(changed), one.note)
            for one, changed in zip(history.posted, changes_made(history), strict=True)
        )
        console.print(table("settings", "posted", "state", "changes", "note", rows=rows))
        for one in history.posted:
            if reason := history.reason(one.number):
                console.print(f"Settings {one.number} are refused: {reason}")
        begun = table("view", "edition", "settings", "from window", "until")
        for held in editions(history.accepted):
            until = "" if held.until_ms is None else "never in effect" if held.never_holds else moment(held.until_ms)
            begun.add_row(held.view, str(held.edition), str(held.settings), moment(held.from_ms), until)
        console.print()
        console.print(begun)
        console.print("\nTo go back to settings N:")
        console.print(f"  {command_line('settings', file)} --show N > former.yaml", soft_wrap=True)
        console.print(f"  {command_line('apply', 'former.yaml')}")


def _first(changed: Sequence[Setting]) -> str:
    """Return the first changes of a record, and the number of the others."""
    more = [f"and {len(changed) - SHOWN} more"] if len(changed) > SHOWN else []
    return "\n".join([*map(str, changed[:SHOWN]), *more])


def page(change: Draft, reverted: Sequence[str] = ()) -> str:
    """Return a change in words: first its outcome, then every detail.

    Args:
        change: the change.
        reverted: earlier changes that it reverts, in sentences.
    """
    proposal = change.proposal
    warnings = [*reverted, *proposal.warnings]
    lines = [
        *_summary(proposal, f"{change.after.id}, settings {change.number} -> {change.posted.number}", len(warnings)),
        "",
    ]
    for view in proposal.views:
        lines += _view(view)
    shown = {one.path for view in proposal.views for one in view.settings if one.section != LEDGERS}
    for ledger in proposal.ledgers:
        lines += _ledger(ledger, shown)
        shown |= {setting.path for setting in ledger.settings}
    rest = [setting for setting in proposal.settings if setting.path not in shown]
    for heading, of_views in (("words for readers, at once; no edition begins", True), ("in no view", False)):
        if found := [f"  {setting}" for setting in rest if (setting.section == "views") == of_views]:
            lines += [heading, *found]
    if any(view.change != "new" for view in proposal.views):
        lines.append(
            "Windows that begin earlier keep their counts and noise. Who sees them follows settings "
            f"{change.posted.number} as soon as the workers use these; this command waits up to 60 s for that."
        )
    if proposal.former:
        lines.append("From that moment, earlier windows are published differently:")
        lines += [_former(one) for one in proposal.former]
    for number in change.takes_back:
        lines.append(
            f"Settings {number} are accepted, but cannot be planned here, and no worker has used them. The worker that "
            f"accepts settings {change.posted.number} takes them back."
        )
    if change.new_topics:
        lines.append(
            f"New topics: {', '.join(change.new_topics)}. On a secured cluster, give their readers rights: "
            "`stream-dp acl FILE --reader AUDIENCE=PRINCIPAL --apply` with a FILE of these settings."
        )
    if change.rights == "not visible":
        lines.append(
            "This account cannot see the rights of others (it lacks Describe on the cluster). The workers need "
            "rights to the new topics. Ask an administrator first: `stream-dp acl FILE --worker PRINCIPAL --apply`."
        )
    return "\n".join([*lines, *(f"warning: {words}" for words in warnings)])


def _summary(proposal: SettingsChange, head: str, warnings: int) -> Iterator[str]:
    """Yield the outcome in at most five lines."""
    views = [view.view if view.change == "changed" else f"{view.view} ({view.change})" for view in proposal.views]
    first = min((view.at_ms for view in proposal.views), default=None)
    what = f"{'view' if len(views) == 1 else 'views'} {', '.join(views)}" if views else "no view"
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
        yield f"  {many(warnings, 'warning')}, below"


def waits(shown: SettingsChange, now: SettingsChange) -> Iterator[str]:
    """Yield a line for each view that changes later than was shown."""
    before = {view.view: view.at_ms for view in shown.views}
    for view in now.views:
        if view.at_ms != before[view.view]:
            yield f"Time moved on: view {view.view} now changes at {moment(view.at_ms)}."


def _view(view: ViewChange) -> Iterator[str]:
    at = moment(view.at_ms)
    if view.change == "removed":
        yield f"view {view.view} ends at {at}; what was published stays until its retention is over"
        yield f"  a day cost {_costs(None, view.day_before)}"
        return
    yield f"view {view.view}{' (new)' if view.change == 'new' else ''}, from the window of {at} on"
    own = f"views.{view.view}."
    for one in view.settings:
        if one.section == AUDIENCES and view.change == "new" and one.change == "changed":
            yield f"  {one.path}: {one.after or 'none'}"
        elif one.section != LEDGERS and one.path + "." != own:
            yield f"  {str(one).removeprefix(own)}"
    yield f"  a day costs {_costs(view.day_before, view.day_after)} at worst"
    noise = [
        f"{level.level} " + ("" if view.change == "new" else f"{_interval(level.before)} -> ") + _interval(level.after)
        for level in view.levels
        if level.before != level.after
    ]
    yield f"  95 % error of a count: {', '.join(noise) or 'unchanged'}"
    if view.change == "changed":
        yield "  " + (
            "open windows continue: nothing that is counted or noised changes"
            if view.goes_on
            else "a new edition begins with this window; earlier windows keep theirs, and what is spent stays spent"
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
    if ledger.settings and ledger.lasts_before is not None:
        yield "  a running period keeps its budget; the next one has the new budget"


def _lasts(after: Lasting, before: Lasting | None) -> str:
    """Return a duration and the former one: "19d instead of 29d, to 2026-02-08"."""
    was = "" if before is None or before == after else f" instead of {_duration(before.for_ms)}"
    if after.until_ms is None:
        return ("the whole period" if after.is_whole else f"{_duration(after.for_ms)} of a period") + was
    end = "the end of its period, " if after.is_whole else ""
    return f"{_duration(after.for_ms)}{was}, to {end}{moment(after.until_ms)}"


def _duration(duration_ms: int) -> str:
    """Return a duration rounded down: to days from two days on, to minutes from an hour on."""
    for at_least, unit in ((2 * DAY_MS, DAY_MS), (HOUR_MS, 60_000), (60_000, 1000)):
        if duration_ms >= at_least:
            return format_duration(duration_ms // unit * unit)
    return format_duration(duration_ms)


def _costs(before: Cost | None, after: Cost | None) -> str:
    """Return a cost and the former one, entry by entry: "epsilon 0.6 -> 0.9, delta 1e-6"."""
    costs = [cost for cost in (before or after, after) if cost is not None]
    words = []
    for name in dict.fromkeys(name for cost in costs for name, _ in cost.entries(at_least=1)):
        amounts = dict.fromkeys(getattr(cost, name) for cost in costs)
        words.append(f"{name} {' -> '.join(decimal_up(amount, DIGITS) for amount in amounts)}")
    return ", ".join(words) or "nothing"
