from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from itertools import count, pairwise
from random import Random
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from experiments.gap.secure_gap import CountedCoins, insecure_gap_top_k, secure_gap_top_k
from tests.support.chance import pooled_p_value


class Tape:
    """The tape of the vectors: SHA-256 of the seed and a counter, most significant bit first."""

    def __init__(self, seed: str) -> None:
        self._blocks = (sha256(seed.encode() + number.to_bytes(8, "big")).digest() for number in count())
        self._held, self._left, self.used = 0, 0, 0

    def bits(self, n: int) -> int:
        while self._left < n:
            self._held, self._left = self._held << 256 | int.from_bytes(next(self._blocks), "big"), self._left + 256
        self._left, self.used = self._left - n, self.used + n
        value = self._held >> self._left
        self._held &= (1 << self._left) - 1
        return value


class Seeded:
    def __init__(self, seed: int) -> None:
        self.bits = Random(seed).getrandbits


@pytest.fixture
def golden(gap_vectors: Mapping[str, Any]) -> Mapping[str, Any]:
    vectors: Mapping[str, Any] = gap_vectors["golden_tape"]
    return vectors


def check(golden: Mapping[str, Any], name: str, draw: Any) -> None:
    tape = Tape(golden["seed"])
    known = golden["vectors"][name]

    assert draw(CountedCoins(tape)) == known["output"]
    assert tape.used == known["bits_used"]


def test_the_coins_draw_what_the_tape_is_known_to_give(golden: Mapping[str, Any]) -> None:
    check(golden, "uniform(10) x20", lambda coins: [coins.uniform(10) for _ in range(20)])
    check(golden, "bern_exp1(1,2) x40", lambda coins: [coins.bernoulli_exp(1, 2) for _ in range(40)])
    check(golden, "geometric(1,20) x20", lambda coins: [coins.geometric(1, 20) for _ in range(20)])
    check(golden, "geometric(3,7) x20", lambda coins: [coins.geometric(3, 7) for _ in range(20)])
    check(golden, "shuffle(10)", lambda coins: coins.shuffle(10))


@pytest.mark.parametrize(
    ("name", "steps", "scale", "runs"),
    [
        ("alg4 a=[50,48,47,3,0,0,49,20] k=3 s=1 t=20 x4", [50, 48, 47, 3, 0, 0, 49, 20], (1, 20), 4),
        ("alg4 a=[2,2,2,2,2,1] k=3 s=1 t=2 x6", [2, 2, 2, 2, 2, 1], (1, 2), 6),
    ],
)
def test_the_published_mechanism_selects_what_the_tape_is_known_to_give(
    name: str, steps: list[int], scale: tuple[int, int], runs: int, golden: Mapping[str, Any]
) -> None:
    def draw(coins: CountedCoins) -> list[Any]:
        found = [secure_gap_top_k(steps, 3, scale, coins) for _ in range(runs)]
        return [[[list(pair) for pair in zip(run.items, run.gaps, strict=True)], run.levels] for run in found]

    check(golden, name, draw)


@pytest.mark.slow
@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "all refined"])
@pytest.mark.parametrize("case", [0, 1, 5])
def test_the_published_mechanism_has_the_law_of_real_noise(
    case: int, *, pruned: bool, gap_vectors: Mapping[str, Any]
) -> None:
    row = gap_vectors["real_laws"][case]
    law = {(tuple(items), tuple(gaps)): float(chance) for items, gaps, chance in row["cells"]}
    coins = CountedCoins(Seeded(20 + case))
    runs = (secure_gap_top_k(row["a"], row["k"], (row["s"], row["t"]), coins, pruned=pruned) for _ in range(12_000))
    found = Counter((run.items, run.gaps) for run in runs)

    # One false alarm in 10,000 for each of six samples, were they not fixed.
    assert pooled_p_value(found, law) > 1e-4


@pytest.mark.parametrize("t", ["1", "2", "10", "1000"])
def test_a_geometric_number_takes_the_known_number_of_calls(t: str, gap_vectors: Mapping[str, Any]) -> None:
    known = gap_vectors["primitives"]["expected_calls_per_geometric_exact_t"][t]
    coins, after = CountedCoins(Seeded(3)), [(0, 0)]
    for _ in range(20_000):
        coins.geometric(1, int(t))
        after.append((coins.bernoullis, coins.uniforms))

    for index, name in enumerate(("bernoulli_rational", "uniform_int")):
        each = [later[index] - earlier[index] for earlier, later in pairwise(after)]
        # Five standard errors: a false alarm in a million.
        assert abs(fmean(each) - float(known[name])) < 5 * stdev(each) / len(each) ** 0.5


def test_a_refinement_draws_again_for_contenders_or_for_all() -> None:
    steps, k = [100 + key // 2 for key in range(40)], 4
    refined: dict[bool, list[int]] = {}
    for pruned in (True, False):
        coins = CountedCoins(Seeded(5))
        runs = [secure_gap_top_k(steps, k, (1, 12), coins, pruned=pruned) for _ in range(200)]
        refined[pruned] = [keys for run in runs for keys in run.refined]
        assert coins.geometrics == 200 * len(steps) + sum(refined[pruned])

    assert set(refined[False]) == {len(steps)}
    assert min(refined[True]) == k + 2 < max(refined[True]) < len(steps)


def test_a_table_of_k_plus_one_keys_is_enough() -> None:
    run = secure_gap_top_k([500, 0, 250], 2, (1, 4), CountedCoins(Seeded(1)))

    assert run.items == (0, 2)
    assert all(200 < gap < 300 for gap in run.gaps)


def test_the_parts_add_up_to_the_time() -> None:
    run = secure_gap_top_k(list(range(300)), 20, (1, 400), CountedCoins(Seeded(2)))

    assert run.total_s == run.candidates_s + run.ties_s + run.gaps_s
    assert run.candidates_s > 0


def test_the_insecure_baseline_ranks_and_tells_gaps() -> None:
    items, gaps = insecure_gap_top_k([10_000, 30_000, 0, 20_000], 2, 4.0, np.random.default_rng(1))

    assert items.tolist() == [1, 3]
    assert gaps == pytest.approx([10_000, 10_000], abs=200)
