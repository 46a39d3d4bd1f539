"""Writes the tables of docs/choosing.md, between their marks, from what the code computes.

Run from the root of the repository:

    python -m docs.figures.choosing
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import log
from pathlib import Path

from experiments.subset import canonical, one_shot, score_sets
from experiments.subset.noises import EXPONENTIAL, GUMBEL, Noise
from experiments.subset.profiles import Profile
from experiments.subset.solving import epsilon_at
from stream_dp.histograms.counting_queries import Base, GeometricTable, interval
from stream_dp.histograms.key_space import KeySpace
from stream_dp.histograms.pure_top_k import FLOOR_BITS, PureTopK
from stream_dp.lossless.levels import minimum_count, threshold_for
from stream_dp.select.candidates import Neighbours
from stream_dp.select.gumbel import TopKParameters, lead_for_all, shortfall
from stream_dp.select.lipschitz import SubsetParameters
from stream_dp.select.top_k_subset import worst_miss
from stream_dp.select.top_k_with_gaps import GapParameters

LISTED, KBAR = 10_000, 1_000
EPSILON, DELTA, RARE = Fraction(1), Fraction("1e-6"), Fraction(1, 20)
KS = (10, 100, 1000)
SURE = 0.999
PURE_EPSILONS = (Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(2))
DOCUMENT = Path(__file__).parents[1] / "choosing.md"


def top_k(k: int, kbar: int) -> TopKParameters:
    """A top-k whose k draws cost epsilon together."""
    return TopKParameters(k, kbar, Fraction(EPSILON, k), DELTA, 1)


def behind_gap(k: int, *, monotone: bool) -> float:
    """How far below the k-th a key of a gap view may lie: exponential noise of all other keys stays below that."""
    neighbours = Neighbours.ADD_OR_REMOVE if monotone else Neighbours.REPLACE
    scale = GapParameters(k, EPSILON, 1, monotone, neighbours=neighbours).scale
    return float(scale) * log((LISTED - k) / RARE)


def behind_subset(k: int) -> float:
    """How far below the k-th a key of a subset may lie."""
    p = SubsetParameters(k, EPSILON)
    return float(worst_miss(LISTED, p, RARE) / p.gamma)


BOUNDS: Sequence[tuple[str, Callable[[int], float]]] = (
    ("`topk`, unknown keys", lambda k: float(shortfall(top_k(k, KBAR), RARE))),
    ("`topk`, `known-domain`", lambda k: float(shortfall(top_k(k, LISTED), RARE))),
    ("`gap`, `scale: general`", partial(behind_gap, monotone=False)),
    ("`gap`, `scale: monotone`", partial(behind_gap, monotone=True)),
    ("`subset`, `one-shot`", partial(behind_gap, monotone=True)),
    ("`subset`, `canonical`", behind_subset),
)


def bounds() -> Iterator[str]:
    """How far below the k-th count a key that is shown may lie, in 95 % of the windows."""
    yield f"| one window, selection epsilon {EPSILON}, {LISTED:,} keys | " + " | ".join(f"k = {k:,}" for k in KS) + " |"
    yield "|---|" + "---:|" * len(KS)
    for name, bound in BOUNDS:
        yield f"| {name} | " + " | ".join(words(bound(k)) for k in KS) + " |"
    leads = [words(float(lead_for_all(top_k(k, KBAR), RARE))) if k < KBAR else "" for k in KS]
    cells = " | ".join(f"*{lead}*" if lead else "" for lead in leads)
    yield f"| *to be shown at all, unknown keys: lead of the k-th* | {cells} |"


def by_item(noise: Noise, profile: Profile, epsilon: float) -> float:
    """The chance of exactly the first k, with one noise for each key."""
    return one_shot.top(profile, noise, epsilon)


def as_a_set(profile: Profile, epsilon: float) -> float:
    """The same by one draw among all sets."""
    return canonical.class_law(profile, canonical.SIGNED, epsilon).top


def exactness() -> Iterator[str]:
    """Which epsilon finds exactly the first k of a table that falls like films by their ratings."""
    yield "| epsilon of a window for exactly the first k, 99.9 % | " + " | ".join(f"k = {k:,}" for k in KS) + " |"
    yield "|---|" + "---:|" * len(KS)
    profiles = [Profile.of(score_sets.netflix_like(), k) for k in KS]
    rows: Sequence[tuple[str, Callable[[Profile, float], float]]] = (
        ("`topk`, `known-domain`", partial(by_item, GUMBEL)),
        ("`gap` (monotone), `subset` (`one-shot`)", partial(by_item, EXPONENTIAL)),
        ("`subset` (`canonical`)", as_a_set),
    )
    for name, chance in rows:
        cells = [epsilon_at(SURE, partial(chance, profile)) for profile in profiles]
        yield f"| {name} | " + " | ".join("" if cell is None else price(cell) for cell in cells) + " |"
    gaps = (int(profile.best[-1] - profile.scores[0]) for profile in profiles)
    yield "| *lead of the k-th, users* | " + " | ".join(f"*{gap:,}*" for gap in gaps) + " |"


def pure_limit(epsilon: Fraction, keys: int) -> int:
    """From which count on a pure top 10 shows a key, of so many possible ones."""
    table = GeometricTable(20, Base.within(epsilon), keys.bit_length() + FLOOR_BITS)
    return PureTopK(table, 10, keys, items_per_user=1, fallback_bits=20).least_spurious(RARE) + 1


def unlisted() -> Iterator[str]:
    """From which count on a key is shown, with a delta and without one, and how sure its count is."""
    yield "| a key that nobody listed is shown from | " + " | ".join(f"epsilon {one}" for one in PURE_EPSILONS) + " |"
    yield "|---|" + "---:|" * len(PURE_EPSILONS)
    for delta in ("1e-6", "1e-12"):
        cells = [minimum_count(threshold_for(epsilon), Fraction(delta)) for epsilon in PURE_EPSILONS]
        yield f"| `histogram`, delta {delta} | " + " | ".join(f"{cell:,}" for cell in cells) + " |"
    for key_bytes in (4, 8, 32):
        cells = [pure_limit(epsilon, KeySpace(key_bytes).size) for epsilon in PURE_EPSILONS]
        yield f"| `pure_topk`, keys of up to {key_bytes} bytes | " + " | ".join(f"{cell:,}" for cell in cells) + " |"
    tables = [GeometricTable(14, Base.within(epsilon * Fraction(1, 2)), 32) for epsilon in PURE_EPSILONS]
    errors = [f"*{interval(table, 1 - RARE):,}*" for table in tables]
    yield "| *error of an answer of a `lookup`, 95 %* | " + " | ".join(errors) + " |"


def words(users: float) -> str:
    """Users, in three digits."""
    return f"{float(f'{users:.3g}'):,.0f}"


def price(epsilon: float) -> str:
    """An epsilon, in two digits."""
    return f"{epsilon:.2g}" if epsilon < 100 else f"{float(f'{epsilon:.2g}'):,.0f}"


def main() -> None:
    """Write the tables into a document."""
    document = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    text = document.read_text(encoding="utf-8")
    for name, table in (("bounds", bounds()), ("exactness", exactness()), ("unlisted", unlisted())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        found = re.compile(f"{begin}.*?{end}", re.DOTALL)
        text = found.sub(begin + "\n".join(table) + "\n" + end, text)
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
