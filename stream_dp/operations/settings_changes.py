"""Changes of settings while workers run: worked out, checked against the cluster, posted and followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from shlex import quote
from typing import Any, Literal

from stream_dp.config.differences import differences
from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import SettingsHistory
from stream_dp.control.editions import Posted, encode_posted, next_record, plan_holding, plan_of
from stream_dp.control.settings_change import SettingsChange, Situation, former_editions, propose
from stream_dp.errors import AccessError, ConfigError, Fault, StateError
from stream_dp.operations import plain
from stream_dp.operations.reports import SILENT_MS, Reports, look
from stream_dp.operations.settings_history import check_started, plannable
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.construction import construct, explain_unplannable
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import SettingsLog
from stream_dp.runtime.kafka.list_topics import read_lists
from stream_dp.runtime.kafka.rights import commands, lacking, worker_rights, workers_known
from stream_dp.runtime.kafka.topic_checks import wrong_sources
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import moment

LOOK_SECONDS = 1.0
MOST_LOOKS = 60
"""Workers report every 10 s."""

Rights = Literal["enough", "not visible"]
"""Rights of the workers to new topics; `not visible`: this account may not see the rights of others."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Start and reason of a change of settings.

    Attributes:
        from_ms: no window that begins earlier has the new settings; None: as soon as possible.
        backfill: new views begin with windows that are over already.
        note: why, for the history.
        expect: the number that the settings in effect must have; None: any.
    """

    from_ms: int | None = None
    backfill: bool = False
    note: str = ""
    expect: int | None = None


@dataclass(frozen=True)
class Basis:
    """Basis that a change of settings is worked out from.

    Attributes:
        local: the plan of a file of the application.
        known: its settings, at least one (`plannable`).
        next_number: of the settings that a change posts.
        before: the plan in effect, as that of a file.
        holding: the same with every edition of every view.
        reports: of workers, group and ledgers.
    """

    local: Plan
    known: Sequence[Posted]
    next_number: int
    before: Plan
    holding: Plan
    reports: Reports

    @property
    def number(self) -> int:
        """The number of the settings that a change is made to."""
        return self.known[-1].number


@dataclass(frozen=True)
class Prepared:
    """A change of settings that is worked out; the cluster was not asked about it.

    Attributes:
        before: the plan in effect, as that of a file.
        number: number of the settings in effect.
        after: the wanted plan, as that of a file.
        proposal: what changes, from when on, at what price.
        posted: the record that makes the change.
        becomes: the plan after it, with every edition of every view.
        ran: workers ran when it was made.
        reverts: earlier changes that it reverts, in sentences.
    """

    before: Plan
    number: int
    after: Plan
    proposal: SettingsChange
    posted: Posted
    becomes: Plan
    ran: bool
    reverts: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        found = self.proposal
        return {
            "settings": self.number,
            "posted": False,
            "differs": plain(found.settings),
            **plain({name: getattr(found, name) for name in ("views", "ledgers")}),
            "former_editions": plain(found.former),
            "warnings": found.warnings,
            "reverts": self.reverts,
        }


@dataclass(frozen=True)
class Draft(Prepared):
    """A change of settings that the cluster admits, and that is not posted yet.

    Attributes:
        log: the settings that were read.
        new_topics: missing release topics that it needs.
        rights: of the workers to the new topics.
        takes_back: numbers of accepted settings that cannot be planned here and that no worker has used.
    """

    log: SettingsLog
    new_topics: tuple[str, ...]
    rights: Rights
    takes_back: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """True if nothing has to be posted."""
        return not self.proposal.settings and not self.takes_back

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        own = {"new_topics": self.new_topics, "rights": self.rights, "takes_back": self.takes_back}
        return super().as_json() | own


def prepare(basis: Basis, wanted: Callable[[Plan], Plan], now_ms: int, wish: Wish) -> Prepared:
    """Work out a change of the settings in effect.

    Args:
        basis: what is known.
        wanted: makes the wanted plan from the one in effect.
        now_ms: the wall clock.
        wish: from when on, and why.

    Raises:
        ConfigError: it is impossible, with every reason.
    """
    known, reports, after = basis.known, basis.reports, wanted(basis.before)
    ran = bool(reports.running or reports.members)
    situation = Situation(
        now_ms=now_ms, holding=basis.holding, clocks=_clocks(reports), workers=ran, statements=reports.statements
    )
    found = propose(basis.before, after, situation, from_ms=wish.from_ms, backfill=wish.backfill)
    found.check()
    posted = next_record(known, after, found.begins, found.ends, now_ms, wish.note, basis.next_number)
    encode_posted(posted)
    becomes = plan_holding([*known, posted], basis.local)
    construct(becomes)
    return Prepared(
        before=basis.before,
        number=basis.number,
        after=after,
        proposal=replace(found, former=tuple(former_editions(situation, becomes))),
        posted=posted,
        becomes=becomes,
        ran=ran,
        reverts=tuple(_reverted(known, after)),
    )


async def draft(local: Plan, wanted: Callable[[Plan], Plan], client: Client, wish: Wish) -> Draft:
    """Prepare a change of the settings in effect; nothing is written.

    Args:
        local: the plan of a file of the application.
        wanted: makes the wanted plan from the one in effect.
        client: of its broker.
        wish: from when on, and why.

    Raises:
        ConfigError: it is impossible, with every reason.
        BrokerError: the application was never started, or the broker does not answer.
        StateError: other settings are in effect than the wish expects.
    """
    log = SettingsLog(local, client)
    await log.read()
    history = check_started(log.history, local)
    known = await asyncio.to_thread(plannable, history, local)
    if wish.expect is not None and wish.expect != known[-1].number:
        raise StateError(_unexpected(wish.expect, known))
    try:
        before = plan_of(known[-1], local)
        holding = await asyncio.to_thread(plan_holding, known, local)
    except ConfigError as error:
        raise explain_unplannable(known[-1].number, history.used, error) from None
    after = wanted(before)
    taken = {one.number for one in history.accepted} - {one.number for one in known}
    basis = Basis(local, known, history.next_number, before, holding, await look(holding, client))
    found = await asyncio.to_thread(prepare, basis, lambda _: after, wall_clock_ms(), wish)
    await _check_topics(found.becomes, client)
    return Draft(
        **vars(found),
        log=log,
        new_topics=tuple(await _new_topics(before, after, client)),
        rights=await _check_rights(holding, found.becomes, client) if found.proposal.settings else "enough",
        takes_back=tuple(sorted(taken)),
    )


async def post_change(change: Draft) -> None:
    """Post a change. Once a worker accepts it, it is in effect from the windows that it names.

    Args:
        change: from `draft`.

    Raises:
        BrokerError: the broker does not answer.
        StateError: other settings were posted first; nothing was changed.
    """
    if not await change.log.post(change.posted):
        raise StateError(_overtaken(change.before, change.posted.number, change.log.history))


async def _check_topics(plan: Plan, client: Client) -> None:
    """Check the topics of sources and public lists that this account may see.

    Raises:
        ConfigError: a topic is missing, has another number of partitions, or holds no usable list.
    """
    faults: list[Fault] = []
    with suppress(AccessError):
        faults += await wrong_sources(plan, client)
    with suppress(AccessError):
        faults += (await read_lists(plan, client))[1]
    if faults:
        raise ConfigError(faults)


async def _new_topics(before: Plan, after: Plan, client: Client) -> list[str]:
    """Return the release topics of new views and audiences that are not known to exist."""
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
    """Check that the accounts of the workers have the rights that a change needs.

    Raises:
        ConfigError: an account of the workers lacks rights.
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
            "the workers' account lacks rights that these settings need. Ask an administrator to run "
            f"`stream-dp acl FILE {accounts} --apply` with a FILE of these settings, or:\n{tool}",
            "broker",
        )
    return "enough"


def _clocks(reports: Reports) -> dict[str, int]:
    """Return the clock of each view in its most advanced partition: as reported, plus the time since then."""
    found: dict[str, int] = {}
    for one in reports.said.values():
        since_ms = min(max(0, reports.now_ms - one.reported_ms), SILENT_MS)
        for part in one.partitions.values():
            for view, status in part.views.items():
                found[view] = max(found.get(view, 0), status.clock_ms + since_ms)
    return found


def _reverted(known: Sequence[Posted], after: Plan) -> Iterator[str]:
    """Yield the earlier changes that a change reverts, newest first."""
    wanted = {setting.path: setting for setting in differences(known[-1].sections, after.raw)}
    for former, latter in reversed([*pairwise(known)]):
        for made in differences(former.sections, latter.sections):
            again = wanted.pop(made.path, None)
            if again is not None and again.after == made.before:
                note = f" ({latter.note})" if latter.note else ""
                yield f"this reverts settings {latter.number}{note} of {moment(latter.at_ms)}: {again}"


def _unexpected(expected: int, known: Sequence[Posted]) -> str:
    """Return the message for other settings than expected."""
    newest = known[-1]
    words = f"Conflict: settings {newest.number} are in effect, not {expected}. Nothing was changed."
    former = next((one for one in known if one.number == expected), None)
    if former is not None:
        changed = differences(former.sections, newest.sections)
        words += f" Since then: {'; '.join(map(str, changed)) or 'no setting differs'}."
    return f"{words} Check what differs now and run the command again."


def _overtaken(before: Plan, number: int, history: SettingsHistory) -> str:
    """Return the message for other settings that were posted first."""
    if number > len(history.posted):
        return "Conflict: the control topic was deleted or made again. Nothing was changed. Run the command again."
    theirs = history.posted[number - 1]
    note = f" ({theirs.note})" if theirs.note else ""
    changed = "; ".join(map(str, differences(before.raw, theirs.sections)))
    return (
        f"Conflict: settings {number}{note} were posted first, at {moment(theirs.at_ms)}: {changed}. Nothing was "
        "changed. Check what differs now and run the command again."
    )


@dataclass(frozen=True, slots=True)
class Rollout:
    """Progress of posted settings: the verdict on them, and the workers that use them.

    Attributes:
        state: `accepted`, `refused` or `waiting`.
        reason: why they are refused; empty if they are not.
        used_by: instances that use them, or later ones.
        others: running instances that do not use them yet.
        silent: number of group members without a report.
        ran: workers ran when they were posted.
    """

    state: str
    reason: str
    used_by: tuple[str, ...]
    others: tuple[str, ...]
    silent: int
    ran: bool

    @property
    def workers(self) -> int:
        """Number of workers that run."""
        return len(self.used_by) + len(self.others) + self.silent

    @property
    def by_all(self) -> bool:
        """True if every running worker uses them, or none ran."""
        if self.state == "refused":
            return False
        return not self.others and not self.silent and bool(self.used_by or not self.ran)


async def rollout(change: Draft, client: Client) -> AsyncIterator[Rollout]:
    """Follow the rollout of a posted change until it ends or is refused, for at most a minute.

    Args:
        change: the change.
        client: of the broker.

    Yields:
        The progress, whenever it changes; the last is the outcome.
    """
    before: Rollout | None = None
    number = change.posted.number
    for looks in range(1, MOST_LOOKS + 1):
        await change.log.read()
        history = change.log.history
        reports = await look(change.becomes, client, accounts=False)
        found = Rollout(
            state=history.state(number),
            reason=history.reason(number),
            used_by=tuple(one.instance for one in reports.running if one.settings >= number),
            others=tuple(one.instance for one in reports.running if one.settings < number),
            silent=max(0, reports.members - len(reports.running)),
            ran=change.ran,
        )
        if found != before or looks == MOST_LOOKS:
            yield found
        if found.by_all or found.state == "refused":
            return
        before = found
        await asyncio.sleep(LOOK_SECONDS)
