"""Verdicts on posted settings.

Posted settings are not in effect yet. One worker, the owner of the control partition, plans them and writes its verdict
to the control topic: `accepted`, or `refused` with the reason. If no other worker runs, a worker that starts does this.
Two workers may each give one: which verdict counts follows from the log (`stream_dp.control.acceptance`). Workers use
only accepted settings. Refused settings never take effect, and the next settings get the next number.

Accepted settings that workers cannot use are replaced by posting others. If no worker has stated that it uses the
unusable ones, the judge of the next posting first takes their acceptance back. If a worker has, they stay, and only a
worker that can plan them can judge the next posting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import SettingsHistory, Verdict
from stream_dp.control.editions import Posted
from stream_dp.control.settings_change import fixed_faults, restart_faults
from stream_dp.errors import AccessError, ConfigError, Fault
from stream_dp.runtime.construction import describe_faults, explain_unplannable, plan_accepted, plan_settings
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.list_topics import read_lists
from stream_dp.runtime.kafka.ownership import check_claimable
from stream_dp.runtime.kafka.topic_checks import wrong_sources
from stream_dp.runtime.strict_noise import find_late_views

LEAST_LEAD_MS = 10_000
"""Shortest time from acceptance to the first changed window of a view with `clock: wall`, so that every worker knows
the settings before that window begins."""
MAX_REASON_CHARS = 10_000
"""Longest reason in a verdict. Thousands of faults would not fit in one record, and settings without a verdict hold up
all later ones."""


async def judge(
    history: SettingsHistory,
    local: Plan,
    client: Client,
    now_ms: int,
    key_id: str | None = None,
    counted: Plan | None = None,
) -> Verdict:
    """Plan the oldest settings that have no verdict, and return the verdict on them.

    They are planned as successors of all accepted settings, no matter which of these the workers already use. If the
    newest accepted settings cannot be used here and no worker has used them, the verdict takes these back instead.

    Args:
        history: history of the settings; some have no verdict.
        local: the plan of a file of the application.
        client: a client of the broker, which has the public lists.
        now_ms: the clock of the worker.
        key_id: what the application is known by, `KeyRing.application`; None: it has no key yet.
        counted: the plan that this worker counts by; None: no worker runs, so no window has closed since.

    Raises:
        AccessError: this account may not read a public list. This is a reason to refuse the settings only if others
            were posted after them.
        ConfigError: settings that workers have used cannot be planned here, so this worker can judge no others.
        BrokerError: the broker refuses something.
    """
    posted = history.waiting[0]
    known = history.accepted
    before = counted
    if known and (counted is None or counted.settings != known[-1].number):
        try:
            before = await _plan_usable(history, local, client, key_id)
        except (AccessError, ConfigError) as error:
            return await take_back(history, local, error, now_ms)
    latest_ms = None if counted is None or before is None else _latest_ms(posted, before)
    reason = ""
    try:
        plan = await asyncio.to_thread(plan_settings, [*known, posted], local)
        added = added_definitions(plan, before)
        lists, faults = await read_lists(added, client)
        faults = faults or await asyncio.to_thread(find_late_views, added, lists)
        if before is not None:
            faults += fixed_faults(before, plan)
        if counted is not None and before is not None:
            faults += _change_faults(before, plan, latest_ms, now_ms)
        if faults:
            raise ConfigError(faults)
        if key_id is not None:
            await check_claimable(plan, client, key_id)
    except ConfigError as error:
        reason = _cut(describe_faults(error))
        latest_ms = None
    except AccessError as error:
        # They wait until the right is granted. But then nothing else could replace them.
        if len(history.waiting) == 1:
            raise
        reason = _cut(f"others were posted before they could be looked at: {error}")
        latest_ms = None
    return Verdict(posted.number, now_ms, reason, latest_ms, history.decisions)


async def _plan_usable(history: SettingsHistory, local: Plan, client: Client, key_id: str | None) -> Plan:
    """Return the plan of the accepted settings. If no worker has used them, check the topics that they need, too.

    Raises:
        AccessError: this account may not see a source or read a public list.
        ConfigError: they cannot be used here.
    """
    plan = await asyncio.to_thread(plan_settings, history.accepted, local)
    if history.accepted[-1].number > history.used:
        used = await asyncio.to_thread(plan_settings, history.in_use, local) if history.in_use else None
        _, faults = await read_lists(added_definitions(plan, used), client)
        faults += await wrong_sources(plan, client)
        if faults:
            raise ConfigError(faults)
        if key_id is not None:
            await check_claimable(plan, client, key_id)
    return plan


def added_definitions(plan: Plan, before: Plan | None) -> Plan:
    """Return a plan without the view definitions whose lists an earlier plan already has.

    The lists of these were checked when their settings were accepted. Later settings cannot make them usable.
    """
    if before is None:
        return plan
    had = {name: view.kind.topics for name, view in before.views.items()}
    return replace(plan, views={name: one for name, one in plan.views.items() if had.get(name) != one.kind.topics})


async def take_back(history: SettingsHistory, local: Plan, error: AccessError | ConfigError, now_ms: int) -> Verdict:
    """Return the verdict that takes the newest accepted settings back.

    Args:
        history: history of the settings.
        local: the plan of a file of the application.
        error: the reason why this worker cannot use them.
        now_ms: the clock of the worker.

    Raises:
        ConfigError: workers have used them, or use earlier ones that cannot be planned here.
    """
    number = history.accepted[-1].number
    reason = describe_faults(error) if isinstance(error, ConfigError) else str(error)
    if number <= history.used:
        raise explain_unplannable(number, history.used, ConfigError(reason))
    if history.in_use:
        await asyncio.to_thread(plan_accepted, history.in_use, history.used, local)
    words = _cut(f"they were taken back before any worker used them: {reason}")
    return Verdict(number, now_ms, words, seen=history.decisions, takes_back=True)


def _cut(reason: str) -> str:
    """Return a reason that fits in a record."""
    return reason if len(reason) <= MAX_REASON_CHARS else f"{reason[: MAX_REASON_CHARS - 3]}..."


def _change_faults(before: Plan, plan: Plan, latest_ms: int | None, now_ms: int) -> Iterator[Fault]:
    """Yield the reasons why running workers cannot change to other settings."""
    yield from restart_faults(before, plan)
    if latest_ms is not None and now_ms > latest_ms:
        yield Fault(
            "",
            f"a view would change in less than {LEAST_LEAD_MS // 1000} s; apply them again, so that it changes later",
        )


def _latest_ms(posted: Posted, before: Plan) -> int | None:
    """Return the latest time at which settings can be accepted; None if there is no such limit."""
    wall_clock_views = {view.view for view in before.newest.values() if view.window.clock == "wall"}
    changes = [*posted.begins.items(), *posted.ends.items()]
    return min((at_ms - LEAST_LEAD_MS for view, at_ms in changes if view in wall_clock_views), default=None)
