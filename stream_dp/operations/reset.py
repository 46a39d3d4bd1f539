"""Delete an application: its topics, the committed offsets of its groups, and last its claims.

A reset that is cut short leaves claims on topics that are gone, so no worker starts, and the next reset goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stream_dp.config.plan import Plan
from stream_dp.errors import StateError
from stream_dp.operations import named
from stream_dp.operations.budgets import read_entries
from stream_dp.records.statement import LedgerStatement, read_statements
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.faust.membership import EMPTY
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.ownership import Owner, claimed, disclaim, give_up
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.runtime.kafka.transactions import claims_group


class Holdings(NamedTuple):
    """The topics of an application."""

    own: list[str]
    """Topics that exist as it claimed them, also those of removed views."""
    others: list[str]
    """Topics with a claimed name that were made after the claimed topic was deleted."""
    gone: list[str]
    """Claimed topics that do not exist."""


async def holdings(plan: Plan, client: Client, keys: KeyRing) -> Holdings:
    """Return the topics that a reset would delete.

    Raises:
        ConfigError: the topics are claimed with another key file.
        StateError: workers run.
    """
    await _check_idle(plan, client)
    lives = await claimed(Topics.of(plan).owners.name, Owner(plan.id, keys.application), client)
    present = await client.describe(list(lives))
    own = [topic for topic, life in lives.items() if topic in present and present[topic].id == life.id]
    return Holdings(
        sorted(own), sorted(present.keys() - {*own}), sorted(topic for topic in lives if topic not in present)
    )


async def reset(plan: Plan, client: Client, keys: KeyRing, found: Holdings) -> None:
    """Delete the application's topics, groups and claims. Sources stay, and the topics of others.

    Raises:
        BrokerError: the cluster refused something; some topics may be deleted, and another reset continues.
        StateError: workers run; nothing is deleted.
    """
    await _check_idle(plan, client)
    topics = Topics.of(plan)
    await client.delete(found.own)
    for group in (plan.id, *(claims_group(topics.changelog(table)) for table in (COUNTS, MERGES, RELEASES))):
        await client.delete_group(group)
    await disclaim(topics.owners.name, Owner(plan.id, keys.application), client)


async def former_topics(plan: Plan, client: Client, keys: KeyRing, view: str) -> list[str]:
    """Return the existing release topics of a view that no longer have an audience.

    Args:
        plan: the plan in effect.
        client: a client of its broker.
        keys: the secrets of the application.
        view: name of the view, which was removed or lost audiences.

    Raises:
        ConfigError: there never was such a view, or the topics are claimed with another key file.
    """
    topics = Topics.of(plan)
    named("view", view, {one.view: one for one in plan.views.values()}, "--view")
    readers = {reader for one in plan.views.values() if one.view == view for reader in one.readers}
    left = plan.newest[view].audiences if view in plan.newest else ()
    lives = await claimed(topics.owners.name, Owner(plan.id, keys.application), client)
    asked = [topics.release(view, audience) for audience in readers.difference(left)]
    present = await client.describe(asked)
    return sorted(topic for topic in present if topic in lives and present[topic].id == lives[topic].id)


async def delete_former(plan: Plan, client: Client, keys: KeyRing, topics: Sequence[str]) -> None:
    """Delete release topics without an audience (`former_topics`).

    If their audience returns, they are created again, without the records that they had. If this is interrupted, run
    it again, or start a worker, which completes it.

    Raises:
        BrokerError: the cluster refused something.
    """
    await give_up(Topics.of(plan).owners.name, Owner(plan.id, keys.application), topics, client)


async def spendings(plan: Plan, client: Client) -> list[LedgerStatement]:
    """Return the spending that a reset forgets, by ledger and period."""
    topic = Topics.of(plan).accounts
    entries = await read_entries(topic, client) if await client.partitions(topic) is not None else []
    return [*read_statements(entries).values()]


async def _check_idle(plan: Plan, client: Client) -> None:
    if (await client.group(plan.id)).state not in EMPTY:
        raise StateError(
            f"workers of {plan.id} run, or ended less than a minute ago. Stop all workers and try again in a minute"
        )
