"""A privacy cost: an exact (epsilon, delta) pair."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from stream_dp.errors import ConfigError, Fault, StateError


@dataclass(frozen=True, slots=True)
class Cost:
    """An exact, non-negative (epsilon, delta), added under basic composition.

    `a <= b` asks for both parts, so it is a partial order: `not a <= b` does not mean `b <= a`. There is no `<`.
    Denominators stay bounded: every sum divides by the least common multiple of the denominators of the costs
    that the configuration can produce, however many windows are added.

    Attributes:
        epsilon: at least 0.
        delta: at least 0.

    Raises:
        ConfigError: a part is negative or is not a Fraction (a float has already lost what was meant).
    """

    ZERO: ClassVar[Cost]

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        faults = [
            Fault(name, f"must be an exact fraction of at least 0, not {value!r}")
            for name, value in (("epsilon", self.epsilon), ("delta", self.delta))
            if not isinstance(value, Fraction) or value < 0
        ]
        if faults:
            raise ConfigError(faults)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta)

    def __sub__(self, other: Cost) -> Cost:
        if not other <= self:
            raise StateError(f"cannot take {other} from {self}: a privacy cost is never negative")
        return Cost(self.epsilon - other.epsilon, self.delta - other.delta)

    def __le__(self, other: Cost) -> bool:
        return self.epsilon <= other.epsilon and self.delta <= other.delta

    def __str__(self) -> str:
        return f"(epsilon {self.epsilon}, delta {self.delta})"


Cost.ZERO = Cost(Fraction(0), Fraction(0))
