"""What the public records tell about ledgers: spent, by whom, what is left, and how far it reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stream_dp.accounting import Cost
from stream_dp.accounting.cost import ENTRIES
from stream_dp.releases.plan import PART_ENTRIES, Plan, ViewPlan
from stream_dp.releases.rationals import parse_exact
from stream_dp.releases.records import Account, Amount, AnyRecord, Part, Parts, Refusal


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
class Books:
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


def read_books(records: Iterable[tuple[int, AnyRecord]]) -> dict[tuple[str, int], Books]:
    """The books of every ledger and period that records tell of.

    Args:
        records: with the time at which each was published, in any order; a record may come twice.

    Returns:
        By ledger and start of the period, oldest period first.
    """
    books: dict[tuple[str, int], Books] = {}
    holding: dict[tuple[str, str, int, str], AnyRecord] = {}
    reached: dict[tuple[str, int], int] = {}
    for _, record in sorted(records, key=_age):
        key = record.ledger.name, record.ledger.period.start_ms
        budget, left = caps(record.ledger), remainder(record.ledger)
        book = books.setdefault(key, Books(record.ledger, budget, left))
        book.account, book.budget, book.left = record.ledger, budget, left
        reached[key] = max(reached.get(key, record.window.end_ms), record.window.end_ms)
        if (reached[key], left) not in book.history[-1:]:
            book.history.append((reached[key], left))
        holding[record.view, record.audience, record.window.start_ms, record.type] = record
    for record in holding.values():
        book = books[record.ledger.name, record.ledger.period.start_ms]
        book.shares.setdefault((record.view, record.audience), Share()).take(record)
    return dict(sorted(books.items()))


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


def _parts(parts: Parts | None) -> Mapping[str, Part]:
    return {name: part for name, part in parts if part is not None} if parts is not None else {}


def _exact(amount: Amount) -> Fraction:
    return parse_exact(amount.exact)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How many more windows of a view the ledger affords, at its present level and at worst.

    Attributes:
        level: name of the finest level that an audience has now.
        cost: of one window.
        windows: how many it affords, if the view were alone.
        to_come: how many begin before the period ends.
    """

    level: str
    cost: Cost
    windows: int
    to_come: int


def present_level(view: ViewPlan, books: Books) -> int:
    """The finest level that an audience's newest window has, or starts with."""
    index = {level.name: at for at, level in enumerate(view.levels)}

    def of(audience: str) -> int:
        share = books.shares.get((view.name, audience))
        return view.audiences[audience] if share is None else index.get(share.level, view.audiences[audience])

    return max(map(of, view.audiences))


def outlook(plan: Plan, books: Books) -> tuple[dict[str, Outlook], int]:
    """What a ledger still affords.

    Args:
        plan: the application.
        books: of the ledger and period.

    Returns:
        By view; and the time up to which it affords every window of all its views, at most the end of the period.
    """
    views = [view for view in plan.views.values() if view.ledger.name == books.account.name]
    levels = [present_level(view, books) for view in views]
    costs = [view.cost(level) for view, level in zip(views, levels, strict=True)]
    starts = [_next_start(view, books) for view in views]
    end = books.account.period.end_ms

    def begun(at: int, time_ms: int) -> int:
        return max(0, -(-(time_ms - starts[at]) // views[at].window.size_ms))

    found = {
        view.name: Outlook(view.levels[levels[at]].name, costs[at], books.left.fits(costs[at]), begun(at, end))
        for at, view in enumerate(views)
    }
    low, high = min(starts, default=end), end
    while low < high:
        middle = (low + high + 1) // 2
        asked = sum((cost * begun(at, middle) for at, cost in enumerate(costs)), Cost.ZERO)
        low, high = (middle, high) if asked <= books.left else (low, middle - 1)
    return found, low


def _next_start(view: ViewPlan, books: Books) -> int:
    """Start of the first window of a view that no record tells of yet."""
    newest = [share.last_ms for (name, _), share in books.shares.items() if name == view.name]
    last = max((start for start in newest if start is not None), default=None)
    return books.account.period.start_ms if last is None else last + view.window.size_ms


def newest_periods(books: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The starts of the periods of each ledger, oldest first."""
    found: dict[str, list[int]] = {}
    for name, start in sorted(books):
        found.setdefault(name, []).append(start)
    return found
