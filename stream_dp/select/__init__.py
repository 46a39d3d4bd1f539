"""Top-k selection over an unknown domain; imports neither the ledger nor the noise families."""

from stream_dp.select.candidates import Row, candidates
from stream_dp.select.limited_domain import TopK, limited_domain_top_k
from stream_dp.select.parameters import TopKParameters, threshold

__all__ = ["Row", "TopK", "TopKParameters", "candidates", "limited_domain_top_k", "threshold"]
