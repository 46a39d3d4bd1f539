"""`stream-dp apply FILE`: make what a file says hold, from a window on, while the workers run."""

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
        help="From the first window on that begins at TIME or later and cuts no other. [default: one that begins 11 s "
        "from now or later; by the view's clock, where watermarks move that]",
    )
    @click.option("--backfill", is_flag=True, help="Release and charge windows of new views that are over already.")
    @click.option("--dry-run", is_flag=True, help="Show what would change, or why it cannot, and change nothing.")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @click.option(
        "--expect",
        metavar="N",
        type=click.IntRange(1),
        help="Refuse unless settings N are in effect: those that you have decided on.",
    )
    @click.option("--note", default="", metavar="TEXT", help="Why: `stream-dp settings` shows it.")
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
            raise click.UsageError("--json asks nothing: give --yes or --dry-run, too")
        command(wish=Wish(from_ms, backfill, note, expect), manner=Manner(yes, dry_run, as_json), **arguments)

    return with_wish


@contextmanager
def faults_told(manner: Manner) -> Iterator[None]:
    """Tell machines, too, why settings cannot be changed."""
    try:
        yield
    except ConfigError as error:
        if manner.as_json:
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            click.echo(json.dumps({"faults": faults}, indent=2, ensure_ascii=False))
        raise


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--take-back", is_flag=True, help="With --yes: also where FILE takes back what was changed since it was written."
)
@options
def apply(file: Path, wish: Wish, manner: Manner, *, take_back: bool) -> None:
    """Make what FILE says hold, for windows to come, while the workers run.

    FILE is what you want; what holds stands in the control topic of the application. This compares their sources,
    ledgers, ladders, audiences and views, and shows what differs, from which window on that would hold, what a day of
    each view costs and how large its noise is, before and after, and how long the ledgers last. Where you agree it is
    written down under the next number, and every worker goes by it from the same windows on. Windows that begin before
    keep what they count and their noise; who sees what of them follows the new settings at once, and it is shown for
    which editions. What was spent goes on, and so do revisions.

    What cannot be is said, all of it at once, and nothing is changed: a fault in the file; a source that the workers do
    not read, or other words for a population, while workers run; a time that is past; windows that would be cut; a new
    view whose first windows are over, without --backfill; a list of keys that has changed in a file of the same name;
    new topics to which the workers' account has no rights, as far as the cluster shows that.

    The rest of FILE is each machine's own, and holds there from a restart on: broker, data_dir, key_file, erase_within,
    window_memory, block_cache, release, topics. To go back, apply an older file: `stream-dp settings FILE --show N`
    prints it. Where FILE takes back what others have tuned since, this says so; with --yes it is refused, unless you
    add --take-back.

    \b
    stream-dp apply app.yaml --dry-run              what would change, or why it cannot
    stream-dp apply app.yaml                        the same, and the question
    stream-dp apply app.yaml --from 2026-03-01 --yes --note "k as agreed"

    Exit codes: 0 it holds, or nothing differs; 1 not agreed to, somebody was faster, or no broker is there; 2 it
    cannot be; 3 it is posted, and after a minute not every worker uses it, or all workers have ended.
    """
    with faults_told(manner):
        plan = load_plan(file)
        code, _ = run(plan, lambda client: change(plan, lambda _: plan, client, wish, manner, take_back=take_back))
    sys.exit(code)


async def change(
    local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish, manner: Manner, *, take_back: bool = True
) -> tuple[int, Plan]:
    """Change the settings of an application: show it, ask, post it, and wait for the workers.

    Args:
        local: of a file of it.
        wanted: what is to hold, by what does.
        client: of its broker.
        wish: from when on, and why.
        manner: how.
        take_back: what changed since its file was written may be taken back without a question.

    Returns:
        The exit code, and what was to hold.
    """
    drafted = await draft(local, wanted, client, wish)
    if drafted.taken_back and manner.yes and not (take_back or manner.dry_run):
        raise ConfigError(
            [
                Fault("--take-back", f"{words}. If that is meant, add --take-back; if not, write it into FILE")
                for words in drafted.taken_back
            ]
        )
    console = Console(highlight=False, markup=False, quiet=manner.as_json, soft_wrap=True)
    if not take_back:
        for words in drafted.taken_back:
            console.print(f"warning: {words}")
    number = drafted.posted.number
    if drafted.is_empty:
        console.print(f"Nothing differs: settings {number - 1} of {local.id} hold, and say the same.")
    else:
        console.print(page(drafted.proposal, local.id, number - 1, drafted.new_topics))
        if drafted.rights == "not visible":
            console.print(
                "The cluster does not show this account the rights of others (that needs Describe on the cluster). The "
                "workers need rights to new topics: before you go on, an administrator gives them with `stream-dp acl "
                "FILE --worker PRINCIPAL --apply`."
            )
    if drafted.is_empty or manner.dry_run:
        console.print("Nothing was changed." if manner.dry_run and not drafted.is_empty else "", end="")
        if manner.as_json:
            click.echo(json.dumps(drafted.as_json(), indent=2, ensure_ascii=False))
        return 0, drafted.after
    if not manner.yes:
        click.confirm("Shall that hold?", abort=True)
        shown, drafted = drafted, await redraft(drafted, client)
        for words in waits(shown.proposal, drafted.proposal):
            console.print(words)
    await post_change(drafted)
    console.print(f"Settings {number} of {local.id} hold.")
    adoption = await _followed(drafted, client, console)
    console.print(adopted(adoption))
    if manner.as_json:
        said = {**drafted.as_json(), "settings": number, "posted": True, "workers": adoption.as_json()}
        click.echo(json.dumps(said, indent=2, ensure_ascii=False))
    return 0 if adoption.by_all else UNHEARD, drafted.after


async def _followed(posted: Change, client: Client, console: Console) -> Adoption:
    """Show how workers take settings up, until all have, or for a minute."""
    before: Adoption | None = None
    async for found in adoptions(posted, client):
        if not found.by_all and before is None:
            console.print("Waiting for the workers to say so, up to a minute ...")
        elif not found.by_all and before is not None and found.used_by != before.used_by:
            count = len(found.used_by)
            console.print(f"{count} of {count + len(found.others) + found.silent} workers go by them ...")
        before = found
    assert before is not None  # noqa: S101 - there is at least one
    return before


def adopted(found: Adoption) -> str:
    """Which workers use settings that were posted, in a sentence."""
    if not (found.used_by or found.others or found.silent):
        if found.ran:
            return "No worker runs any more: those that ran have ended, and none has taken them up. See their logs."
        return "No worker runs now; those that start go by them."
    count = len(found.used_by)
    if found.by_all:
        return "The worker goes by them." if count == 1 else f"All {count} workers go by them."
    missing = [*found.others, *([f"{found.silent} that have said nothing yet"] if found.silent else [])]
    refused = "".join(f" {name} cannot take them up: {why}." for name, why in found.refusals.items())
    return (
        f"Of {count + len(found.others) + found.silent} workers {count} have said that they go by them, and not: "
        f"{', '.join(missing)}. They learn of them before they close another window; `stream-dp status` shows it."
        f"{refused}"
    )


def page(proposal: Proposal, application: str, number: int, made: Sequence[str] = ()) -> str:
    """What would change, for somebody who is asked whether it shall.

    Args:
        proposal: the change.
        application: its id.
        number: of the settings that hold.
        made: topics that are made for it.
    """
    lines = [f"Settings {number} of {application} hold. Settings {number + 1} would differ:"]
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
            "Windows that begin before keep what they count and their noise. Who sees what of them follows the new "
            "settings as soon as the workers have them."
        )
    if proposal.former:
        lines.append("For windows of former editions this changes what is published from then on:")
        lines += [_former(one) for one in proposal.former]
    if made:
        lines.append(f"New topics: {', '.join(made)}. On a secured cluster their readers need rights to them.")
    return "\n".join([*lines, *(f"warning: {words}" for words in proposal.warnings)])


def waits(shown: Proposal, now: Proposal) -> Iterator[str]:
    """What is later than it was shown, since time went on."""
    before = {view.view: view.at_ms for view in shown.views}
    for view in now.views:
        if view.at_ms != before[view.view]:
            yield f"Meanwhile time went on: view {view.view} changes at {moment(view.at_ms)}."


def _view(view: ViewChange) -> Iterator[str]:
    at = moment(view.at_ms)
    if view.change == "removed":
        yield f"view {view.view} ends at {at}; what was published of it stays until its retention is over"
        yield f"  a day of it has cost {_cost(view.day_before)}"
        return
    new = "is new, " if view.change == "new" else ""
    yield f"view {view.view} {new}from the window of {at} on"
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
    yield f"  noise of a count, 95 %: {', '.join(noise) or 'as before'}"
    if view.change == "changed":
        yield "  " + (
            "it is the same question, so it goes on with what is stored"
            if view.goes_on
            else "it is another question, so its counts and its noise begin anew; the ledger and the revisions go on"
        )


def _former(one: FormerEdition) -> str:
    until = "" if one.until_ms is None else f" before {moment(one.until_ms)}"
    changes = "; ".join(f"{each.what} {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in one.changes)
    return f"  view {one.view}, edition {one.edition}, windows from {moment(one.from_ms)} on{until}: {changes}"


def _interval(interval: int | None) -> str:
    return "none" if interval is None else f"±{interval}"


def _ledger(ledger: LedgerChange, shown: set[str]) -> Iterator[str]:
    yield f"ledger {ledger.ledger}"
    yield from (f"  {setting}" for setting in ledger.settings if setting.path not in shown)
    if ledger.lasts_after is None or ledger.day_after is None:
        yield "  it is gone; what was spent stays under the words for its population"
        return
    yield f"  a day of all its views costs {_costs(ledger.day_before, ledger.day_after)} at worst"
    yield f"  it lasts {_lasts(ledger.lasts_after, ledger.lasts_before)}"
    if ledger.settings and ledger.lasts_after.until_ms is not None:
        yield "  a period that runs keeps the budget that it began with; the next one has the new"


def _lasts(after: Lasting, before: Lasting | None) -> str:
    """How long, and what it was: "19d instead of 29d, to 2026-02-08"."""
    if after.until_ms is None:
        words = "the whole of a period" if after.is_whole else f"{_duration(after.for_ms)} of a period"
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
