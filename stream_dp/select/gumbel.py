"""Top-k with Gumbel noise, drawn by exact peeling: over an unknown domain, over a public list, with a private kbar."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Protocol

from stream_dp.errors import Fault, StateError
from stream_dp.exact.bits import BitSource
from stream_dp.exact.checks import chance_faults, member_faults, positive_faults, refuse, whole_faults
from stream_dp.exact.coins import choose
from stream_dp.exact.reals import exp_neg, log
from stream_dp.select.candidates import Candidates, Domain, Item, Name, Row, candidates
from stream_dp.select.peeling import BOTTOM, Bottom, Peeling


@dataclass(frozen=True, slots=True)
class TopKParameters:
    """The public parameters of a top-k selection with Gumbel noise; fixed before any data are seen (specs/topk 1.3).

    Neighbouring tables differ by one user, who moves at most `items_per_user` counts, each by at most 1.

    Attributes:
        k: items wanted, at least 1.
        kbar: how many of the largest counts the mechanism may look at, at least `k`.
        epsilon: price of one draw, in (0, infinity); the noise and the threshold both use it (specs/topk P5).
        delta: chance, per call, of naming an item that only one of two neighbouring tables has, in (0, 1).
        items_per_user: bound on the counts one user moves, or None where nothing bounds it.
        domain: which of the kbar largest counts are candidates.

    Raises:
        ParameterError: a parameter is outside its range or is not exact; every fault is listed with its name.

    Source: specs/topk 1.2, 1.3, 2.0.
    """

    k: int
    kbar: int
    epsilon: Fraction
    delta: Fraction
    items_per_user: int | None = None
    domain: Domain = Domain.POSITIVE

    def __post_init__(self) -> None:
        bound = {} if self.items_per_user is None else {"items_per_user": self.items_per_user}
        faults = rank_faults(self.k, self.kbar, **bound) + price_faults(self.epsilon, self.delta)
        refuse(faults + member_faults(Domain, domain=self.domain))

    @property
    def multiplier(self) -> int:
        """Number of items that one user can move into or out of the candidates: min(Delta, kbar) (specs/topk 2.0).

        In the strict domain kbar whatever the user's bound is: one count can evict all that equal it (specs/topk P1).
        Never a function of the table: with fewer than kbar keys it stays what it is (specs/topk P7, P9).
        """
        if self.items_per_user is None or self.domain is Domain.STRICT:
            return self.kbar
        return min(self.items_per_user, self.kbar)

    @property
    def odds(self) -> Fraction:
        """The weight m / delta of bottom against an item of h_next + 1 users."""
        return Fraction(self.multiplier, self.delta)


class Thresholded(Protocol):
    """Parameters of a selection that has a threshold."""

    @property
    def epsilon(self) -> Fraction:
        """The selection's epsilon."""

    @property
    def odds(self) -> Fraction:
        """e^(epsilon (h_bot - h_next - 1))."""


def threshold(h_next: int, parameters: Thresholded, precision: int = 64) -> tuple[Fraction, Fraction]:
    """Enclose h_bot, the count at which an item alone is returned as often as not.

    h_bot = h_next + 1 + ln(odds) / epsilon, where odds are m / delta, or 1 / (2 delta) for the fixed threshold. With
    `h_next = 0` this is how far an item has to stand above the (kbar+1)-st, which is public; with the true `h_next`
    it is not, and must not be published (specs/topk 5.2.8). The peeling form compares weights and computes no
    logarithm.

    Args:
        h_next: the (kbar+1)-st largest count, 0 if there are fewer.
        parameters: the selection.
        precision: bits after the binary point of the logarithm.

    Returns:
        A lower and an upper bound, in users; they differ by a few 2**-precision / epsilon.

    Source: specs/topk 2.0, tests 1, 2 and 15.
    """
    epsilon = parameters.epsilon
    lower, upper = (
        h_next + 1 + Fraction(bound * epsilon.denominator, epsilon.numerator << precision)
        for bound in _log(parameters.odds, precision)
    )
    return lower, upper


_log = lru_cache(maxsize=64)(log)
"""A selection compares with its threshold many times."""


def rank_faults(k: int, kbar: int, **bound: int) -> list[Fault]:
    """Return the faults of the ranks that a selection looks at, and of a bound on the items of a user."""
    faults = whole_faults(k=k, kbar=kbar, **bound)
    if not faults and kbar < k:
        faults.append(Fault("kbar", f"must be at least k = {k}, not {kbar}"))
    return faults


def price_faults(epsilon: Fraction, delta: Fraction) -> list[Fault]:
    """Return the faults of a price."""
    return positive_faults(epsilon=epsilon) + chance_faults(delta=delta)


_PRECISION = 128


def lead_for_inclusion(p: Thresholded, chance: Fraction) -> Fraction:
    """Return the lead on the (kbar+1)-st count with which a lone item is returned with a chance.

    1 + (ln(odds) + ln(chance / (1 - chance))) / epsilon, in users, rounded up; one half is the threshold itself.

    Args:
        p: parameters of a selection with Gumbel noise.
        chance: in (0, 1).

    Source: specs/topk 4 ("single item against bottom").
    """
    return 1 + Fraction(_log_above(p.odds * Fraction(chance, 1 - chance)), p.epsilon)


def shortfall(p: TopKParameters, beta: Fraction) -> Fraction:
    """Return a distance below the k-th largest count: with probability 1 - beta no returned item lies farther.

    ln(k kbar / beta) / epsilon, in users, rounded up, for beta in (0, 1).

    Source: specs/topk 4 (Lemma 8.1a).
    """
    return Fraction(_log_above(Fraction(p.k * p.kbar, beta)), p.epsilon)


def lead_for_all(p: TopKParameters, beta: Fraction) -> Fraction:
    """Return the lead of the k-th largest count on the (kbar+1)-st for k items with probability 1 - beta.

    1 + ln(m / delta) / epsilon + ln(k / beta) / epsilon, in users, rounded up, for beta in (0, 1).

    Source: specs/topk 4 (Lemma 8.1b).
    """
    return threshold(0, p, _PRECISION)[1] + Fraction(_log_above(Fraction(p.k, beta)), p.epsilon)


def chance_of_noise(p: TopKParameters) -> Fraction:
    """The chance that a table in which all counts are equal gives anything but bottom, rounded up.

    kbar / (kbar + e^epsilon m / delta). Source: specs/topk 4 ("flat histogram").
    """
    _, upper = exp_neg(p.epsilon, _PRECISION)
    weight = p.kbar * Fraction(upper, 1 << _PRECISION)
    return Fraction(weight, weight + p.odds)


def _log_above(q: Fraction) -> Fraction:
    return Fraction(log(q, _PRECISION)[1], 1 << _PRECISION)


@dataclass(frozen=True, slots=True)
class GumbelTopK:
    """Result of a selection with Gumbel noise; the guarantee covers all of it, the order included.

    Attributes:
        items: the items drawn, in the order of the draws (best first), at most k.
        bottom: whether bottom was drawn, i.e. fewer than k items stand out; it is an output and it costs a draw.
    """

    items: tuple[Item, ...]
    bottom: bool

    @property
    def draws(self) -> int:
        """Cost of the selection in draws: one per item and one for bottom (specs/topk 2.7, P15, P16)."""
        return len(self.items) + self.bottom


def limited_domain_top_k(rows: Iterable[Row], h_next: int, p: TopKParameters, bits: BitSource) -> GumbelTopK:
    """Select up to k of the most frequent items of an unknown domain, in order, without their counts.

    Neighbours add or remove one user, who moves at most `p.items_per_user` counts (any number if None), each by
    at most 1 and all in one direction. Each draw picks item i with probability proportional to e^(epsilon h_i)
    and bottom with e^(epsilon h_bot), h_bot = h_next + 1 + ln(m/delta)/epsilon, exactly; bottom ends the list.
    The law is that of the one-shot form with Gumbel noise on items and threshold (Lemma 5.4).

    The output carries no counts and nothing else may be derived from the rows: not their number, not h_next, not
    how long the call took (specs/topk 5.2.8).

    Args:
        rows: at most `p.kbar` candidates, as `candidates` returns them for `p.domain`; its own rows are not walked
            through again, any others are checked one by one.
        h_next: the (kbar+1)-st largest count, 0 if there are fewer than that.
        p: the selection's parameters.
        bits: source of uniform bits, fresh for every call.

    Returns:
        The items drawn and whether bottom was; `draws` is what the call costs, between 1 and k.

    Raises:
        StateError: the rows are not what `candidates` returns for these parameters; nothing has been drawn.

    Guarantee: for r = `draws`, the outputs of that length lose at most r (epsilon + ln(1 + delta)), outside an
    event of probability delta / (1 + delta) per call; so (k (epsilon + ln(1 + delta)), delta)-DP, and pay what
    you get over a ledger. Time: O(k log n) small integer operations and k exponentials, and two passes over the
    counts as arrays to name what was drawn. Source: specs/topk 2.2, 2.3, 3.4 (Durfee and Rogers 2019, Algorithms 1, 3,
    5).
    """
    given = checked(rows, h_next, p.kbar, p.domain)
    peeling = Peeling(given, p.epsilon, Bottom(h_next + 1, p.odds), bits)
    return peel(given, p.k, peeling.draw)


def peel(rows: Candidates, k: int, draw: Callable[[], int]) -> GumbelTopK:
    """Algorithm 3: draw until k items or bottom have come, and name the items.

    Args:
        rows: the candidates.
        k: items wanted.
        draw: gives a place that it has not given before, or bottom.

    Source: specs/topk 2.1 (Algorithm 3).
    """
    places: list[int] = []
    while len(places) < k:
        place = draw()
        if place == BOTTOM:
            return GumbelTopK(tuple(rows.items_at(places)), bottom=True)
        places.append(place)
    return GumbelTopK(tuple(rows.items_at(places)), bottom=False)


def checked(rows: Iterable[Row], h_next: int, kbar: int, domain: Domain) -> Candidates:
    """Refuse rows that would void the sensitivity lemmas (specs/topk P6, P8, P9, P10, test 17).

    Raises:
        StateError: the rows are not what `candidates` returns.
    """
    if not isinstance(h_next, int) or h_next < 0:
        raise StateError("h_next must be a whole number of users")
    given = Candidates.of(rows)
    if len(given) > kbar:
        raise StateError(f"{len(given)} candidates were given, kbar is {kbar}")
    least, words = {
        Domain.WHOLE: (h_next, "h_next"),
        Domain.POSITIVE: (max(h_next, 1), "1, positive, and at least h_next"),
        Domain.STRICT: (h_next + 1, "h_next + 1"),
    }[domain]
    if len(given) and given.counts[-1] < least:
        raise StateError(f"a candidate's count must be at least {words}")
    if len(given) < kbar and h_next != 0 and domain is not Domain.STRICT:
        raise StateError("fewer candidates than kbar leave no count to follow them, so h_next must be 0")
    return given


def known_domain_top_k(counts: Mapping[Name, int], k: int, epsilon: Fraction, bits: BitSource) -> GumbelTopK:
    """Select k items of a catalogue, in order, without their counts.

    Neighbours add or remove one user, who moves any number of counts, each by at most 1 and all in one direction. The
    law is that of Gumbel noise of scale 1 / epsilon on all counts, the k largest first.

    Args:
        counts: every item of the public catalogue, which no data have shaped, with its number of users, zeros too.
        k: items wanted, at least 1 and at most the size of the catalogue.
        epsilon: price of one draw, in (0, infinity).
        bits: source of uniform bits, fresh for every call.

    Returns:
        k items; bottom never. `draws` is k.

    Raises:
        ParameterError: k or epsilon is outside its range or not exact.
        StateError: a count is not a whole number of users.

    Guarantee: k draws of an epsilon-bounded-range mechanism, so k epsilon-DP. Time: as `limited_domain_top_k`.
    Source: specs/topk 2.8 (Corollary 4.1, Lemmas 4.2 and 4.4).
    """
    faults = []
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= len(counts):
        faults.append(Fault("k", f"must be a whole number from 1 to the catalogue's {len(counts)}, not {k!r}"))
    refuse(faults + positive_faults(epsilon=epsilon))
    rows, _ = candidates(counts, len(counts), Domain.WHOLE)
    return peel(rows, k, Peeling(rows, epsilon, None, bits).draw)


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
        faults = rank_faults(self.k, self.largest_kbar) + price_faults(self.epsilon, self.delta)
        faults = [Fault("largest_kbar", one.message) if one.path == "kbar" else one for one in faults]
        if self.k == 1:
            faults.append(Fault("k", "must be at least 2: one draw is for kbar"))
        refuse(faults)

    def selection(self, kbar: int) -> TopKParameters:
        """The selection that follows the choice."""
        return TopKParameters(self.k - 1, kbar, self.epsilon, self.delta)


@dataclass(frozen=True, slots=True)
class ChosenTopK:
    """Result of a selection that chooses its kbar; the guarantee covers all of it, kbar included.

    Attributes:
        kbar: how many of the largest counts the selection looked at.
        top: what it drew, at most k - 1 items.
    """

    kbar: int
    top: GumbelTopK

    @property
    def draws(self) -> int:
        """Cost of the call in draws: those of the selection and one for kbar (specs/topk 2.7)."""
        return self.top.draws + 1


def chosen_kbar_top_k(rows: Iterable[Row], h_next: int, p: ChosenKbarParameters, bits: BitSource) -> ChosenTopK:
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
