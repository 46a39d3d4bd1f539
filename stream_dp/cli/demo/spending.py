"""The ledger of the demo in a period: what each audience alone was told, and what all readers know together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stream_dp.accounting import Cost
from stream_dp.errors import StateError
from stream_dp.records.history import History, cost
from stream_dp.records.models import LedgerEntry, Release


@dataclass(frozen=True, slots=True)
class Spending:
    """What one aircraft has paid in one period, at one moment.

    Attributes:
        alone: by audience, sum of `privacy.window` over the releases that hold: known to its readers by themselves.
        together: budget less `left`: what all readers know together. Enforced.
        left: what the ledger has left.
        budget: of the period.
    """

    alone: Mapping[str, Cost]
    together: Cost
    left: Cost
    budget: Cost


@dataclass(frozen=True, slots=True)
class Books:
    """What was read of one period.

    Attributes:
        releases: the newest of every window and audience that the ledger pays for.
        entries: of its account.
    """

    releases: list[Release] = field(default_factory=list)
    entries: list[LedgerEntry] = field(default_factory=list)


def read_books(published: History, entries: Iterable[LedgerEntry]) -> Mapping[int, Books]:
    """What was read of the periods of one ledger, by start of the period, in ms."""
    books: defaultdict[int, Books] = defaultdict(Books)
    for release in published.releases():
        books[release.ledger.period.start_ms].releases.append(release)
    for entry in entries:
        books[entry.ledger.period.start_ms].entries.append(entry)
    return books


def read_spending(books: Books, audiences: Iterable[str]) -> Spending:
    """Add up what was read of a period, of which there is an entry.

    In the middle of things it may be a record behind: topics are read side by side.
    """
    last = min(books.entries, key=lambda entry: cost(entry.remaining).epsilon)
    budget, left = cost(last.ledger.budget), cost(last.remaining)
    held = {
        audience: [cost(one.privacy.window) for one in books.releases if one.audience == audience]
        for audience in audiences
    }
    alone = {audience: sum(costs, Cost.ZERO) for audience, costs in held.items()}
    return Spending(alone, budget - left, left, budget)


def check_spending(books: Books, spending: Spending) -> None:
    """Compare charges with what the ledger says was spent, and windows with what releases say of the period; exactly.

    Args:
        books: all that was published of the period, and every entry of it.
        spending: what `read_spending` made of them.

    Raises:
        StateError: they differ.
    """
    charged = sum((cost(reader.charged) for entry in books.entries for reader in entry.audiences), Cost.ZERO)
    if charged != spending.together:
        raise StateError(f"the entries charge {charged} in all, but the ledger has spent {spending.together}")
    for audience, alone in spending.alone.items():
        told = (cost(release.privacy.period) for release in books.releases if release.audience == audience)
        if alone != max(told, key=lambda one: one.epsilon, default=Cost.ZERO):
            raise StateError(f"what the releases to {audience} tell is not what the last of them says of the period")
