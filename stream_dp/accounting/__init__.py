"""Exact privacy budgets: costs, what a selection costs, and the ledger as a pure state machine.

How costs compose, and what noise costs in zCDP, is in `composition`.
"""

from stream_dp.accounting.cost import Cost
from stream_dp.accounting.dearest import Dearest
from stream_dp.accounting.ledger import (
    Ledger,
    Overdraft,
    cancel,
    commit,
    decode,
    decode_cost,
    encode,
    encode_cost,
    forfeit,
    reserve,
    write_off,
)
from stream_dp.accounting.selection import selection_cost

__all__ = [
    "Cost",
    "Dearest",
    "Ledger",
    "Overdraft",
    "cancel",
    "commit",
    "decode",
    "decode_cost",
    "encode",
    "encode_cost",
    "forfeit",
    "reserve",
    "selection_cost",
    "write_off",
]
