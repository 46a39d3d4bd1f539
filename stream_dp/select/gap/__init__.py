"""Top-k selection with gaps over a public domain, and what the gaps are good for."""

from stream_dp.select.candidates import Unseen
from stream_dp.select.gap.certificates import combine, gaps_between, margin, variance_ratio, wrong_chance
from stream_dp.select.gap.contending import Contenders, Randomness, contenders, finish
from stream_dp.select.gap.parameters import GapParameters
from stream_dp.select.gap.top_k import GapTopK, gap_top_k, gap_top_k_of_array, one_shot_top_k

__all__ = [
    "Contenders",
    "GapParameters",
    "GapTopK",
    "Randomness",
    "Unseen",
    "combine",
    "contenders",
    "finish",
    "gap_top_k",
    "gap_top_k_of_array",
    "gaps_between",
    "margin",
    "one_shot_top_k",
    "variance_ratio",
    "wrong_chance",
]
