"""Public records: models, bytes and schemas, and what a reader works out from them.

For programs that read release topics with a Kafka client of their own:

* `parse`: the record in the value of a message, None for a type that only a later stream-dp knows.
* `parse_entry`: an entry of the operators' accounts.
* `History`: the newest release of every window; it joins releases that come in parts. `Joiner` does that alone.
* `read_statements`: what was spent of a ledger, by whom, and what is left.
* `Release`, `Refusal`, `ViewRecord`, `LedgerEntry`: what records say. Every kind has a release of its own.
"""

from stream_dp.records.codec import decode_entry as parse_entry
from stream_dp.records.codec import parse
from stream_dp.records.history import History, Joiner
from stream_dp.records.models import LedgerEntry, Refusal, Release
from stream_dp.records.statement import LedgerStatement, read_statements
from stream_dp.records.view_record import ViewRecord

__all__ = [
    "History",
    "Joiner",
    "LedgerEntry",
    "LedgerStatement",
    "Refusal",
    "Release",
    "ViewRecord",
    "parse",
    "parse_entry",
    "read_statements",
]
