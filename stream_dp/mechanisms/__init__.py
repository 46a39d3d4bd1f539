"""Differentially private mechanisms for programs and notebooks: from counts, epsilon and delta to results.

    from stream_dp import mechanisms as dp

    budget = dp.Budget(epsilon=3, delta="1e-6")
    shown = dp.histogram(counts, epsilon="0.5", delta="1e-7", items_per_user=3, budget=budget)

Neighbouring tables differ by everything that one user contributed (add or remove). One user moves at most
`items_per_user` counts, each by at most 1: bound contributions before you count.

* Numbers are exact: whole numbers (also NumPy's), `Fraction`s, or text such as "0.5" and "1e-6". Floats are refused.
* Counts are a mapping, or a pandas Series with the keys in its index.
* Noise is exact integer noise from the operating system's generator. In tests a `Budget` may have other `bits`.
* A call that is given a `budget` reserves its worst case before it draws, and pays for what it returns. A call that the
  budget does not cover draws nothing.
* How long a call takes depends on the counts and on the noise. Do not let others measure it.
"""

from stream_dp.accounting import Cost
from stream_dp.histograms.compact import CompactHistogram
from stream_dp.mechanisms.budget import Budget
from stream_dp.mechanisms.counts import (
    LosslessCounts,
    NoisyCounts,
    NoisyHistogram,
    RunningCounts,
    discrete_laplace_counts,
    histogram,
)
from stream_dp.mechanisms.finite import LookupTable, lookup_table, pure_top_k, strict_counts, strict_histogram
from stream_dp.mechanisms.selections import (
    GapTopK,
    TopK,
    top_k,
    top_k_of_list,
    top_k_subset,
    top_k_with_gaps,
)

__all__ = [
    "Budget",
    "CompactHistogram",
    "Cost",
    "GapTopK",
    "LookupTable",
    "LosslessCounts",
    "NoisyCounts",
    "NoisyHistogram",
    "RunningCounts",
    "TopK",
    "discrete_laplace_counts",
    "histogram",
    "lookup_table",
    "pure_top_k",
    "strict_counts",
    "strict_histogram",
    "top_k",
    "top_k_of_list",
    "top_k_subset",
    "top_k_with_gaps",
]
