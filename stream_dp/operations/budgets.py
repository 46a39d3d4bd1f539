"""Spending and remaining budget of the ledgers of an application, from the entries of its topic of accounts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.accounting import Cost
from stream_dp.config.forecast import Forecast, forecast
from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError
from stream_dp.operations import check_topic, named, plain
from stream_dp.records.codec import decode_entry
from stream_dp.records.models import LedgerEntry, PrivacyCost
from stream_dp.records.statement import LedgerStatement, Period, periods_of, read_statements
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.durations import moment


async def read_entries(topic: str, client: Client) -> list[tuple[int, LedgerEntry]]:
    """Return every entry of a topic of accounts, with the time at which it was published."""
    found = [record async for record in client.follow([topic], until_end=True) if record.value is not None]
    return [(record.timestamp, decode_entry(record.value)) for record in found]


async def newest_statements(plan: Plan, client: Client) -> list[LedgerStatement]:
    """Return the statement of the newest period of each ledger."""
    found = await _statements(Topics.of(plan).accounts, client, plan.ledgers)
    return [found[newest] for *_, newest in periods_of(found).values()]


async def _statements(topic: str, client: Client, ledgers: Collection[str]) -> dict[Period, LedgerStatement]:
    entries = await read_entries(topic, client)
    return read_statements((time_ms, entry) for time_ms, entry in entries if entry.ledger.name in ledgers)


async def read_ledgers(
    plan: Plan, client: Client, name: str | None = None, at_ms: int | None = None
) -> dict[Period, LedgerStatement]:
    """Read the statements of the ledgers of an application, by period.

    Args:
        plan: in effect.
        client: of its broker.
        name: of a ledger; None: all that are configured.
        at_ms: a moment in the period that is wanted; None: all periods.

    Raises:
        ConfigError: no ledger has this name.
        BrokerError: the cluster does not answer, or there is no topic, no entry, or none of this period.
        StateError: an entry cannot be read.
    """
    if name is not None:
        named("ledger", name, plan.ledgers, "ledger")
    topic = Topics.of(plan).accounts
    await check_topic(topic, plan, client)
    statements = await _statements(topic, client, plan.ledgers if name is None else {name})
    if not statements:
        raise BrokerError(f"{topic} has no entry yet. The first window is charged when it is released")
    if at_ms is None:
        return statements
    found = {period: one for period, one in statements.items() if period.start_ms <= at_ms < period.end_ms}
    if not found:
        known = ", ".join(f"{period.ledger} from {moment(period.start_ms)}" for period in statements)
        raise BrokerError(f"no period with an entry includes {moment(at_ms)}; periods: {known}")
    return found


@dataclass(frozen=True, slots=True)
class Outlook:
    """Time until which the remaining budget of a ledger pays for its views, charged at worst.

    Attributes:
        views: by name, what a window costs, and how many more are paid for.
        until_ms: windows of all views that begin before this are paid for.
        state: `whole`: that is the end of the period; `short`: it is earlier; `exhausted`: the next windows of all
            views together are not paid for.
    """

    views: Mapping[str, Forecast]
    until_ms: int
    state: Literal["whole", "short", "exhausted"]


def outlook(plan: Plan, statement: LedgerStatement) -> Outlook:
    """Return how long the remaining budget of a ledger lasts.

    Args:
        plan: in effect.
        statement: of the ledger in a period.
    """
    views, until_ms = forecast(plan, statement)
    if until_ms >= statement.account.period.end_ms:
        return Outlook(views, until_ms, "whole")
    return Outlook(views, until_ms, "short" if any(view.paid for view in views.values()) else "exhausted")


def as_json(plan: Plan, statement: LedgerStatement) -> dict[str, Any]:
    """Return a statement for machines: exact numbers beside decimals."""
    account = statement.account
    found = outlook(plan, statement)
    return {
        "ledger": account.name,
        "population": account.population,
        "period": account.period.model_dump(mode="json"),
        "promise": plain(account.budget.cost),
        "budget": plain(statement.budget),
        "spent": plain(statement.spent),
        "left": _left(statement.left),
        "spent_without_entry": plain(statement.older),
        "spent_by": [
            {"view": view, "audience": audience, **plain(share)}
            for (view, audience), share in sorted(statement.shares.items())
        ],
        "affords": {
            "state": found.state,
            "all_views_until_ms": found.until_ms,
            "all_views_until": moment(found.until_ms),
            "views": {
                name: {
                    "level": view.level,
                    "window_costs_at_worst": plain(view.cost),
                    "kept": _left(view.kept),
                    "spent": plain(view.spent),
                    "left": _left(view.left),
                    "windows_afforded": view.windows,
                    "windows_to_come": view.to_come,
                    "until_ms": view.until_ms,
                    "until": moment(view.until_ms),
                }
                for name, view in found.views.items()
            },
        },
        "history": [{"window_end_ms": time_ms, "left": _left(left)} for time_ms, left in statement.history],
    }


def _left(cost: Cost) -> dict[str, Any]:
    return PrivacyCost.left(cost).model_dump(mode="json", exclude_none=True)
