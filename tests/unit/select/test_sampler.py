"""The sampler's frequencies against its exact law, on fixed keyed bits."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from stream_dp.exact.bits import KeyedBits
from stream_dp.select import TopK, TopKParameters, candidates, limited_domain_top_k

RUNS = 40_000
# 1 - 10^-6 quantile of chi-square with 9 degrees of freedom: one key in a million rejects a correct sampler.
LIMIT = Fraction("44.81")


def chi_square(seen: Counter[TopK], law: dict[TopK, Fraction]) -> Fraction:
    assert seen.keys() <= law.keys()
    assert min(law.values()) * RUNS >= 5
    return sum(((seen[o] - RUNS * q) ** 2 / (RUNS * q) for o, q in law.items()), start=Fraction(0))


@pytest.mark.statistical
def test_frequencies_follow_the_exact_law_and_mutants_do_not(vectors: dict[str, Any]) -> None:
    row = next(row for row in vectors["exact_output_distributions_gumbel"] if row["name"] == "basic")
    law = {
        TopK(tuple(i.encode() for i in x["output"] if i != "_BOT_"), "_BOT_" in x["output"]): Fraction(x["p"])
        for x in row["outcomes"]
    }
    assert len(law) == 10
    rows, h_next = candidates({i.encode(): c for i, c in row["counts"].items()}, row["kbar"])

    def frequencies(context: bytes, h_next: int, epsilon: Fraction) -> Counter[TopK]:
        p = TopKParameters(row["k"], row["kbar"], epsilon, row["delta"], row["Delta"])
        bits = KeyedBits(b"sampler", context)
        return Counter(limited_domain_top_k(rows, h_next, p, bits) for _ in range(RUNS))

    assert chi_square(frequencies(b"shipped", h_next, row["eps"]), law) < LIMIT
    # Power: without the "+1" of the threshold, and with a scale that is off by a tenth.
    assert chi_square(frequencies(b"no +1", h_next - 1, row["eps"]), law) > 10 * LIMIT
    assert chi_square(frequencies(b"scale", h_next, row["eps"] * Fraction(11, 10)), law) > 2 * LIMIT
