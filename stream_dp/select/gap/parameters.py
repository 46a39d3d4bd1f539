"""What a top-k selection with gaps is asked to do, checked once, and the noise that this takes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.select.parameters import Neighbours


@dataclass(frozen=True, slots=True)
class GapParameters:
    """The public parameters of a top-k selection with gaps; fixed before any data are seen.

    Neighbouring tables differ by one user, who moves any number of counts, each by at most `sensitivity`.

    Attributes:
        k: items wanted, at least 1.
        epsilon: what a call costs, ids and gaps together, in (0, infinity).
        resolution: gaps are told in steps of 1 / resolution of a count, rounded down; a whole number of at least 1.
        monotone: whether a user moves all counts in one direction. Noise of half the scale is enough then. That is so
            for counts whose users are added or removed, and neither where users are replaced, nor with weights of both
            signs, nor where records are retracted: there the loss is exactly twice epsilon (specs/gap 6, no. 16).
        sensitivity: how far one user moves a count, a whole number of steps.
        neighbours: what `monotone` stands on: it is refused unless users are added or removed.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: specs/gap 1.2, 2, 3.3.
    """

    k: int
    epsilon: Fraction
    resolution: int
    monotone: bool = False
    sensitivity: Fraction = Fraction(1)
    neighbours: Neighbours = Neighbours.REPLACE

    def __post_init__(self) -> None:
        faults = [
            Fault(name, f"must be a whole number of at least 1, not {value!r}")
            for name, value in (("k", self.k), ("resolution", self.resolution))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1
        ]
        faults += [
            Fault(name, f"must be an exact fraction above 0, not {value!r}")
            for name, value in (("epsilon", self.epsilon), ("sensitivity", self.sensitivity))
            if not isinstance(value, Fraction) or value <= 0
        ]
        if not isinstance(self.neighbours, Neighbours):
            faults.append(Fault("neighbours", f"must be one of {', '.join(Neighbours)}, not {self.neighbours!r}"))
        if not isinstance(self.monotone, bool):
            faults.append(Fault("monotone", f"must be true or false, not {self.monotone!r}"))
        elif self.monotone and self.neighbours is not Neighbours.ADD_OR_REMOVE:
            faults.append(Fault("monotone", "holds only where neighbours add or remove a user: say so, or leave it"))
        if not faults and (self.sensitivity * self.resolution).denominator != 1:
            steps = f"steps of 1/{self.resolution}"
            faults.append(Fault("sensitivity", f"must be a whole number of {steps}, not {self.sensitivity}"))
        if faults:
            raise ParameterError(faults)

    @property
    def scale(self) -> Fraction:
        """The mean of the noise, in counts: k sensitivity / epsilon where monotone, else twice that (specs/gap 3.3)."""
        return Fraction((1 if self.monotone else 2) * self.k * self.sensitivity, self.epsilon)

    @property
    def exponent(self) -> Fraction:
        """s/t of specs/gap 2: the noise of a step more is less probable by the factor e^-exponent."""
        return Fraction(1, self.resolution * self.scale)

    @property
    def noise(self) -> Noise:
        """The noise on the grid of the steps."""
        return Noise(self.exponent.numerator, self.exponent.denominator)


@dataclass(frozen=True, slots=True)
class Noise:
    """Exponential noise on the grid on which a selection reckons: each step of the gaps cut into `parts`.

    Its mean is a whole number of these parts, so a draw in parts is `mean` times a clock of e^-1 and a remainder, and
    nothing has to be divided before the gaps are told. They are the same as if the steps had not been cut: of a number
    rounded down twice the coarser rounding stands (specs/gap 1.4, Lemma 10).

    Attributes:
        parts: parts of a step, s of specs/gap 2.
        mean: the scale of the noise in parts, t of specs/gap 2.
    """

    parts: int
    mean: int
