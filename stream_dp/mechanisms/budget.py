"""An exact privacy budget that calls pay from, and how every function reads its arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral
from typing import Any, Protocol, SupportsIndex

from stream_dp.accounting import Cost, Ledger, Overdraft, cancel, commit, reserve
from stream_dp.errors import BudgetError, Fault, ParameterError
from stream_dp.exact.bits import BitSource, SystemBits
from stream_dp.exact.rationals import parse_exact

Exact = SupportsIndex | str | Fraction
"""An exact number: a whole number, a fraction, or text such as "0.25", "1/3" or "1e-6"."""


class Counts(Protocol):
    """Whole numbers by key: a mapping, or a pandas Series with the keys in its index."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return the keys with their counts."""


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
    found = integer(value)
    if found is None and not isinstance(value, str | Fraction):
        raise ParameterError([Fault(name, f'must be exact: write Fraction(1, 2) or "0.5", not {value!r}')])
    try:
        exact = parse_exact(value) if isinstance(value, str) else _fraction(value if found is None else found)
    except ValueError as error:
        raise ParameterError([Fault(name, str(error))]) from None
    if exact < 0 or (exact == 0 and not zero):
        raise ParameterError([Fault(name, f"must be above 0, not {value}")])
    return exact


def _fraction(value: Any) -> Fraction:  # noqa: ANN401  a whole number or a fraction
    """Return a number as a fraction of Python integers, because NumPy integers overflow."""
    return Fraction(int(value.numerator), int(value.denominator))


def integer(value: object) -> int | None:
    """Return a whole number, such as NumPy's, as a Python integer, which never overflows; None if it is not whole."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return int(value)


def positive(name: str, value: SupportsIndex) -> int:
    """Read a whole number of at least 1."""
    found = integer(value)
    if found is None or found < 1:
        raise ParameterError([Fault(name, f"must be a whole number of at least 1, not {value!r}")])
    return found


def whole(counts: Counts, *, least: int | None = None) -> dict[str, int]:
    """Return the counts sorted by key, so that the order in which a program met the keys has no effect.

    Raises:
        ParameterError: a count is not a whole number or is too small; a key is neither text nor a whole number, or
            occurs twice, as it may in a pandas index.
    """
    exact: dict[str, int] = {}
    for key, count in counts.items():
        found = integer(count)
        if found is None or (least is not None and found < least):
            kind = "a whole number" if least is None else "a number of users"
            raise ParameterError([Fault("counts", f"every count must be {kind}")])
        name = key_text("counts", key)
        if name in exact:
            raise ParameterError([Fault("counts", "has a key twice. Add up its counts first")])
        exact[name] = found
    return dict(sorted(exact.items()))


def key_text(parameter: str, key: object) -> str:
    """Return a key as text, which is what a view counts.

    Raises:
        ParameterError: the key is neither text nor a whole number.
    """
    found = integer(key)
    if found is None and not isinstance(key, str):
        raise ParameterError([Fault(parameter, "every key must be text or a whole number")])
    return str(key if found is None else found)


def listed_counts(counts: Counts, keys: Collection[str], fewest: int) -> dict[str, int]:
    """The counts of the keys of a public list, in their order; zeros too."""
    listed = sorted({key_text("keys", key) for key in keys})
    if len(listed) < fewest:
        raise ParameterError([Fault("keys", f"must be at least {fewest}, not {len(listed)}")])
    exact = whole(counts, least=0)
    return {key: exact.get(key, 0) for key in listed}
