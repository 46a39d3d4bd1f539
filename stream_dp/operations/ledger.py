"""What the ledgers of an application have spent and have left, from the entries of its topic of accounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stream_dp.accounting import Cost
from stream_dp.config.forecast import Forecast, forecast
from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError, Fault
from stream_dp.operations.numbers import moment
from stream_dp.operations.reports import read_entries
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.records.statement import LedgerStatement, Period, read_statements
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics


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
    if name is not None and name not in plan.ledgers:
        raise ConfigError([Fault("ledger", f"no ledger is named {name!r}; {unknown(name, plan.ledgers)}")])
    topic, wanted = Topics.of(plan).accounts, plan.ledgers if name is None else {name}
    if await client.partitions(topic) is None:
        raise BrokerError(f"{plan.broker} has no topic {topic}. Start a worker to create it: `stream-dp worker FILE`")
    entries = await read_entries(topic, client)
    statements = read_statements((time_ms, entry) for time_ms, entry in entries if entry.ledger.name in wanted)
    if not statements:
        raise BrokerError(f"{topic} has no entry yet. The first window is charged when it is released")
    return statements if at_ms is None else _of_period(statements, at_ms)


def _of_period(statements: Mapping[Period, LedgerStatement], at_ms: int) -> dict[Period, LedgerStatement]:
    found = {
        key: statement
        for key, statement in statements.items()
        if statement.account.period.start_ms <= at_ms < statement.account.period.end_ms
    }
    if not found:
        known = ", ".join(f"{period.ledger} from {moment(period.start_ms)}" for period in statements)
        raise BrokerError(f"no period with an entry includes {moment(at_ms)}; periods: {known}")
    return found


@dataclass(frozen=True, slots=True)
class Outlook:
    """How long what is left of a ledger pays for its views, charged at worst.

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
    """Work out how long what is left of a ledger lasts.

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
        "promise": _dump(account.budget.cost),
        "budget": _dump(statement.budget),
        "spent": _dump(statement.spent),
        "left": _dump(statement.left, left=True),
        "spent_without_entry": _dump(statement.older),
        "spent_by": [
            {
                "view": view,
                "audience": audience,
                "windows": share.windows,
                "refused": share.refused,
                "charged": _dump(share.charged),
                "loss": _dump(share.loss),
            }
            for (view, audience), share in sorted(statement.shares.items())
        ],
        "affords": {
            "state": found.state,
            "all_views_until_ms": found.until_ms,
            "all_views_until": moment(found.until_ms),
            "views": {name: _forecast_json(view) for name, view in found.views.items()},
        },
        "history": [{"window_end_ms": time_ms, "left": _dump(left, left=True)} for time_ms, left in statement.history],
    }


def _forecast_json(view: Forecast) -> dict[str, Any]:
    return {
        "level": view.level,
        "window_costs_at_worst": _dump(view.cost),
        "kept": _dump(view.kept, left=True),
        "spent": _dump(view.spent),
        "left": _dump(view.left, left=True),
        "windows_afforded": view.windows,
        "windows_to_come": view.to_come,
        "until_ms": view.until_ms,
        "until": moment(view.until_ms),
    }


def _dump(cost: Cost, *, left: bool = False) -> dict[str, Any]:
    amount = Amount.down if left else Amount.up
    price = PrivacyCost(**{name: amount(value) for name, value in cost.entries(at_least=2)})
    return price.model_dump(mode="json", exclude_none=True)


def whole(plan: Plan, found: Mapping[Period, LedgerStatement]) -> dict[str, Any]:
    """Return every statement as one JSON object."""
    return {"ledgers": [as_json(plan, statement) for statement in found.values()]}
