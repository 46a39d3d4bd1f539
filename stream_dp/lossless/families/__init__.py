"""The noise families: integer laws that can be released at many levels, in any order, at the cost of the finest.

They go into `MultipleRelease`, `RangeRelease` and `RunningSums`. What one release of a count that moves by one costs,
and what a level is (docs/lossless.md has the table):

* `DiscreteLaplace`: pure epsilon = ln(1/a) at level a. Nothing but the released integer is state.
* `OddRatioLadder`: discrete Gaussian noise, zCDP, on ladders of variances with odd ratios; a level is the divisor.
  `discrete_gaussian_noise` draws noise of any variance for a release that stands alone.

Views release discrete Laplace noise in the keyed form, `lossless.sealed`.
"""

from stream_dp.lossless.families.discrete_gaussian import OddRatioLadder, discrete_gaussian_noise
from stream_dp.lossless.families.discrete_laplace import DiscreteLaplace

__all__ = ["DiscreteLaplace", "OddRatioLadder", "discrete_gaussian_noise"]
