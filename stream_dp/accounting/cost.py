"""A privacy cost: an exact vector with one entry for each kind of account."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from stream_dp.errors import ConfigError, Fault, StateError

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Cost:
    """An exact, non-negative vector of what a user pays; entries add, each on its own.

    `a <= b` asks for every entry, so it is a partial order: `not a <= b` does not mean `b <= a`. There is no `<`.
    Denominators stay bounded: every sum divides by the least common multiple of the denominators of the costs
    that the configuration can produce, however many windows are added.

    What the entries promise, and how they are turned into one (epsilon, delta), is in `stream_dp.accounting.ledger`.

    Attributes:
        epsilon: pure epsilon, at least 0.
        delta: chance of bad events, at least 0.
        squares: sum of the squared epsilons of exponential-mechanism draws, at least 0.
        rho: zero-concentrated differential privacy (zCDP), at least 0.

    Raises:
        ConfigError: an entry is negative or is not a Fraction (a float has already lost what was meant).
    """

    ZERO: ClassVar[Cost]

    epsilon: Fraction
    delta: Fraction
    squares: Fraction = _ZERO
    rho: Fraction = _ZERO

    def __post_init__(self) -> None:
        for value in (self.epsilon, self.delta, self.squares, self.rho):
            if not isinstance(value, Fraction) or value.numerator < 0:
                raise ConfigError(self._faults())

    def _faults(self) -> list[Fault]:
        return [
            Fault(name, f"must be an exact fraction of at least 0, not {value!r}")
            for name in ENTRIES
            if not isinstance(value := getattr(self, name), Fraction) or value < 0
        ]

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            _sum(self.epsilon, other.epsilon),
            _sum(self.delta, other.delta),
            _sum(self.squares, other.squares),
            _sum(self.rho, other.rho),
        )

    def __sub__(self, other: Cost) -> Cost:
        if not other <= self:
            raise StateError(f"cannot take {other} from {self}: a privacy cost is never negative")
        return self.less(other)

    def less(self, other: Cost) -> Cost:
        """`self - other` where `other <= self` is known."""
        return Cost(
            _difference(self.epsilon, other.epsilon),
            _difference(self.delta, other.delta),
            _difference(self.squares, other.squares),
            _difference(self.rho, other.rho),
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(self.epsilon * times, self.delta * times, self.squares * times, self.rho * times)

    def __le__(self, other: Cost) -> bool:
        return (
            _at_most(self.epsilon, other.epsilon)
            and _at_most(self.delta, other.delta)
            and _at_most(self.squares, other.squares)
            and _at_most(self.rho, other.rho)
        )

    def __str__(self) -> str:
        return f"({', '.join(f'{name} {value}' for name, value in self.entries(at_least=2))})"

    def entries(self, at_least: int = 0) -> list[tuple[str, Fraction]]:
        """The entries that are not 0, and the first `at_least` in any case, by name."""
        found = [(name, getattr(self, name)) for name in ENTRIES]
        return [(name, value) for at, (name, value) in enumerate(found) if value or at < at_least]

    def fits(self, cost: Cost) -> int:
        """How many times `cost`, which is not zero, goes into this one."""
        have = dict(self.entries(at_least=len(ENTRIES)))
        return min(have[name] // each for name, each in cost.entries())

    def least(self, other: Cost) -> Cost:
        """The smaller of both, entry by entry."""
        return Cost(*(min(getattr(self, name), getattr(other, name)) for name in ENTRIES))

    def most(self, other: Cost) -> Cost:
        """The larger of both, entry by entry."""
        return Cost(*(max(getattr(self, name), getattr(other, name)) for name in ENTRIES))


ENTRIES = ("epsilon", "delta", "squares", "rho")
"""Names of the entries, in their order."""

Cost.ZERO = Cost(_ZERO, _ZERO)


# Most entries of most costs are 0, and an addition of fractions takes longer than everything around it.


def _sum(a: Fraction, b: Fraction) -> Fraction:
    if not b.numerator:
        return a
    return a + b if a.numerator else b


def _difference(a: Fraction, b: Fraction) -> Fraction:
    if not b.numerator:
        return a
    return _ZERO if a is b else a - b


def _at_most(a: Fraction, b: Fraction) -> bool:
    return a is b or not a.numerator or a <= b
