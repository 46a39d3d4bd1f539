"""How settings are changed, by whichever command: compared, shown, agreed to, posted, and waited for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from shlex import quote
from typing import Any

import click
from rich.console import Console

from stream_dp.cli.apply.page import dumped, page, waits
from stream_dp.cli.apply.waiting import wait_until_known
from stream_dp.cli.moments import MOMENT
from stream_dp.cli.numbers import moment
from stream_dp.cli.status import look
from stream_dp.cli.status.summary import SILENT_MS, Reports
from stream_dp.config.differences import differences
from stream_dp.config.plan import Plan
from stream_dp.control.boundaries import Situation
from stream_dp.control.editions import Posted, next_record, plan_holding, plan_of
from stream_dp.control.proposals import Proposal, former_editions, propose
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, StateError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import post, read_history
from stream_dp.runtime.kafka.rights import commands, lacking, worker_rights, workers_known
from stream_dp.runtime.kafka.topics import Topics

UNHEARD = 3
UNSEEN = "not visible"
"""The cluster does not say which rights the workers have."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How somebody wants settings to be changed.

    Attributes:
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        backfill: views that are new begin with windows that are over already.
        yes: nothing is asked.
        dry_run: nothing is posted.
        as_json: one JSON object instead of words.
        note: why, for the history.
        expect: the number of the settings that it was decided on; None: whichever are in effect.
    """

    from_ms: int | None
    backfill: bool
    yes: bool
    dry_run: bool
    as_json: bool
    note: str
    expect: int | None = None


def options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that changes settings; it gets them as `wish`."""

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
        command(wish=Wish(from_ms, backfill, yes, dry_run, as_json, note, expect), **arguments)

    return with_wish


@contextmanager
def faults_told(wish: Wish) -> Iterator[None]:
    """Tell machines, too, why settings cannot be changed."""
    try:
        yield
    except ConfigError as error:
        if wish.as_json:
            faults = [{"path": fault.path, "message": fault.message} for fault in error.faults]
            click.echo(json.dumps({"faults": faults}, indent=2, ensure_ascii=False))
        raise


async def change(
    local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish, *, take_back: bool = True
) -> tuple[int, Plan]:
    """Change the settings of an application.

    Args:
        local: of a file of it.
        wanted: what is to hold, by what does.
        client: of its broker.
        wish: how.
        take_back: what changed since its file was written may be taken back without a question.

    Returns:
        The exit code, and what was to hold.

    Raises:
        ConfigError: it cannot be; with every reason.
        BrokerError: the application was never started, or the broker does not answer.
        StateError: somebody else was faster.
    """
    known = await read_history(local, client)
    if not known:
        raise BrokerError(
            f"application {local.id} was never started at {local.broker.address}: its first worker makes what its file "
            "says hold, `stream-dp worker FILE`"
        )
    before = plan_of(known[-1], local)
    if wish.expect is not None and wish.expect != len(known):
        raise StateError(_unexpected(wish.expect, known))
    after = wanted(before)
    taken = [*_taken_back(known, after)]
    if taken and wish.yes and not (take_back or wish.dry_run):
        raise ConfigError(
            [
                Fault("--take-back", f"{words}. If that is meant, add --take-back; if not, write it into FILE")
                for words in taken
            ]
        )
    if not (wish.as_json or take_back):
        for words in taken:
            click.echo(f"warning: {words}")
    code, said = await _changed(local, known, before, after, client, wish)
    if wish.as_json:
        click.echo(json.dumps(said, indent=2, ensure_ascii=False))
    return code, after


async def _changed(
    local: Plan, known: Sequence[Posted], before: Plan, after: Plan, client: Client, wish: Wish
) -> tuple[int, Mapping[str, Any]]:
    """The exit code, and what to tell machines."""
    console = Console(highlight=False, markup=False, quiet=wish.as_json, soft_wrap=True)
    proposal, posted, holding = await proposed(local, known, before, after, client, wish)
    made = await _new_topics(before, after, client)
    rights = await _check_rights(plan_holding(known, local), holding, client) if proposal.settings else "enough"
    said = {"settings": known[-1].number, "posted": False, **dumped(proposal), "new_topics": made, "rights": rights}
    if not proposal.settings:
        console.print(f"Nothing differs: settings {known[-1].number} of {local.id} hold, and say the same.")
        return 0, said
    console.print(page(proposal, local.id, known[-1].number, made))
    if rights == UNSEEN:
        console.print(
            "The cluster does not show this account the rights of others (that needs Describe on the cluster). The "
            "workers need rights to new topics: before you go on, an administrator gives them with `stream-dp acl FILE "
            "--worker PRINCIPAL --apply`."
        )
    if wish.dry_run:
        console.print("Nothing was changed.")
        return 0, said
    if not wish.yes:
        click.confirm("Shall that hold?", abort=True)
        shown = proposal
        proposal, posted, holding = await proposed(local, known, before, after, client, wish)
        for words in waits(shown, proposal):
            console.print(words)
    reports = await look(holding, client, accounts=False)
    if not await post(local, client, posted):
        raise StateError(_overtaken(before, posted.number, await read_history(local, client)))
    console.print(f"Settings {posted.number} of {local.id} hold.")
    ran = bool(reports.running or reports.members)
    heard = await wait_until_known(posted.number, holding, client, console.print, ran=ran)
    console.print(heard.words)
    said |= {"settings": posted.number, "posted": True, **dumped(proposal), "workers": heard.as_json()}
    return 0 if heard.by_everybody else UNHEARD, said


async def proposed(
    local: Plan, known: Sequence[Posted], before: Plan, after: Plan, client: Client, wish: Wish
) -> tuple[Proposal, Posted, Plan]:
    """What a change means now, the record that makes it, and the plan that holds with it.

    Args:
        local: of a file of the application.
        known: the settings so far, from `read_history`.
        before: what holds.
        after: what is to hold.
        client: of its broker.
        wish: from when on, and why.

    Raises:
        ConfigError: it cannot be, or no plan could be made of the history with it.
    """
    holding = plan_holding(known, local)
    reports, now_ms = await look(holding, client), wall_clock_ms()
    situation = Situation(
        now_ms=now_ms,
        holding=holding,
        clocks=_clocks(reports),
        workers=bool(reports.running or reports.members),
        statements=reports.statements,
    )
    found = propose(before, after, situation, from_ms=wish.from_ms, backfill=wish.backfill)
    found.check()
    posted = next_record(known, after, found.begins, found.ends, now_ms, wish.note)
    becomes = plan_holding([*known, posted], local)
    return replace(found, former=tuple(former_editions(situation, becomes))), posted, becomes


async def _new_topics(before: Plan, after: Plan, client: Client) -> list[str]:
    """The release topics that new views and audiences need and that are not known to be there."""
    former, latter = (
        [Topics.of(plan).release(view.view, audience) for view in plan.views.values() for audience in view.audiences]
        for plan in (before, after)
    )
    needed = [topic for topic in latter if topic not in former]
    try:
        present = await client.describe(needed) if needed else {}
    except AccessError:
        return needed
    return [topic for topic in needed if topic not in present]


async def _check_rights(before: Plan, after: Plan, client: Client) -> str:
    """Make sure that the accounts of the workers have the rights that are new with a change, as far as that is known.

    Returns:
        "enough", or "not visible" where some are new and the cluster does not show who has them.

    Raises:
        ConfigError: an account of the workers lacks some.
    """
    former, latter = ({right[1:] for right in worker_rights(plan, "")} for plan in (before, after))
    if latter <= former:
        return "enough"
    try:
        entries = await client.entries()
    except AccessError:
        return UNSEEN
    if entries is None:
        return "enough"
    present = await client.describe({name for _, name, *_ in latter - former})
    needed = [
        right
        for account in workers_known(before, entries)
        for right in worker_rights(after, account)
        if right[1:] not in former and not (right.operation == "Create" and right.name in present)
    ]
    if missing := lacking(needed, entries):
        accounts = " ".join(f"--worker {quote(name)}" for name in dict.fromkeys(right.principal for right in missing))
        tool = "\n".join(commands(missing, after.broker.address))
        raise ConfigError(
            [
                Fault(
                    "broker",
                    "the workers' account lacks rights that these settings need. An administrator runs "
                    f"`stream-dp acl FILE {accounts} --apply` with a FILE of these settings, or:\n{tool}",
                )
            ]
        )
    return "enough"


def _clocks(reports: Reports) -> dict[str, int]:
    """By view, what its clock may show by now where it is ahead: what was said, and the time since then."""
    found: dict[str, int] = {}
    for one in reports.said.values():
        since_ms = min(max(0, reports.now_ms - one.reported_ms), SILENT_MS)
        for part in one.partitions.values():
            for view, status in part.views.items():
                found[view] = max(found.get(view, 0), status.clock_ms + since_ms)
    return found


def _taken_back(known: Sequence[Posted], after: Plan) -> Iterator[str]:
    """What a change sets back to what it was before some settings changed it, newest first."""
    wanted = {setting.path: setting for setting in differences(known[-1].sections, after.raw)}
    for former, latter in reversed([*pairwise(known)]):
        for made in differences(former.sections, latter.sections):
            again = wanted.pop(made.path, None)
            if again is not None and again.after == made.before:
                note = f" ({latter.note})" if latter.note else ""
                yield f"it takes back what settings {latter.number}{note} of {moment(latter.at_ms)} changed: {again}"


def _unexpected(expected: int, known: Sequence[Posted]) -> str:
    """What to say where other settings are in effect than a change was decided on."""
    newest = known[-1]
    words = f"Conflict: settings {newest.number} are in effect, not {expected}, and nothing was changed"
    if expected < newest.number:
        changed = differences(known[expected - 1].sections, newest.sections)
        words += f". Since then: {'; '.join(map(str, changed)) or 'no setting differs'}"
    return f"{words}. See what differs now, and run the command again"


def _overtaken(before: Plan, number: int, known: Sequence[Posted]) -> str:
    """What to say where somebody else has posted settings meanwhile."""
    theirs = known[number - 1]
    changed = differences(before.raw, theirs.sections)
    why = f" ({theirs.note})" if theirs.note else ""
    return (
        f"somebody else was faster, and nothing was changed by you: settings {number} of {before.id}, posted "
        f"{moment(theirs.at_ms)}{why}, hold now: {'; '.join(map(str, changed))}. See what differs now, and apply again"
    )
