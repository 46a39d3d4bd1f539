"""How settings are changed: compared with those in effect, checked, posted, and followed until the workers use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from shlex import quote
from typing import Any, Literal

from stream_dp.accounting import Cost
from stream_dp.config.differences import differences
from stream_dp.config.plan import Plan
from stream_dp.control.boundaries import Situation
from stream_dp.control.editions import Posted, next_record, plan_holding, plan_of
from stream_dp.control.proposals import Lasting, Proposal, former_editions, propose
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, StateError
from stream_dp.operations.numbers import moment
from stream_dp.operations.reports import SILENT_MS, Reports, look
from stream_dp.operations.settings import setting_json
from stream_dp.records.models import PrivacyCost
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog
from stream_dp.runtime.kafka.rights import commands, lacking, worker_rights, workers_known
from stream_dp.runtime.kafka.topics import Topics

LOOK_SECONDS = 1.0
MOST_LOOKS = 60
"""Workers report every 10 s."""

Rights = Literal["enough", "not visible"]
"""Whether the workers have the rights that are new; `not visible`: the cluster does not say so to this account."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How settings are to be changed.

    Attributes:
        from_ms: no window that begins earlier is under the new settings; None: as soon as may be.
        backfill: views that are new begin with windows that are over already.
        note: why, for the history.
        expect: the number of the settings that it was decided on; None: whichever are in effect.
    """

    from_ms: int | None = None
    backfill: bool = False
    note: str = ""
    expect: int | None = None


@dataclass(frozen=True)
class Change:
    """A change of settings that is worked out and not posted yet.

    Attributes:
        local: the plan of a file of the application.
        log: the settings, as far as they were read.
        holding: the plan in effect, with every edition of every view.
        before: the plan in effect, as that of a file.
        after: what is to be in effect, as the plan of a file.
        wish: from when on, and why.
        proposal: what changes, from when on, at what price.
        posted: the record that makes the change.
        becomes: the plan with it, with every edition of every view.
        ran: workers ran when it was worked out.
        withdrawn_levels: what it sets back to what it was before some settings changed it, in sentences.
        new_topics: release topics that it needs and that are not there.
        rights: whether the workers have the rights that it needs.
    """

    local: Plan
    log: SettingsLog
    holding: Plan
    before: Plan
    after: Plan
    wish: Wish
    proposal: Proposal
    posted: Posted
    becomes: Plan
    ran: bool
    withdrawn_levels: tuple[str, ...] = ()
    new_topics: tuple[str, ...] = ()
    rights: Rights = "enough"

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not self.proposal.settings

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        number = self.posted.number - 1
        about = {"settings": number, "posted": False}
        topics = {"new_topics": list(self.new_topics), "rights": self.rights}
        return {**about, **_proposal_json(self.proposal), **topics, "reverts": list(self.withdrawn_levels)}


async def draft(local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish) -> Change:
    """Work out a change of the settings in effect; nothing is written.

    Args:
        local: the plan of a file of the application.
        wanted: makes the plan that is to be in effect from the one that is.
        client: of its broker.
        wish: from when on, and why.

    Raises:
        ConfigError: it cannot be, with every reason.
        BrokerError: the application was never started, or the broker does not answer.
        StateError: other settings are in effect than the wish expects.
    """
    log = SettingsLog(local, client)
    await log.read()
    known = log.known
    if not known:
        raise BrokerError(
            f"application {local.id} was never started at {local.broker.address}. Start a worker first; it posts the "
            "settings of its file: `stream-dp worker FILE`"
        )
    before = plan_of(known[-1], local)
    if wish.expect is not None and wish.expect != len(known):
        raise StateError(_unexpected(wish.expect, known))
    after = wanted(before)
    holding = await asyncio.to_thread(plan_holding, known, local)
    change = await _worked_out(local, log, holding, before, after, client, wish)
    return replace(
        change,
        withdrawn_levels=tuple(_taken_back(known, after)),
        new_topics=tuple(await _new_topics(before, after, client)),
        rights="enough" if change.is_empty else await _check_rights(holding, change.becomes, client),
    )


async def redraft(change: Change, client: Client) -> Change:
    """Work out a change once more, since time went on.

    Args:
        change: as it was worked out.
        client: of the broker.

    Raises:
        ConfigError: it cannot be any more.
        BrokerError: the broker does not answer.
    """
    again = await _worked_out(
        change.local, change.log, change.holding, change.before, change.after, client, change.wish
    )
    return replace(again, withdrawn_levels=change.withdrawn_levels, new_topics=change.new_topics, rights=change.rights)


async def _worked_out(
    local: Plan, log: SettingsLog, holding: Plan, before: Plan, after: Plan, client: Client, wish: Wish
) -> Change:
    reports, now_ms = await look(holding, client), wall_clock_ms()
    ran = bool(reports.running or reports.members)
    situation = Situation(
        now_ms=now_ms, holding=holding, clocks=_clocks(reports), workers=ran, statements=reports.statements
    )
    found = propose(before, after, situation, from_ms=wish.from_ms, backfill=wish.backfill)
    found.check()
    known = log.known
    posted = next_record(known, after, found.begins, found.ends, now_ms, wish.note)
    becomes = await asyncio.to_thread(plan_holding, [*known, posted], local)
    found = replace(found, former=tuple(former_editions(situation, becomes)))
    return Change(local, log, holding, before, after, wish, found, posted, becomes, ran)


async def post_change(change: Change) -> None:
    """Post a change: it is in effect from the windows on that it names.

    Args:
        change: from `draft` or `redraft`.

    Raises:
        BrokerError: the broker does not answer.
        StateError: other settings were posted first; nothing was changed by these.
    """
    if not await change.log.post(change.posted):
        raise StateError(_overtaken(change.before, change.posted.number, change.log.known))


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


async def _check_rights(before: Plan, after: Plan, client: Client) -> Rights:
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
        return "not visible"
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
                    "the workers' account lacks rights that these settings need. Ask an administrator to run "
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
                yield f"this reverts settings {latter.number}{note} of {moment(latter.at_ms)}: {again}"


def _unexpected(expected: int, known: Sequence[Posted]) -> str:
    """Say that other settings are in effect than a change was decided on."""
    newest = known[-1]
    words = f"Conflict: settings {newest.number} are in effect, not {expected}. Nothing was changed."
    if expected < newest.number:
        changed = differences(known[expected - 1].sections, newest.sections)
        words += f" Since then: {'; '.join(map(str, changed)) or 'no setting differs'}."
    return f"{words} Check what differs now and run the command again."


def _overtaken(before: Plan, number: int, known: Sequence[Posted]) -> str:
    """Say that other settings were posted first."""
    if number > len(known):
        return "Conflict: the control topic was deleted or made again. Nothing was changed. Run the command again."
    theirs = known[number - 1]
    note = f" ({theirs.note})" if theirs.note else ""
    changed = "; ".join(map(str, differences(before.raw, theirs.sections)))
    return (
        f"Conflict: settings {number}{note} were posted first, at {moment(theirs.at_ms)}: {changed}. Nothing was "
        "changed. Check what differs now and run the command again."
    )


@dataclass(frozen=True, slots=True)
class Adoption:
    """Which workers use settings that were posted.

    Attributes:
        used_by: instances that use them, or later ones.
        others: instances that run and do not use them yet.
        silent: members of the group that have reported nothing at all.
        ran: workers ran when they were posted.
        refusals: by instance, why it cannot use them.
    """

    used_by: tuple[str, ...]
    others: tuple[str, ...]
    silent: int
    ran: bool
    refusals: Mapping[str, str]

    @property
    def by_all(self) -> bool:
        """Whether every worker that runs uses them; also where none ran."""
        return not self.others and not self.silent and bool(self.used_by or not self.ran)

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        said = {"known_by": list(self.used_by), "not_known_by": list(self.others), "silent": self.silent}
        return {**said, "refusals": dict(self.refusals)}


async def adoptions(change: Change, client: Client) -> AsyncIterator[Adoption]:
    """Follow which workers use settings that were posted, for a minute at most.

    Args:
        change: that was posted.
        client: of the broker.

    Yields:
        Who uses them, whenever that changes; the last is how it ended.
    """
    before: Adoption | None = None
    number = change.posted.number
    for looks in range(1, MOST_LOOKS + 1):
        reports = await look(change.becomes, client, accounts=False)
        used_by = tuple(one.instance for one in reports.running if one.settings >= number)
        others = tuple(one.instance for one in reports.running if one.settings < number)
        refusals = {
            one.instance: one.settings_error for one in reports.running if one.settings < number and one.settings_error
        }
        found = Adoption(used_by, others, max(0, reports.members - len(reports.running)), change.ran, refusals)
        if found != before or looks == MOST_LOOKS:
            yield found
        if found.by_all:
            return
        before = found
        await asyncio.sleep(LOOK_SECONDS)


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    """A proposal for machines."""
    return {
        "differs": [setting_json(setting) for setting in proposal.settings],
        "views": [
            {
                "view": view.view,
                "change": view.change,
                "at_ms": view.at_ms,
                "at": moment(view.at_ms),
                "differs": [setting_json(setting) for setting in view.settings],
                "state_goes_on": view.goes_on,
                "day_before": _dump(view.day_before),
                "day_after": _dump(view.day_after),
                "noise_interval_95": [
                    {"level": level.level, "before": level.before, "after": level.after} for level in view.levels
                ],
            }
            for view in proposal.views
        ],
        "ledgers": [
            {
                "ledger": ledger.ledger,
                "differs": [setting_json(setting) for setting in ledger.settings],
                "day_before": _dump(ledger.day_before),
                "day_after": _dump(ledger.day_after),
                "lasts_before": _lasting(ledger.lasts_before),
                "lasts_after": _lasting(ledger.lasts_after),
            }
            for ledger in proposal.ledgers
        ],
        "former_editions": [
            {
                "view": one.view,
                "edition": one.edition,
                "from_ms": one.from_ms,
                "from": moment(one.from_ms),
                "until_ms": one.until_ms,
                "until": None if one.until_ms is None else moment(one.until_ms),
                "changes": [{"what": each.what, "before": each.before, "after": each.after} for each in one.changes],
            }
            for one in proposal.former
        ],
        "warnings": list(proposal.warnings),
    }


def _dump(cost: Cost | None) -> dict[str, Any] | None:
    return None if cost is None else PrivacyCost.spent(cost).model_dump(mode="json", exclude_none=True)


def _lasting(lasting: Lasting | None) -> dict[str, Any] | None:
    if lasting is None:
        return None
    return {"for_ms": lasting.for_ms, "until_ms": lasting.until_ms, "whole_period": lasting.is_whole}
