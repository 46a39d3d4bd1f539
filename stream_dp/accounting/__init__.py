"""Exact privacy budgets: costs, what a selection costs, and the ledger as a pure state machine.

What sets of releases cost is in `coalitions`, how costs compose in `composition`, what a period of selections costs in
`pay_what_you_get`, and what noise costs that is not pure in `curves` and `binomial`.
"""

from stream_dp.accounting.cost import Cost
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
