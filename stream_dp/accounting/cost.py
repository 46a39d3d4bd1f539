"""A privacy cost: an exact vector with one entry for each kind of account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import lcm
from typing import ClassVar, Self

from stream_dp.errors import ParameterError, StateError
from stream_dp.exact.checks import nonnegative_faults

ENTRIES = ("epsilon", "delta", "rho")
"""Names of the entries, in their order."""

_ZERO = Fraction(0)


class Cost:
    """An exact, non-negative vector of what a user pays; entries add, each on its own. Immutable.

    `a <= b` asks for every entry, so it is a partial order: `not a <= b` does not mean `b <= a`. There is no `<`.
    Denominators stay bounded: every sum divides by the least common multiple of the denominators of the costs
    that the configuration can produce, however many windows are added.

    An entry is kept as an integer and a denominator that need not be in lowest terms, since a running sum then meets
    the same denominators again and again and has nothing to reduce: most of the time of a sum of `Fraction` is that.

    What the entries promise, and how they are turned into one (epsilon, delta), is in `stream_dp.accounting.ledger`.
    """

    ZERO: ClassVar[Cost]
    __slots__ = ("_amounts", "_text", "_units")

    _amounts: tuple[int, ...]
    _units: tuple[int, ...]
    _text: tuple[str, str, str]
    """Once it was asked for: of a ledger of many views a step changes one."""

    def __init__(self, epsilon: Fraction, delta: Fraction, rho: Fraction = _ZERO) -> None:
        """Make a cost.

        Args:
            epsilon: pure epsilon, at least 0.
            delta: chance of bad events, at least 0.
            rho: zero-concentrated differential privacy (zCDP), at least 0.

        Raises:
            ParameterError: an entry is negative or is not a Fraction (a float has already lost what was meant).
        """
        entries = (epsilon, delta, rho)
        if not all(isinstance(entry, Fraction) and entry.numerator >= 0 for entry in entries):
            raise ParameterError(nonnegative_faults(**dict(zip(ENTRIES, entries, strict=True))))
        self._amounts = tuple([entry.numerator for entry in entries])
        self._units = tuple([entry.denominator for entry in entries])

    @classmethod
    def _of(cls, parts: Iterable[tuple[int, int]]) -> Self:
        made = cls.__new__(cls)
        made._amounts, made._units = zip(*parts, strict=True)
        return made

    @property
    def epsilon(self) -> Fraction:
        """Pure epsilon."""
        return Fraction(self._amounts[0], self._units[0])

    @property
    def delta(self) -> Fraction:
        """Chance of bad events."""
        return Fraction(self._amounts[1], self._units[1])

    @property
    def rho(self) -> Fraction:
        """ZCDP."""
        return Fraction(self._amounts[2], self._units[2])

    @property
    def text(self) -> tuple[str, str, str]:
        """The entries in lowest terms, "p/q" or "p"."""
        if not hasattr(self, "_text"):
            self._text = (str(self.epsilon), str(self.delta), str(self.rho))
        return self._text

    def __iter__(self) -> Iterator[Fraction]:
        return iter((self.epsilon, self.delta, self.rho))

    def __add__(self, other: Cost) -> Cost:
        return Cost._of([(a + b, unit) for a, b, unit in _aligned(self, other)])

    def __sub__(self, other: Cost) -> Cost:
        parts = [(a - b, unit) for a, b, unit in _aligned(self, other)]
        if min(parts)[0] < 0:
            raise StateError(f"cannot take {other} from {self}: a privacy cost is never negative")
        return Cost._of(parts)

    def __mul__(self, times: int | Fraction) -> Cost:
        return Cost(*(entry * times for entry in self))

    def __le__(self, other: Cost) -> bool:
        for a, u, b, v in zip(self._amounts, self._units, other._amounts, other._units, strict=True):
            if a * v > b * u:
                return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cost):
            return NotImplemented
        return all(a == b for a, b, _ in _aligned(self, other))

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return f"({', '.join(f'{name} {value}' for name, value in self.entries(at_least=2))})"

    def __repr__(self) -> str:
        return f"Cost{tuple(map(str, self))}"

    def entries(self, at_least: int = 0) -> list[tuple[str, Fraction]]:
        """The entries that are not 0, and the first `at_least` in any case, by name."""
        return [(n, v) for at, (n, v) in enumerate(zip(ENTRIES, self, strict=True)) if v or at < at_least]

    def fits(self, cost: Cost) -> int:
        """Return how many times `cost`, which is not zero, goes into this one."""
        return min(a // b for a, b, _ in _aligned(self, cost) if b)

    def most(self, other: Cost) -> Cost:
        """The larger of both, entry by entry."""
        return Cost._of([(max(a, b), unit) for a, b, unit in _aligned(self, other)])

    def least(self, other: Cost) -> Cost:
        """The smaller of both, entry by entry."""
        return Cost._of([(min(a, b), unit) for a, b, unit in _aligned(self, other)])


def _aligned(one: Cost, other: Cost) -> list[tuple[int, int, int]]:
    """The entries of both over common denominators."""
    parts = []
    for a, u, b, v in zip(one._amounts, one._units, other._amounts, other._units, strict=True):
        if u == v:
            parts.append((a, b, u))
        else:
            unit = lcm(u, v)
            parts.append((a * (unit // u), b * (unit // v), unit))
    return parts


Cost.ZERO = Cost(_ZERO, _ZERO)
