"""What a top-k selection is asked to do, checked once, and the threshold an item has to reach."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.reals import log


@dataclass(frozen=True, slots=True)
class TopKParameters:
    """The public parameters of one top-k view; fixed before any data are seen (topk 1.3).

    Neighbouring tables differ by one user, who moves at most `items_per_user` counts, each by at most 1.

    Attributes:
        k: items wanted, at least 1.
        kbar: how many of the largest counts the mechanism may look at, at least `k`.
        epsilon: price of one draw, in (0, infinity); the noise and the threshold both use it (topk P5).
        delta: chance, per call, of naming an item that only one of two neighbouring tables has, in (0, 1).
        items_per_user: bound on the counts one user moves, or None where nothing bounds it.

    Raises:
        ConfigError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: topk 1.2, 1.3, 2.0.
    """

    k: int
    kbar: int
    epsilon: Fraction
    delta: Fraction
    items_per_user: int | None = None

    def __post_init__(self) -> None:
        bounds = {"k": self.k, "kbar": self.kbar}
        if self.items_per_user is not None:
            bounds["items_per_user"] = self.items_per_user
        faults = [
            Fault(name, f"must be a whole number of at least 1, not {value!r}")
            for name, value in bounds.items()
            if not isinstance(value, int) or isinstance(value, bool) or value < 1
        ]
        if not faults and self.kbar < self.k:
            faults.append(Fault("kbar", f"must be at least k = {self.k}, not {self.kbar}"))
        if not isinstance(self.epsilon, Fraction) or self.epsilon <= 0:
            faults.append(Fault("epsilon", f"must be an exact fraction above 0, not {self.epsilon!r}"))
        if not isinstance(self.delta, Fraction) or not 0 < self.delta < 1:
            faults.append(Fault("delta", f"must be an exact fraction between 0 and 1, not {self.delta!r}"))
        if faults:
            raise ConfigError(faults)

    @property
    def multiplier(self) -> int:
        """How many items one user can move into or out of the candidates: min(Delta, kbar) (topk 2.0).

        Never a function of the table: with fewer than kbar keys it stays what it is (topk P7, P9).
        """
        return self.kbar if self.items_per_user is None else min(self.items_per_user, self.kbar)


def threshold(h_next: int, parameters: TopKParameters, precision: int = 64) -> tuple[Fraction, Fraction]:
    """Enclose h_bot, the count at which an item alone is returned as often as not.

    h_bot = h_next + 1 + ln(m / delta) / epsilon. With `h_next = 0` this is how far an item has to stand above
    the (kbar+1)-st, which is public; with the true `h_next` it is not, and must not be published (topk 5.2.8).
    The mechanism itself compares weights and never computes a logarithm.

    Args:
        h_next: the (kbar+1)-st largest count, 0 if there are fewer.
        parameters: the selection.
        precision: bits after the binary point of ln(m / delta).

    Returns:
        A lower and an upper bound, in users; they differ by a few 2**-precision / epsilon.

    Source: topk 2.0, tests 1 and 15.
    """
    epsilon, delta = parameters.epsilon, parameters.delta
    odds = Fraction(parameters.multiplier * delta.denominator, delta.numerator)
    lower, upper = (
        h_next + 1 + Fraction(bound * epsilon.denominator, epsilon.numerator << precision)
        for bound in log(odds, precision)
    )
    return lower, upper
