"""Public records: models, bytes and schemas, and what a reader works out from them.

For programs that read release topics with a Kafka client of their own:

* `parse`: the record in the value of a message; `parse_entry`: an entry of the operators' accounts.
* `History`: the newest release of every window; it joins releases that come in parts. `Joiner` does that alone.
* `read_statements`: what was spent of a ledger, by whom, and what is left.
* `Release`, `Refusal`, `LedgerEntry`: what records say. Every kind has a release of its own.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "History": ("history", "History"),
    "Joiner": ("history", "Joiner"),
    "LedgerEntry": ("models", "LedgerEntry"),
    "LedgerStatement": ("statement", "LedgerStatement"),
    "Refusal": ("models", "Refusal"),
    "Release": ("models", "Release"),
    "parse": ("codec", "decode"),
    "parse_entry": ("codec", "decode_entry"),
    "read_statements": ("statement", "read_statements"),
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(f"stream_dp.records.{module}"), attribute)
