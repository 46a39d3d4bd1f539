"""Top-k over an unknown domain with Gumbel noise: Algorithms 1 and 5 by exact peeling (specs/topk 2.1 to 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stream_dp.errors import StateError
from stream_dp.exact.bits import BitSource
from stream_dp.select.candidates import Candidates, Item, Row
from stream_dp.select.parameters import Domain, TopKParameters
from stream_dp.select.peeling import BOTTOM, Bottom, Peeling


@dataclass(frozen=True, slots=True)
class TopK:
    """What a selection returns; all of it is covered by the guarantee, the order included.

    Attributes:
        items: the items drawn, in the order of the draws (best first), at most k.
        bottom: whether bottom was drawn, i.e. fewer than k items stand out; it is an output and it costs a draw.
    """

    items: tuple[Item, ...]
    bottom: bool

    @property
    def draws(self) -> int:
        """What the selection has cost, in draws: one per item and one for bottom (specs/topk 2.7, P15, P16)."""
        return len(self.items) + self.bottom


def limited_domain_top_k(rows: Sequence[Row], h_next: int, p: TopKParameters, bits: BitSource) -> TopK:
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


def peel(rows: Candidates, k: int, draw: Callable[[], int]) -> TopK:
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
            return TopK(tuple(rows.items_at(places)), bottom=True)
        places.append(place)
    return TopK(tuple(rows.items_at(places)), bottom=False)


def checked(rows: Sequence[Row], h_next: int, kbar: int, domain: Domain) -> Candidates:
    """Refuse rows that would void the sensitivity lemmas (specs/topk P6, P8, P9, P10, test 17).

    Raises:
        StateError: the rows are not what `candidates` returns.
    """
    if not isinstance(h_next, int) or h_next < 0:
        raise StateError("h_next must be a whole number of users")
    given = Candidates.of(rows)
    if len(given) > kbar:
        raise StateError(f"{len(given)} candidates were given, kbar is {kbar}")
    least = {Domain.WHOLE: h_next, Domain.POSITIVE: max(h_next, 1), Domain.STRICT: h_next + 1}[domain]
    if len(given) and given.counts[-1] < least:
        raise StateError(f"a candidate's count must be at least {_least_text(domain)}")
    if len(given) < kbar and h_next != 0 and domain is not Domain.STRICT:
        raise StateError("fewer candidates than kbar leave no count to follow them, so h_next must be 0")
    return given


def _least_text(domain: Domain) -> str:
    return {Domain.WHOLE: "h_next", Domain.POSITIVE: "1, positive, and at least h_next", Domain.STRICT: "h_next + 1"}[
        domain
    ]
