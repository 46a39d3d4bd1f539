"""Items of tables that the vectors of specs/topk name by text."""

from __future__ import annotations

from stream_dp.select.candidates import Item


def text(item: Item) -> str:
    """An item of a table of bytes, as the vectors write it."""
    assert isinstance(item, bytes)
    return item.decode()
