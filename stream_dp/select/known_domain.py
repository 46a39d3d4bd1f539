"""Top-k among the items of a public catalogue: no threshold and no bottom (specs/topk 2.8)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from stream_dp.errors import Fault, ParameterError
from stream_dp.exact.bits import BitSource
from stream_dp.select.candidates import Name, candidates
from stream_dp.select.limited_domain import TopK, peel
from stream_dp.select.parameters import Domain
from stream_dp.select.peeling import Peeling


def known_domain_top_k(counts: Mapping[Name, int], k: int, epsilon: Fraction, bits: BitSource) -> TopK:
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
    if not isinstance(epsilon, Fraction) or epsilon <= 0:
        faults.append(Fault("epsilon", f"must be an exact fraction above 0, not {epsilon!r}"))
    if faults:
        raise ParameterError(faults)
    rows, _ = candidates(counts, len(counts), Domain.WHOLE)
    return peel(rows, k, Peeling(rows, epsilon, None, bits).draw)
