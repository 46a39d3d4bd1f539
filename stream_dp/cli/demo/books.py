"""The ledger as the public records tell it: what every audience alone was told, and what all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from stream_dp.accounting import Cost
from stream_dp.cli.shelf import Shelf, cost
from stream_dp.errors import StateError


@dataclass(frozen=True, slots=True)
class Books:
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


def read_books(shelf: Shelf, audiences: Iterable[str]) -> Books:
    """Add up the newest records of every topic that one ledger pays for; there is a release among them.

    In the middle of things it may be a record behind: topics are read side by side.
    """
    last = min(shelf.releases(), key=lambda release: cost(release.ledger.left).epsilon).ledger
    budget, left = cost(last.budget), cost(last.left)
    alone = {
        audience: reduce(add, (cost(release.held) for release in shelf.releases(audience)), Cost.ZERO)
        for audience in audiences
    }
    return Books(alone, budget - left, left, budget)


def check_books(shelf: Shelf, books: Books) -> None:
    """Compare what all records say they charged with what the ledger says was spent; both are exact.

    Args:
        shelf: every record of every topic that the ledger pays for.
        books: what `read_books` made of them.

    Raises:
        StateError: they differ.
    """
    if shelf.charged != books.together:
        raise StateError(f"the records charge {shelf.charged} in all, but the ledger has spent {books.together}")
