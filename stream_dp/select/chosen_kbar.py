"""A private choice of kbar before the selection: Algorithm 6 with sign and index corrected (specs/topk 2.6, E1, E2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.comparison import choose
from stream_dp.exact.reals import exp_neg
from stream_dp.select.candidates import Row
from stream_dp.select.limited_domain import TopK, checked, limited_domain_top_k
from stream_dp.select.parameters import Domain, TopKParameters


@dataclass(frozen=True, slots=True)
class ChosenKbarParameters:
    """The public parameters of a selection that chooses its kbar, for users who move any number of counts.

    Attributes:
        k: draws of a call, at least 2: one for kbar, so that at most k - 1 items come out.
        largest_kbar: up to which place the mechanism may look, at least `k`.
        epsilon: price of one draw, in (0, infinity).
        delta: chance, per call, of naming an item that only one of two neighbouring tables has, in (0, 1).

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: specs/topk 2.6.
    """

    k: int
    largest_kbar: int
    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        faults = []
        try:
            TopKParameters(self.k, self.largest_kbar, self.epsilon, self.delta)
        except ParameterError as error:
            faults = [Fault({"kbar": "largest_kbar"}.get(one.path, one.path), one.message) for one in error.faults]
        if self.k == 1:
            faults.append(Fault("k", "must be at least 2: one draw is for kbar"))
        if faults:
            raise ParameterError(faults)

    def selection(self, kbar: int) -> TopKParameters:
        """The selection that follows the choice."""
        return TopKParameters(self.k - 1, kbar, self.epsilon, self.delta)


@dataclass(frozen=True, slots=True)
class ChosenTopK:
    """What the selection returns; all of it is covered by the guarantee, kbar included.

    Attributes:
        kbar: how many of the largest counts the selection looked at.
        top: what it drew, at most k - 1 items.
    """

    kbar: int
    top: TopK

    @property
    def draws(self) -> int:
        """What the call has cost, in draws: those of the selection and one for kbar (specs/topk 2.7)."""
        return self.top.draws + 1


def chosen_kbar_top_k(rows: Sequence[Row], h_next: int, p: ChosenKbarParameters, bits: BitSource) -> ChosenTopK:
    """Choose kbar just before a drop of the counts, privately, then select up to k - 1 items as `limited_domain_top_k`.

    Neighbours add or remove one user, who moves any number of counts, each by at most 1 and all in one direction. A
    kbar of i is chosen with probability proportional to e^(-epsilon h_(i+1)) / i, exactly: the threshold that it
    gives, h_(i+1) + 1 + ln(i / delta) / epsilon, is best low.

    Args:
        rows: at most `p.largest_kbar` candidates, as `candidates` returns them.
        h_next: the count that follows them, 0 if there are fewer.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        The kbar and the selection; `draws` is what the call costs, between 2 and k.

    Raises:
        StateError: the rows are not what `candidates` returns for these parameters; nothing has been drawn.

    Guarantee: that of k draws in `limited_domain_top_k`, for what is returned together. Time: an exponential for each
    distinct count up to `largest_kbar`. Source: specs/topk 2.6 (Algorithm 6, Lemma 6.8, footnote 7).
    """
    given = checked(rows, h_next, p.largest_kbar, Domain.POSITIVE)
    following = [*given.counts[p.k :].tolist(), h_next]  # h_(k+1), h_(k+2), ...
    following += [0] * (p.largest_kbar - p.k + 1 - len(following))
    kbar = p.k + choose(lambda precision: kbar_weights(following, p, precision), bits)
    chosen, then = given.first(kbar) if kbar < len(given) else (given, h_next)
    return ChosenTopK(kbar, limited_domain_top_k(chosen, then, p.selection(kbar), bits))


def kbar_weights(following: Sequence[int], p: ChosenKbarParameters, precision: int) -> list[tuple[int, int]]:
    """Enclose the weights e^(-epsilon (h_(i+1) - least)) / i of kbar = i, i = k, ..., `largest_kbar`.

    Args:
        following: h_(i+1) for each of these i, falling.
        p: the selection's parameters.
        precision: the weights are enclosed at 2^precision.
    """
    least = following[-1]
    powers = {count: exp_neg(p.epsilon * (count - least), precision) for count in set(following)}
    weights = enumerate((powers[count] for count in following), start=p.k)
    return [(lower // kbar, -(-upper // kbar)) for kbar, (lower, upper) in weights]
