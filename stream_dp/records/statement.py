"""The statement of a ledger, from the entries of its accounts: what was spent, by whom, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, Self

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES
from stream_dp.records.codec import entry_key
from stream_dp.records.models import Account, LedgerEntry, ViewShare


@dataclass(slots=True)
class AudienceSpending:
    """Spending of one view for one audience.

    Attributes:
        charged: what they added to what was spent; a reader who came later than a finer one adds nothing.
        loss: cumulative privacy loss of this audience, alone.
        windows: how many windows it has.
        refused: how many windows it was refused, or refused sharper.
        last_ms: start of the newest window.
        level: name of its level.
        refused_ms: start of the first of its newest windows that were refused one after another; None: the newest was
            not.
    """

    charged: Cost = Cost.ZERO
    loss: Cost = Cost.ZERO
    windows: int = 0
    refused: int = 0
    last_ms: int | None = None
    level: str = ""
    refused_ms: int | None = None


class Period(NamedTuple):
    """A ledger in one of its periods; two of them may start alike if the length of periods was changed."""

    ledger: str
    start_ms: int
    end_ms: int

    @classmethod
    def of(cls, entry: LedgerEntry) -> Self:
        """The one that an entry is about."""
        return cls(entry.ledger.name, entry.ledger.period.start_ms, entry.ledger.period.end_ms)


@dataclass
class LedgerStatement:
    """One ledger in one period, as far as the topic still tells.

    Attributes:
        account: of the newest entry.
        budget: the caps of the period.
        left: of the newest entry.
        view_shares: budget that the period keeps for each view, of the newest entry that names it.
        shares: by view and audience.
        history: (end of the window, what was left then) of each entry, in the order of their publication.
    """

    account: Account
    budget: Cost
    left: Cost
    view_shares: Sequence[ViewShare]
    shares: dict[tuple[str, str], AudienceSpending] = field(default_factory=dict)
    history: list[tuple[int, Cost]] = field(default_factory=list)

    @property
    def reached_ms(self) -> int:
        """End of the furthest window that an entry is about."""
        return max(end_ms for end_ms, _ in self.history)

    @property
    def spent(self) -> Cost:
        """Budget spent, by the newest entry."""
        return self.budget.most(self.left) - self.left

    @property
    def seen(self) -> Cost:
        """Sum of the charges of the entries that are there."""
        return sum((share.charged for share in self.shares.values()), Cost.ZERO)

    def loss(self, audience: str) -> Cost:
        """Return the cumulative privacy loss of an audience, alone, over all views."""
        return sum((share.loss for (_, name), share in self.shares.items() if name == audience), Cost.ZERO)

    @property
    def taken(self) -> dict[str, Cost]:
        """Budget spent by view; under the empty name what no entry explains."""
        found = {"": self.older}
        for (view, _), share in self.shares.items():
            found[view] = found.get(view, Cost.ZERO) + share.charged
        return found

    @property
    def older(self) -> Cost:
        """Budget spent that no entry explains."""
        return self.spent.most(self.seen) - self.seen


def read_statements(entries: Iterable[tuple[int, LedgerEntry]]) -> dict[Period, LedgerStatement]:
    """The statement of every ledger and period that entries tell of.

    Args:
        entries: with the time at which each was published, in any order; an entry may come twice.

    Returns:
        By ledger and period, oldest period first.
    """
    found: dict[Period, LedgerStatement] = {}
    ordered = [entry for _, entry in sorted(entries, key=_age)]
    for entry in ordered:
        key, end = Period.of(entry), entry.window.end_ms
        budget, left = caps(entry.ledger), entry.remaining.cost
        one = found.setdefault(key, LedgerStatement(entry.ledger, budget, left, entry.shares))
        one.account, one.budget, one.left, one.view_shares = entry.ledger, budget, left, entry.shares or one.view_shares
        if (end, left) not in one.history[-1:]:
            one.history.append((end, left))
    had: set[tuple[str, str, int, str]] = set()
    for entry in {entry_key(entry): entry for entry in ordered}.values():
        one, start = found[Period.of(entry)], entry.window.start_ms
        for reader in entry.audiences:
            share = one.shares.setdefault((entry.view, reader.audience), AudienceSpending())
            share.charged += reader.charged.cost
            share.loss += reader.loss.cost
            window = entry.view, reader.audience, start, entry.type
            if window not in had:
                share.windows += entry.type == "charge"
                share.refused += entry.type == "refusal"
            had.add(window)
            charged = (entry.view, reader.audience, start, "charge") in had or entry.type == "charge"
            if share.last_ms is None or start >= share.last_ms:
                share.refused_ms = None if charged else start if share.refused_ms is None else share.refused_ms
                share.last_ms = start
                share.level = reader.level if entry.type == "charge" else share.level
    return dict(sorted(found.items()))


def _age(found: tuple[int, LedgerEntry]) -> tuple[int, list[Fraction]]:
    """Later entries have less left; those of one commit may be as old as one another."""
    time_ms, entry = found
    return time_ms, [-value for _, value in entry.remaining.cost.entries(at_least=len(ENTRIES))]


def caps(account: Account) -> Cost:
    """Return the caps of a period: the budget; with a pool less what that takes, and its cap."""
    total, pool = account.budget.cost, account.zcdp
    if pool is None:
        return total
    return total - Cost(pool.epsilon.value, pool.slack.value) + Cost(Fraction(0), Fraction(0), rho=pool.budget.value)


def periods_of(statements: Iterable[Period]) -> dict[str, list[Period]]:
    """The periods of each ledger, oldest first."""
    found: dict[str, list[Period]] = {}
    for period in sorted(statements):
        found.setdefault(period.ledger, []).append(period)
    return found
