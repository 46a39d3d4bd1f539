"""Release kinds: one file for each, with everything that is peculiar to it.

Nobody else asks which kind a view is of.
"""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.kinds.bounds import BOUNDS
from stream_dp.kinds.catalogue import CATALOGUE
from stream_dp.kinds.gap import GAP
from stream_dp.kinds.histogram import HISTOGRAM
from stream_dp.kinds.kind import Kind
from stream_dp.kinds.lookup import LOOKUP
from stream_dp.kinds.pure_topk import PURE_TOPK
from stream_dp.kinds.running import RUNNING
from stream_dp.kinds.subset import SUBSET
from stream_dp.kinds.topk import TOPK
from stream_dp.kinds.votes import KEYS

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (BOUNDS, CATALOGUE, GAP, HISTOGRAM, KEYS, LOOKUP, PURE_TOPK, RUNNING, SUBSET, TOPK)
}
"""By name."""
