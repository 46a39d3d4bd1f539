"""Top-k subsets of a public domain by the canonical Lipschitz mechanism: the whole set is one selection."""

from stream_dp.select.subset.canonical import canonical_positions, canonical_top_k
from stream_dp.select.subset.logarithms import log_subsets
from stream_dp.select.subset.parameters import Noise, SubsetParameters, Variant
from stream_dp.select.subset.planning import Profile, critical_epsilon, worst_miss

__all__ = [
    "Noise",
    "Profile",
    "SubsetParameters",
    "Variant",
    "canonical_positions",
    "canonical_top_k",
    "critical_epsilon",
    "log_subsets",
    "worst_miss",
]
