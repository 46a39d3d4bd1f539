"""Lossless multiple release: one noise path per count, read at any level; a set of releases costs its finest.

For programs of their own, with the noise of any of the `families`:

* `MultipleRelease`: any level at any time, the exact counts stay. `RangeRelease`: levels of a range that is fixed when
  the counts are erased.
* `LadderSparse`, `SparseRounds`: the same for histograms over a huge known domain, of which only the bins that are
  shown are drawn: levels fixed beforehand, or chosen one after the other.
* `RunningSums`: running and sliding sums over the panes of a stream, as it runs; `RunningState` is what it is made
  again from. `prefix_sums` and `sliding_sums` give the `Factorization` behind such sums, for counts that are all there.
* `minimum_count`, `discovery_delta`: how large a noisy count must be before a key that nobody named is shown, and the
  delta of that over a ladder. `gate_delta`, `passing_gate`: where the coarsest level decides for all. `two_sided_from`:
  how to read the count of a key that is shown because it is large.
* `threshold_for`, `noise_parameter`, `epsilon_bound`: levels of discrete Laplace noise as integers A, from an epsilon,
  as the parameter a, as an epsilon. `clocks` reads a stream of uniform words at any of them.
* `NoiseFamily`, `TailFamily`, `TwoSided`, `Sides`: what a family offers, to write another one.

What views release is the keyed form, which stores nothing: `lossless.sealed`, and `lossless.step_keys` where every step
of the ladder has a key of its own. They work on arrays and are imported by name, so that nothing here waits for NumPy.
"""

from stream_dp.lossless.discovery import discovery_delta, gate_delta, minimum_count, passing_gate, two_sided_from
from stream_dp.lossless.factorization import Factorization, RunningState, RunningSums, prefix_sums, sliding_sums
from stream_dp.lossless.kernels import NoiseFamily, Sides, TailFamily, TwoSided
from stream_dp.lossless.levels import epsilon_bound, noise_parameter, threshold_for
from stream_dp.lossless.multiple_release import MultipleRelease, RangeRelease
from stream_dp.lossless.sparse import LadderSparse, SparseRounds
from stream_dp.lossless.threshold_process import clocks

__all__ = [
    "Factorization",
    "LadderSparse",
    "MultipleRelease",
    "NoiseFamily",
    "RangeRelease",
    "RunningState",
    "RunningSums",
    "Sides",
    "SparseRounds",
    "TailFamily",
    "TwoSided",
    "clocks",
    "discovery_delta",
    "epsilon_bound",
    "gate_delta",
    "minimum_count",
    "noise_parameter",
    "passing_gate",
    "prefix_sums",
    "sliding_sums",
    "threshold_for",
    "two_sided_from",
]
