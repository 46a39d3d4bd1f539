"""The ledger as the public records tell it: what every audience alone was told, and what all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from stream_dp.accounting import Cost
from stream_dp.errors import StateError
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


def read_spending(published: History, audiences: Iterable[str]) -> Spending:
    """Add up the newest records of every topic that one ledger pays for; there is a release among them.

    In the middle of things it may be a record behind: topics are read side by side.
    """
    last = min(published.releases(), key=lambda release: cost(release.ledger.left).epsilon).ledger
    budget, left = cost(last.budget), cost(last.left)
    alone = {
        audience: reduce(add, (cost(release.held) for release in published.releases(audience)), Cost.ZERO)
        for audience in audiences
    }
    return Spending(alone, budget - left, left, budget)


def check_spending(published: History, spending: Spending) -> None:
    """Compare what all records say they charged with what the ledger says was spent; both are exact.

    Args:
        published: every record of every topic that the ledger pays for.
        spending: what `read_spending` made of them.

    Raises:
        StateError: they differ.
    """
    if published.charged != spending.together:
        raise StateError(f"the records charge {published.charged} in all, but the ledger has spent {spending.together}")
