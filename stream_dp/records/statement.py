"""The statement of a ledger, from public records alone: what was spent, by whom, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES, PART_ENTRIES
from stream_dp.exact.rationals import parse_exact
from stream_dp.records.codec import AnyRecord
from stream_dp.records.models import Account, AccountPart, AccountParts, Amount, Refusal


@dataclass(slots=True)
class Share:
    """What the releases of one view to one audience tell.

    Attributes:
        charged: what they added to what was spent; a reader who came later than a finer one adds nothing.
        held: what this audience alone has been told.
        windows: how many windows it has.
        refused: how many windows, or sharper revisions, it was refused.
        last_ms: start of the newest window.
        level: name of its level.
    """

    charged: Cost = Cost.ZERO
    held: Cost = Cost.ZERO
    windows: int = 0
    refused: int = 0
    last_ms: int | None = None
    level: str = ""

    def take(self, record: AnyRecord) -> None:
        """Add the record that holds of a window, or its refusal."""
        if isinstance(record, Refusal):
            self.refused += 1
        else:
            self.windows += 1
            self.charged += record.charged.cost
            self.held += record.held.cost
        if self.last_ms is None or record.window.start_ms >= self.last_ms:
            self.last_ms = record.window.start_ms
            self.level = self.level if isinstance(record, Refusal) else record.level.name


@dataclass
class Statement:
    """One ledger in one period, as far as the topics still tell.

    Attributes:
        account: of the newest record.
        budget: the caps of the period.
        left: of the newest record.
        shares: by view and audience.
        history: (end of the newest window so far, what was left) whenever that changed, oldest first.
    """

    account: Account
    budget: Cost
    left: Cost
    shares: dict[tuple[str, str], Share] = field(default_factory=dict)
    history: list[tuple[int, Cost]] = field(default_factory=list)

    @property
    def spent(self) -> Cost:
        """What was spent, by the newest record."""
        return self.budget.most(self.left) - self.left

    @property
    def seen(self) -> Cost:
        """What the records that are still there charged."""
        return sum((share.charged for share in self.shares.values()), Cost.ZERO)

    @property
    def older(self) -> Cost:
        """What was charged by records that are gone: expired, or replaced by a sharper revision."""
        return self.spent.most(self.seen) - self.seen


def read_statements(records: Iterable[tuple[int, AnyRecord]]) -> dict[tuple[str, int], Statement]:
    """The statement of every ledger and period that records tell of.

    Args:
        records: with the time at which each was published, in any order; a record may come twice.

    Returns:
        By ledger and start of the period, oldest period first.
    """
    found: dict[tuple[str, int], Statement] = {}
    holding: dict[tuple[str, str, int, str], AnyRecord] = {}
    reached: dict[tuple[str, int], int] = {}
    for _, record in sorted(records, key=_age):
        key = record.ledger.name, record.ledger.period.start_ms
        budget, left = caps(record.ledger), remainder(record.ledger)
        one = found.setdefault(key, Statement(record.ledger, budget, left))
        one.account, one.budget, one.left = record.ledger, budget, left
        reached[key] = max(reached.get(key, record.window.end_ms), record.window.end_ms)
        if (reached[key], left) not in one.history[-1:]:
            one.history.append((reached[key], left))
        holding[record.view, record.audience, record.window.start_ms, record.type] = record
    for record in holding.values():
        one = found[record.ledger.name, record.ledger.period.start_ms]
        one.shares.setdefault((record.view, record.audience), Share()).take(record)
    return dict(sorted(found.items()))


def _age(found: tuple[int, AnyRecord]) -> tuple[int, list[Fraction]]:
    """Later records have less left; records of one commit have the same."""
    time_ms, record = found
    return time_ms, [-value for _, value in remainder(record.ledger).entries(at_least=len(ENTRIES))]


def caps(account: Account) -> Cost:
    """What a period admits: the budget, less what its parts take, and the caps of the parts."""
    total, parts = account.budget.cost, _parts(account.parts)
    taken = sum((Cost(_exact(part.epsilon), _exact(part.slack)) for part in parts.values()), Cost.ZERO)
    entries = {PART_ENTRIES[name]: _exact(part.budget) for name, part in parts.items()}
    return (total - taken) + Cost(Fraction(0), Fraction(0), **entries)


def remainder(account: Account) -> Cost:
    """What was left in every part."""
    entries = {PART_ENTRIES[name]: _exact(part.left) for name, part in _parts(account.parts).items()}
    return account.left.cost + Cost(Fraction(0), Fraction(0), **entries)


def _parts(parts: AccountParts | None) -> Mapping[str, AccountPart]:
    return {name: part for name, part in parts if part is not None} if parts is not None else {}


def _exact(amount: Amount) -> Fraction:
    return parse_exact(amount.exact)


def newest_periods(statements: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The starts of the periods of each ledger, oldest first."""
    found: dict[str, list[int]] = {}
    for name, start in sorted(statements):
        found.setdefault(name, []).append(start)
    return found
