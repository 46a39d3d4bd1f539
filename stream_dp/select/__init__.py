"""Top-k selection over an unknown domain; imports neither the ledger nor the noise families."""

from stream_dp.select.candidates import Candidates, Row, candidates
from stream_dp.select.gumbel import (
    ChosenKbarParameters,
    ChosenTopK,
    TopK,
    chosen_kbar_top_k,
    known_domain_top_k,
    limited_domain_top_k,
)
from stream_dp.select.one_shot import (
    NoisyTopK,
    fixed_threshold_top_k,
    laplace_top_k,
)
from stream_dp.select.parameters import (
    Domain,
    FixedThresholdParameters,
    LaplaceParameters,
    TopKParameters,
    threshold,
)

__all__ = [
    "Candidates",
    "ChosenKbarParameters",
    "ChosenTopK",
    "Domain",
    "FixedThresholdParameters",
    "LaplaceParameters",
    "NoisyTopK",
    "Row",
    "TopK",
    "TopKParameters",
    "candidates",
    "chosen_kbar_top_k",
    "fixed_threshold_top_k",
    "known_domain_top_k",
    "laplace_top_k",
    "limited_domain_top_k",
    "threshold",
]
