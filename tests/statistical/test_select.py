"""The selections as black boxes, against their exact laws, on keyed bits: the same on every run.

A chi-square test rejects a right sampler with probability 10^-6, a frequency is accepted within 5 standard errors
(6 x 10^-7); with the bits fixed this is decided once and for all. Each has a mutant that is refused. The short form
of each test always runs, the long one (200,000 runs and more) with `make slow`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import pytest

from stream_dp.exact import reals
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.select.candidates import Domain, Item, candidates
from stream_dp.select.gumbel import (
    ChosenKbarParameters,
    GumbelTopK,
    TopKParameters,
    chosen_kbar_top_k,
    known_domain_top_k,
    lead_for_all,
    limited_domain_top_k,
    shortfall,
    threshold,
)
from stream_dp.select.one_shot import (
    FixedThresholdParameters,
    LaplaceNoise,
    LaplaceParameters,
    NoisyThreshold,
    NoisyTopK,
    fixed_threshold_top_k,
    laplace_top_k,
    noisy_top_k,
)
from tests.support.chance import pooled_p_value
from tests.support.chosen import kept_ordinary
from tests.support.items import text

pytestmark = pytest.mark.statistical

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "topk.json").read_text(), parse_float=Fraction)
DOMAINS = {"alg1": Domain.WHOLE, "positive": Domain.POSITIVE, "strict": Domain.STRICT}
CASES = {row["name"]: row for row in VECTORS["exact_output_distributions_gumbel"]}
SIGNIFICANCE = 1e-6

long_form = pytest.mark.slow


def bits(*context: object) -> BitSource:
    return KeyedBits(b"select", repr(context).encode())


def table(counts: dict[str, int]) -> dict[bytes, int]:
    return {item.encode(): count for item, count in counts.items()}


def listed(row: dict[str, Any]) -> dict[tuple[str, ...], float]:
    return {tuple(one["output"]): float(one["p"]) for one in row["outcomes"]}


def symbols(output: GumbelTopK | NoisyTopK) -> tuple[str, ...]:
    return (*(text(item) for item in output.items), *["_BOT_"] * output.bottom)


def parameters(row: dict[str, Any]) -> TopKParameters:
    domain = DOMAINS[row["domain_rule"]]
    return TopKParameters(row["k"], row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"], domain)


def frequencies(draw: Callable[[BitSource], Any], runs: int, *context: object) -> Counter[Any]:
    source = bits(runs, *context)
    return Counter(draw(source) for _ in range(runs))


def z_score(found: int, runs: int, chance: float) -> float:
    return (found - runs * chance) / sqrt(runs * chance * (1 - chance))


@pytest.mark.parametrize("runs", [4_000, pytest.param(200_000, marks=long_form)])
@pytest.mark.parametrize(
    "name", kept_ordinary(["basic", "flat"], [name for name, row in CASES.items() if len(row["outcomes"]) > 1])
)
def test_the_output_law_of_every_listed_case(name: str, runs: int) -> None:
    row = CASES[name]
    p = parameters(row)
    rows, h_next = candidates(table(row["counts"]), p.kbar, p.domain)
    found = frequencies(lambda source: symbols(limited_domain_top_k(rows, h_next, p, source)), runs, name)
    assert found.keys() <= listed(row).keys()
    assert pooled_p_value(found, listed(row)) > SIGNIFICANCE
    assert all(abs(z_score(found[o], runs, q)) < 5 for o, q in listed(row).items() if runs * q > 30)


@pytest.mark.slow
@pytest.mark.parametrize("runs", [20_000, pytest.param(400_000, marks=long_form)])
def test_the_law_refuses_a_wrong_threshold_and_a_wrong_scale(runs: int) -> None:
    row = CASES["basic"]
    p = parameters(row)
    rows, h_next = candidates(table(row["counts"]), p.kbar, p.domain)

    def found(h_next: int, epsilon: Fraction) -> Counter[Any]:
        mutant = TopKParameters(p.k, p.kbar, epsilon, p.delta, p.items_per_user)
        return frequencies(lambda b: symbols(limited_domain_top_k(rows, h_next, mutant, b)), runs, h_next, epsilon)

    smoke = found(h_next, p.epsilon)
    assert max(abs(z_score(smoke[o], runs, q)) for o, q in listed(row).items()) < 5
    assert pooled_p_value(smoke, listed(row)) > SIGNIFICANCE
    # The list is in the order of the draws: [a, b] and [b, a] are different outputs with different chances.
    assert z_score(smoke["a", "b"], runs, listed(row)["b", "a"]) > 2
    assert pooled_p_value(found(h_next - 1, p.epsilon), listed(row)) < SIGNIFICANCE
    assert pooled_p_value(found(h_next, p.epsilon * Fraction(11, 10)), listed(row)) < SIGNIFICANCE


class GumbelNoise:
    """A Gumbel number of scale 1 / epsilon, -ln(ln(1/U)) / epsilon, its uniform U drawn as far as it decides."""

    def __init__(self, epsilon: Fraction, source: BitSource) -> None:
        self._epsilon, self._source, self._uniform, self._size = epsilon, source, source.bits(64), 64

    def enclose(self, precision: int) -> tuple[Fraction, Fraction]:
        while self._size < precision or not 0 < self._uniform < (1 << self._size) - 1:
            self._uniform, self._size = self._uniform << 64 | self._source.bits(64), self._size + 64
        whole = 1 << self._size
        inner = (
            Fraction(reals.log(Fraction(whole, self._uniform + 1), self._size + precision)[0]),
            Fraction(reals.log(Fraction(whole, self._uniform), self._size + precision)[1]),
        )
        lower = -Fraction(reals.log(inner[1] / (1 << self._size + precision), precision)[1])
        upper = -Fraction(reals.log(inner[0] / (1 << self._size + precision), precision)[0])
        return tuple(bound / (1 << precision) / self._epsilon for bound in (lower, upper))  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1_200, pytest.param(20_000, marks=long_form)])
def test_noise_on_every_score_at_once_has_the_law_of_the_draws(runs: int) -> None:
    row = CASES["basic"]
    p = parameters(row)
    rows, h_next = candidates(table(row["counts"]), p.kbar, p.domain)
    listed_rows = list(rows)

    def one_shot(epsilon: Fraction, source: BitSource) -> tuple[str, ...]:
        noise = [GumbelNoise(epsilon, source) for _ in listed_rows]
        return symbols(noisy_top_k(listed_rows, noise, NoisyThreshold(h_next, p, GumbelNoise(epsilon, source)), p.k))

    found = frequencies(lambda source: one_shot(p.epsilon, source), runs, "one shot")
    assert pooled_p_value(found, listed(row)) > SIGNIFICANCE
    # The two samplers against each other, each cell in standard errors of the difference.
    peeled = frequencies(lambda source: symbols(limited_domain_top_k(listed_rows, h_next, p, source)), runs, "peeled")
    statistic = sum((found[o] - peeled[o]) ** 2 / (found[o] + peeled[o]) for o in found | peeled)
    assert statistic < 9 + 5 * sqrt(2 * 9) + 20
    mutant = frequencies(lambda source: one_shot(p.epsilon * Fraction(2, 3), source), runs, "scale")
    assert pooled_p_value(mutant, listed(row)) < SIGNIFICANCE


def test_gumbel_quantiles_and_tail() -> None:
    facts = VECTORS["gumbel_facts"]

    class At:
        def __init__(self, quantile: Fraction) -> None:
            self.quantile, self.given = quantile, 0

        def bits(self, n: int) -> int:
            self.given += n
            return int(self.quantile * (1 << self.given)) & ((1 << n) - 1)

    for quantile, value in facts["quantiles_times_eps"].items():
        lower, upper = GumbelNoise(Fraction(1), At(Fraction(quantile))).enclose(64)
        assert abs(lower - value) < Fraction("1e-9")
        assert upper - lower < Fraction("1e-12")
    for size, value in facts["max_value_times_eps_by_uniform_bits"].items():
        # A float of so many bits would stop here; the bits that follow lead beyond what the threshold asks for.
        ones = 1 - Fraction(1, 1 << int(size))
        assert abs(GumbelNoise(Fraction(1), At(ones)).enclose(64)[0] - value) < Fraction("1e-6")
    lower, _ = GumbelNoise(Fraction(1), At(1 - Fraction(1, 1 << 300))).enclose(64)
    assert lower > 200 > facts["tail_needed_times_eps_for_kbar_1000_delta_1e_8"]
    assert abs(float(facts["tail_prob_above_10"]) - (1 - exp(-exp(-10)))) < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("runs", [2_000, pytest.param(200_000, marks=pytest.mark.nightly)])
def test_the_laplace_variant_follows_its_law_and_not_that_of_gumbel_noise(runs: int) -> None:
    (row,) = VECTORS["exact_output_distributions_laplace"]
    p = LaplaceParameters(row["k"], row["kbar"], Fraction(row["eps"]), row["delta"], row["Delta"])
    rows, h_next = candidates(table(row["counts"]), p.kbar)
    found = frequencies(lambda source: symbols(laplace_top_k(rows, h_next, p, source)), runs, "laplace")
    assert pooled_p_value(found, listed(row)) > SIGNIFICANCE
    gumbel = TopKParameters(p.k, p.kbar, p.epsilon, p.delta, p.items_per_user)
    mutant = frequencies(
        lambda source: symbols(limited_domain_top_k(rows, h_next, gumbel, source)), 10 * runs, "mutant"
    )
    assert pooled_p_value(mutant, listed(row)) < SIGNIFICANCE


@pytest.mark.parametrize("runs", [3_000, pytest.param(100_000, marks=long_form)])
def test_laplace_noise_has_its_mean_its_variance_and_its_quantiles(runs: int) -> None:
    epsilon, source = Fraction(1, 5), bits("noise", runs)
    found = [float(LaplaceNoise(epsilon, source.bits(64), source).enclose(64)[0]) / 5 for _ in range(runs)]
    assert abs(sum(found)) < 5 * sqrt(2 * runs)
    assert abs(sum(z * z for z in found) - 2 * runs) < 5 * sqrt(20 * runs)
    edges = [-3.0, -1.5, -0.7, -0.3, 0.0, 0.3, 0.7, 1.5, 3.0]
    below = [exp(z) / 2 if z < 0 else 1 - exp(-z) / 2 for z in edges]
    law = dict(enumerate(b - a for a, b in zip([0.0, *below], [*below, 1.0], strict=True)))

    def cells(scale: float) -> Counter[int]:
        return Counter(sum(z * scale > edge for edge in edges) for z in found)

    assert pooled_p_value(cells(1), law) > SIGNIFICANCE
    assert pooled_p_value(cells(1.3), law) < SIGNIFICANCE


@pytest.mark.parametrize("runs", [2_000, pytest.param(50_000, marks=long_form)])
def test_the_fixed_threshold_takes_each_item_with_its_own_chance(runs: int) -> None:
    p = FixedThresholdParameters(3, Fraction(1, 2), Fraction(1, 50))
    counts = {b"a": 12, b"b": 9, b"c": 7, b"d": 3}
    rows, h_next = candidates(counts, p.k, Domain.STRICT)
    bar = float(threshold(h_next, p)[0])
    found = Counter[Item]()
    source = bits("fixed", runs)
    for _ in range(runs):
        found.update(fixed_threshold_top_k(rows, h_next, p, source))
    for item, count in rows:
        gap = 0.5 * (count - bar)
        chance = exp(gap) / 2 if gap < 0 else 1 - exp(-gap) / 2
        assert abs(z_score(found[item], runs, chance)) < 5
        noiseless = 1 - exp(-exp(gap))  # Gumbel noise in its place
        assert abs(z_score(found[item], runs, noiseless)) > 5


@pytest.mark.parametrize("runs", [3_000, pytest.param(100_000, marks=long_form)])
def test_kbar_is_chosen_with_the_listed_frequencies(runs: int) -> None:
    row = VECTORS["alg6_kbar_selection"]
    p = ChosenKbarParameters(row["k"], row["dbar"], Fraction(row["eps"]), row["delta"])
    counts = {b"%02d" % i: count for i, count in enumerate(row["sorted_counts"])}
    rows, h_next = candidates(counts, p.largest_kbar)
    found = frequencies(lambda source: chosen_kbar_top_k(rows, h_next, p, source).kbar, runs, "kbar")
    law = {int(kbar): float(chance) for kbar, chance in row["prob_recommended_h_i_plus_1"].items()}
    assert pooled_p_value(found, law) > SIGNIFICANCE
    # Scored by its own count, as printed, 6 would hardly ever be chosen and 8 far more often (E2).
    assert abs(z_score(found[8], runs, float(row["prob_literal_h_i"]["8"]))) > 5


@pytest.mark.slow
@pytest.mark.parametrize("runs", [5_000, pytest.param(200_000, marks=long_form)])
def test_the_known_domain_follows_successive_exponential_draws(runs: int) -> None:
    counts = {b"a": 5, b"b": 4, b"c": 1, b"d": 0}
    weight = {item: exp(0.5 * count) for item, count in counts.items()}
    total = sum(weight.values())
    law = {(i, j): weight[i] / total * weight[j] / (total - weight[i]) for i in counts for j in counts if i != j}

    def draw(epsilon: Fraction) -> Callable[[BitSource], tuple[Item, ...]]:
        return lambda source: known_domain_top_k(counts, 2, epsilon, source).items

    assert pooled_p_value(frequencies(draw(Fraction(1, 2)), runs, "known"), law) > SIGNIFICANCE
    assert pooled_p_value(frequencies(draw(Fraction(2, 3)), runs, "scale"), law) < SIGNIFICANCE


@pytest.mark.parametrize("runs", [10_000, pytest.param(1_000_000, marks=long_form)])
def test_an_item_at_the_edge_comes_as_rarely_as_allowed_and_none_beyond_it_ever(runs: int) -> None:
    p = TopKParameters(2, 2, Fraction(1), Fraction(1, 20))
    rows, h_next = candidates({b"a": 100, b"b": 10, b"c": 11, b"d": 0}, p.kbar)
    found = frequencies(lambda source: limited_domain_top_k(rows, h_next, p, source).items, runs, "edge")
    assert set().union(*found) == {b"a", b"c"}
    rate = sum(number for items, number in found.items() if b"c" in items)
    assert abs(z_score(rate, runs, 1 / 41)) < 5
    assert abs(z_score(rate, runs, exp(1) / (exp(1) + 40))) > 5  # without the "+1"


@pytest.mark.slow
@pytest.mark.parametrize("runs", [10_000, pytest.param(200_000, marks=long_form)])
def test_neighbours_stay_close_on_the_worst_output_and_apart_without_the_one(runs: int) -> None:
    p = TopKParameters(2, 2, Fraction(1), Fraction(1, 20))

    def chance(count: int, plus: int) -> float:
        rows, h_next = candidates({b"a": 100, b"b": 10, b"c": count}, p.kbar)
        found = frequencies(
            lambda source: b"c" in limited_domain_top_k(rows, h_next + plus - 1, p, source).items, runs, count, plus
        )
        return found[True] / runs

    # With c = 10 it ties with b, which comes first by its bytes, and cannot come out.
    assert chance(10, 1) == 0
    error = 5 * sqrt(0.06 / runs)
    assert chance(11, 1) <= float(p.delta) + error
    assert chance(11, 0) > float(p.delta)


@pytest.mark.parametrize("runs", [1_000, pytest.param(50_000, marks=long_form)])
def test_leads_of_lemma_8_1_are_long_enough_and_those_a_good_deal_shorter_are_not(runs: int) -> None:
    p, beta = TopKParameters(3, 40, Fraction(1, 2), Fraction(1, 1000)), Fraction(1, 20)
    lead = -(-lead_for_all(p, beta) // 1)
    noise = {b"%02d" % i: 5 for i in range(50)}

    def complete(lead: int, context: str) -> int:
        rows, h_next = candidates(noise | {b"x%d" % i: 5 + lead for i in range(p.k)}, p.kbar)
        found = frequencies(lambda source: limited_domain_top_k(rows, h_next, p, source).bottom, runs, context)
        return found[False]

    assert complete(lead, "lead") > runs * (1 - beta)
    assert complete(lead - int(log(20) / 0.5) - 2, "shorter") < runs * (1 - beta)
    # Nothing that is returned lies farther below the k-th count than Lemma 8.1a says.
    counts = {b"%02d" % i: 60 - i for i in range(50)}
    rows, h_next = candidates(counts, p.kbar)
    least = counts[b"02"] - shortfall(p, beta)
    found = frequencies(lambda source: limited_domain_top_k(rows, h_next, p, source).items, runs, "shortfall")
    assert sum(n for items, n in found.items() if any(counts[item] < least for item in items)) <= runs * beta
