"""Lossless multiple release: one noise path per count, read at any level; a set of releases costs its finest.

For programs of their own, with the noise of any of the `families`:

* `MultipleRelease`: any level at any time, the exact counts stay. `RangeRelease`: levels of a range that is fixed when
  the counts are erased.
* `RunningSums`: running and sliding sums over the panes of a stream, as it runs; `RunningState` is what it is made
  again from. `prefix_sums` gives the `Factorization` behind running sums, for counts that are all there.
* `minimum_count`, `discovery_delta`: how large a noisy count must be before a key that nobody named is shown, and the
  delta of that over a ladder. `two_sided_from`: how to read the count of a key that is shown because it is large.
* `threshold_for`, `noise_parameter`, `epsilon_bound`: levels of discrete Laplace noise as integers A, from an epsilon,
  as the parameter a, as an epsilon.
* `NoiseFamily`: what a family offers, to write another one.

What views release is the keyed form, which stores nothing: `lossless.sealed`. It works on arrays and is imported by
name, so that nothing here waits for NumPy.
"""

from stream_dp.lossless.factorization import Factorization, RunningState, RunningSums, prefix_sums
from stream_dp.lossless.kernels import NoiseFamily
from stream_dp.lossless.levels import (
    discovery_delta,
    epsilon_bound,
    minimum_count,
    noise_parameter,
    threshold_for,
    two_sided_from,
)
from stream_dp.lossless.multiple_release import MultipleRelease, RangeRelease

__all__ = [
    "Factorization",
    "MultipleRelease",
    "NoiseFamily",
    "RangeRelease",
    "RunningState",
    "RunningSums",
    "discovery_delta",
    "epsilon_bound",
    "minimum_count",
    "noise_parameter",
    "prefix_sums",
    "threshold_for",
    "two_sided_from",
]
