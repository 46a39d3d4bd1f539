"""The ledger of the demo: what every audience alone was told by its records, and what all of them, by the accounts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stream_dp.accounting import Cost
from stream_dp.errors import StateError
from stream_dp.records.entries import Entry
from stream_dp.records.history import History, cost


@dataclass(frozen=True, slots=True)
class Spending:
    """What one aircraft has paid for a year of releases, at one moment.

    Attributes:
        alone: by audience, the sum of `held` over the releases that hold: what its readers know by themselves.
        together: budget less `left`: what all readers know together. Enforced.
        left: what the ledger has left.
        budget: of the period.
    """

    alone: Mapping[str, Cost]
    together: Cost
    left: Cost
    budget: Cost


def read_spending(published: History, entries: Iterable[Entry], audiences: Iterable[str]) -> Spending:
    """Add up the newest records of every topic that one ledger pays for; there is an entry of that ledger.

    In the middle of things it may be a record behind: topics are read side by side.
    """
    last = min(entries, key=lambda entry: cost(entry.left).epsilon)
    budget, left = cost(last.ledger.budget), cost(last.left)
    alone = {
        audience: sum((cost(release.held) for release in published.releases(audience)), Cost.ZERO)
        for audience in audiences
    }
    return Spending(alone, budget - left, left, budget)


def check_spending(published: History, entries: Iterable[Entry], spending: Spending) -> None:
    """Compare charges with what the ledger says was spent, and windows with what releases say of the period; exactly.

    Args:
        published: every record of every topic that the ledger pays for.
        entries: every entry of its account.
        spending: what `read_spending` made of them.

    Raises:
        StateError: they differ.
    """
    charged = sum((cost(reader.charged) for entry in entries for reader in entry.readers), Cost.ZERO)
    if charged != spending.together:
        raise StateError(f"the entries charge {charged} in all, but the ledger has spent {spending.together}")
    for audience, alone in spending.alone.items():
        told = (cost(release.told) for release in published.releases(audience))
        if alone != max(told, key=lambda one: one.epsilon, default=Cost.ZERO):
            raise StateError(f"what the releases to {audience} tell is not what the last of them says of the period")
