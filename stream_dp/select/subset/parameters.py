"""What a selection of a subset is asked to do, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.select.parameters import Neighbours


class Variant(StrEnum):
    """How the top-k itself scores among the subsets; every other one scores the same in both (specs/subset 1.4, E3)."""

    SIGNED = "signed"
    """By the best count that it leaves out: the wider the gap behind it, the more it stands out."""
    PAPER = "paper"
    """As if its worst count were the best one left out, as printed."""


class Noise(StrEnum):
    """The noise that a subset's score gets."""

    GUMBEL = "gumbel"
    """The exponential mechanism: bounded range, so epsilon^2 / 8 of zero-concentrated privacy (specs/subset 3.3)."""
    EXPONENTIAL = "exponential"
    """Permute-and-flip: about a tenth less epsilon for the same result, and no bounded range (specs/subset 3.3)."""


@dataclass(frozen=True, slots=True)
class SubsetParameters:
    """The public parameters of a canonical Lipschitz selection; fixed before any data are seen (specs/subset 1).

    A subset y that leaves out a best count M and lets in a worst count m scores
    -(epsilon / (2 sensitivity)) ((1 - gamma) M - gamma m), and the best noisy score wins.

    Attributes:
        k: items wanted, at least 1.
        epsilon: the price of the selection, at least 0; at 0 every subset comes equally often.
        gamma: how much of the score is about what is let in, the rest about what is left out; from 0 to 1.
        variant: how the top-k itself scores.
        noise: what the scores get.
        sensitivity: half the length of the interval in which one user moves a count, in users.
        neighbours: what the guarantee is about.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.
    """

    k: int
    epsilon: Fraction
    gamma: Fraction = Fraction(3, 4)
    variant: Variant = Variant.SIGNED
    noise: Noise = Noise.GUMBEL
    sensitivity: Fraction = Fraction(1, 2)
    neighbours: Neighbours = Neighbours.ADD_OR_REMOVE

    def __post_init__(self) -> None:
        faults = []
        if not isinstance(self.k, int) or isinstance(self.k, bool) or self.k < 1:
            faults.append(Fault("k", f"must be a whole number of at least 1, not {self.k!r}"))
        if not isinstance(self.epsilon, Fraction) or self.epsilon < 0:
            faults.append(Fault("epsilon", f"must be an exact fraction of at least 0, not {self.epsilon!r}"))
        if not isinstance(self.gamma, Fraction) or not 0 <= self.gamma <= 1:
            faults.append(Fault("gamma", f"must be an exact fraction from 0 to 1, not {self.gamma!r}"))
        for name, value, kind in (
            ("variant", self.variant, Variant),
            ("noise", self.noise, Noise),
            ("neighbours", self.neighbours, Neighbours),
        ):
            if not isinstance(value, kind):
                faults.append(Fault(name, f"must be one of {', '.join(kind)}, not {value!r}"))
        if not isinstance(self.sensitivity, Fraction) or self.sensitivity <= 0:
            faults.append(Fault("sensitivity", f"must be an exact fraction above 0, not {self.sensitivity!r}"))
        elif isinstance(self.neighbours, Neighbours) and self.sensitivity < self.neighbours.least_sensitivity:
            least = self.neighbours.least_sensitivity
            faults.append(
                Fault(
                    "sensitivity", f"must be at least {least} for neighbours {self.neighbours}, not {self.sensitivity}"
                )
            )
        if faults:
            raise ParameterError(faults)

    @property
    def rate_in(self) -> Fraction:
        """What one user of the worst count let in is worth."""
        return Fraction(self.gamma * self.epsilon, 2 * self.sensitivity)

    @property
    def rate_out(self) -> Fraction:
        """What one user of the best count left out costs."""
        return Fraction((1 - self.gamma) * self.epsilon, 2 * self.sensitivity)
