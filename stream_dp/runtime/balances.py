"""What ledgers have left, by the entries of the accounts that this worker has published: no more than these tell."""

from __future__ import annotations

from collections.abc import Iterable

from stream_dp.records.codec import decode_entry
from stream_dp.records.entries import Entry
from stream_dp.records.statement import caps
from stream_dp.windows.effects import Message


class Balances:
    """The entries about the newest window of every view; each is taken when it has left at its slot, not before."""

    def __init__(self, accounts: str) -> None:
        """Set up the balances; nothing has left yet.

        Args:
            accounts: the topic of the accounts.
        """
        self._accounts = accounts
        self._newest: dict[bytes, tuple[int, dict[bytes, bytes]]] = {}
        """By view: start of the newest window, and the entries about it by their keys, the last one last."""

    def take(self, messages: Iterable[Message]) -> None:
        """Take note of records that have left."""
        for message in messages:
            if message.topic == self._accounts and message.key is not None and message.value is not None:
                view, start_ms, *_ = message.key.split(b"/")
                newest, entries = self._newest.get(view, (0, {}))
                if int(start_ms) > newest:
                    entries = {}
                if int(start_ms) >= newest:
                    self._newest[view] = int(start_ms), {**entries, message.key: message.value}

    def forget(self) -> None:
        """Forget all: partitions, and the ledgers in them, may have changed hands."""
        self._newest.clear()

    def entries(self) -> list[Entry]:
        """The entries, those of a view in the order in which they left."""
        return [decode_entry(value) for _, entries in self._newest.values() for value in entries.values()]

    def ratios(self) -> dict[str, float]:
        """By ledger, what share of the caps of its newest period is left, of the cap that has the least."""
        newest: dict[str, tuple[int, float]] = {}
        for entry in self.entries():
            name, period, ratio = entry.ledger.name, entry.ledger.period.start_ms, _ratio(entry)
            known, least = newest.get(name, (period, ratio))
            if period >= known:
                newest[name] = period, min(ratio, least) if period == known else ratio
        return {name: ratio for name, (_, ratio) in sorted(newest.items())}


def _ratio(entry: Entry) -> float:
    capped = [(left, cap) for left, cap in zip(entry.left.cost, caps(entry.ledger), strict=True) if cap]
    return min((float(left / cap) for left, cap in capped), default=0.0)
