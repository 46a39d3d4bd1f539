"""An exact privacy budget that calls pay from, and how every function reads its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.accounting import Cost, Ledger, Overdraft, cancel, commit, reserve
from stream_dp.errors import BudgetError, Fault, ParameterError
from stream_dp.exact.bits import BitSource, SystemBits
from stream_dp.exact.rationals import parse_exact

Exact = int | str | Fraction
"""An exact number: a whole number, a fraction, or text such as "0.25", "1/3" or "1e-6"."""


@dataclass
class PaidCall:
    """A call that draws.

    Attributes:
        bits: source of uniform bits.
        cost: what it costs: the most that it can, unless it says less.
    """

    bits: BitSource
    cost: Cost


class Budget:
    """A privacy budget that calls pay from; an exact ledger in memory (specs/topk 3.4).

    Attributes:
        ledger: the ledger as it is now; immutable, so it can be kept and compared.
        bits: source of uniform bits.

    Guarantee: everything that was paid from it is together (epsilon, delta)-DP, whatever was asked in whatever order.
    It lives in this process: to keep it through restarts, store `accounting.encode(budget.ledger)`.
    """

    def __init__(self, epsilon: Exact, delta: Exact = 0, *, bits: BitSource | None = None) -> None:
        """Set the caps.

        Args:
            epsilon: of everything that is paid from it, above 0.
            delta: the same, from 0 to 1.
            bits: source of uniform bits for what is paid from it, for tests; the operating system's if it is None.

        Raises:
            ParameterError: a cap is not exact or out of range.
        """
        self.ledger = Ledger(cost_of(number("epsilon", epsilon), number("delta", delta, zero=True)))
        self.bits: BitSource = bits or SystemBits()
        self._calls = 0

    @property
    def spent(self) -> Cost:
        """Cost of all that was paid so far."""
        return self.ledger.spent

    @property
    def left(self) -> Cost:
        """Rest of the budget."""
        return self.ledger.left

    @contextmanager
    def pay(self, worst: Cost) -> Iterator[PaidCall]:
        """Reserve what a call can cost, and pay what it came to once it is over.

        Args:
            worst: the most it can cost.

        Yields:
            The call, once the worst case is reserved. If it fails, nothing is charged.

        Raises:
            BudgetError: the budget does not cover the worst case; nothing was drawn or charged.
        """
        self._calls += 1
        name, call = str(self._calls), PaidCall(self.bits, worst)
        held = reserve(self.ledger, name, worst)
        if isinstance(held, Overdraft):
            raise BudgetError(f"this call can cost {_words(worst)}, and {_words(held.left)} is left")
        self.ledger = held
        try:
            yield call
        except BaseException:
            self.ledger = cancel(self.ledger, name)
            raise
        self.ledger = commit(self.ledger, name, call.cost, {}, view="")


def paying(budget: Budget | None, worst: Cost) -> AbstractContextManager[PaidCall]:
    """Return the context of a call that is paid for from a budget, if there is one."""
    return nullcontext(PaidCall(SystemBits(), worst)) if budget is None else budget.pay(worst)


def cost_of(epsilon: Fraction, delta: Fraction = Fraction(0)) -> Cost:
    """The cost of a pure or approximate guarantee."""
    return Cost(epsilon, delta)


def _words(cost: Cost) -> str:
    return f"epsilon {cost.epsilon} and delta {cost.delta}"


def number(name: str, value: Exact, *, zero: bool = False) -> Fraction:
    """Read an exact number above 0, or of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | str | Fraction):
        raise ParameterError([Fault(name, f'must be exact: write Fraction(1, 2) or "0.5", not {value!r}')])
    try:
        exact = parse_exact(value) if isinstance(value, str) else Fraction(value)
    except ValueError as error:
        raise ParameterError([Fault(name, str(error))]) from None
    if exact < 0 or (exact == 0 and not zero):
        raise ParameterError([Fault(name, f"must be above 0, not {value}")])
    return exact


def positive(name: str, value: int) -> int:
    """Read a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParameterError([Fault(name, f"must be a whole number of at least 1, not {value!r}")])
    return value


def whole(counts: Mapping[str, int], *, least: int | None = None) -> dict[str, int]:
    """The counts in the order of their keys: the order in which a program met them decides nothing."""
    for count in counts.values():
        if isinstance(count, bool) or not isinstance(count, int) or (least is not None and count < least):
            kind = "a whole number" if least is None else "a number of users"
            raise ParameterError([Fault("counts", f"every count must be {kind}")])
    return dict(sorted(counts.items()))


def listed_counts(counts: Mapping[str, int], keys: Collection[str], fewest: int) -> dict[str, int]:
    """The counts of the keys of a public list, in their order; zeros too."""
    listed = dict.fromkeys(sorted(keys))
    if len(listed) < fewest:
        raise ParameterError([Fault("keys", f"must be at least {fewest}, not {len(listed)}")])
    return whole({key: counts.get(key, 0) for key in listed}, least=0)
