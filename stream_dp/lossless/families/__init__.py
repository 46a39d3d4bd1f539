"""The noise families: integer laws that can be released at many levels, in any order, at the cost of the finest.

Any of them goes into what `stream_dp.lossless` exports. What one release of a count that moves by one costs, and what
a level is (docs/lossless.md has the table):

* `TwoClocks`: discrete Laplace noise, pure epsilon = ln(1/a) at level a. The one to take unless something speaks
  against it: every step is a coin or two. Its state is two clocks, which tell more than the released integer.
* `DiscreteLaplace`: the same law with nothing but the released integer as state. These two serve sparse releases.
* `EpsilonClock`: one side of discrete Laplace noise whose level is a rational epsilon; `TwoSided(EpsilonClock())` costs
  exactly that. `GeometricClock`: one side of `TwoClocks`. By itself a side hides nothing below it.
* `NegativeBinomial`: the share of a side that one of several agents adds who do not trust one another with all of the
  noise; `agent_share` has both sides of an agent's.
* `Skellam`: the integer stand-in for Gaussian noise, a level is the variance; Renyi curves.
* `OddRatioLadder`: discrete Gaussian noise, zCDP, on ladders of variances with odd ratios; a level is the divisor.
* `near_lossless_coarsen`: discrete Gaussian noise on any other ladder, from fine to coarse only, its law off by what
  `near_lossless_error` bounds. `discrete_gaussian_noise` draws the finest level, or a release that stands alone.
* `Poisson` and `PrefixPopcount`: one-sided Poisson and binomial noise, (epsilon, delta) and never pure, with a mean
  that is to be subtracted where a release is displayed. `points_below` and `ones_among_first` read all levels of a
  count from one stream of bits and keep no state.
"""

from stream_dp.lossless.families.discrete_gaussian import (
    OddRatioLadder,
    discrete_gaussian_noise,
    near_lossless_coarsen,
    near_lossless_error,
)
from stream_dp.lossless.families.discrete_laplace import DiscreteLaplace
from stream_dp.lossless.families.negative_binomial import NegativeBinomial, agent_share
from stream_dp.lossless.families.poisson import Poisson, points_below
from stream_dp.lossless.families.popcount import PrefixPopcount, ones_among_first
from stream_dp.lossless.families.skellam import Skellam
from stream_dp.lossless.families.two_clocks import EpsilonClock, GeometricClock, TwoClocks

__all__ = [
    "DiscreteLaplace",
    "EpsilonClock",
    "GeometricClock",
    "NegativeBinomial",
    "OddRatioLadder",
    "Poisson",
    "PrefixPopcount",
    "Skellam",
    "TwoClocks",
    "agent_share",
    "discrete_gaussian_noise",
    "near_lossless_coarsen",
    "near_lossless_error",
    "ones_among_first",
    "points_below",
]
