"""Windows sealed and read by hand, as the engine does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel, TypeAdapter

from stream_dp.config.plan import ViewPlan
from stream_dp.exact.bits import Entropy
from stream_dp.kinds.gap import GapPlan
from stream_dp.kinds.histogram import HistogramPlan
from stream_dp.kinds.public_lists import KeyList
from stream_dp.kinds.sealing import SealedTable, Sealing, own_secret
from stream_dp.kinds.topk import Selection, TopKPlan
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import RELEASES, HistogramItem, RankedCount


@dataclass(frozen=True)
class Reading:
    """What the record of a level says beside what every release says."""

    fields: dict[str, Any]

    @property
    def items(self) -> list[tuple[str, int]]:
        """Keys and counts, in the order of the record."""
        return [(entry.item, entry.count) for entry in self.fields["items"]]


def window_key_of(view: ViewPlan, start_ms: int, secret: bytes, entropy: Entropy) -> bytes:
    """The key of a window that an engine seals with a secret of the ring and this entropy."""
    name = view.noise_name(start_ms)
    return WindowNoise.of(name, secret, own_secret(name, entropy)).prf_key


def seal_window(
    view: ViewPlan,
    start_ms: int,
    counts: Mapping[str, int],
    *,
    prf_key: bytes,
    entropy: Entropy,
    lists: Mapping[str, KeyList] | None = None,
) -> SealedTable:
    """Seal the exact counts of a window of a view, under the key of the window."""
    noise = WindowNoise(view.noise_name(start_ms), prf_key)
    return view.kind.seal(counts, Sealing(noise, entropy, lists or {}))


def read_window(
    view: ViewPlan, start_ms: int, table: SealedTable, levels: Sequence[int], prf_key: bytes
) -> list[Reading]:
    """Read a sealed table at several levels, under the key of its window."""
    noise = WindowNoise(view.noise_name(start_ms), prf_key)
    return [Reading(as_published(view, fields)) for fields in view.kind.read(table, levels, noise)]


def as_published(view: ViewPlan, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind read of a table, as a reader of its record has it."""
    form: Any = RELEASES[view.kind.name].model_fields["items"].annotation
    items: TypeAdapter[Any] = TypeAdapter(form)
    written = msgspec.json.encode(fields["items"], enc_hook=BaseModel.model_dump)
    return {**fields, "items": items.validate_json(written)}


def selection_of(view: ViewPlan) -> Selection:
    """How a top-k view chooses its keys."""
    assert isinstance(view.kind, TopKPlan)
    return view.kind.selection


def minimum_counts(view: ViewPlan) -> tuple[int, ...]:
    """The smallest count that each level of a histogram shows."""
    assert isinstance(view.kind, HistogramPlan)
    return view.kind.minimum_counts


def found(table: SealedTable) -> tuple[bool, int]:
    """What the selection of a sealed top-k came to: whether it is complete, and its draws."""
    complete, draws, *_ = msgspec.msgpack.decode(table.payload)
    return complete, draws


def topk_table(digest: bytes, items: list[str], values: list[int], *, complete: bool, draws: int) -> SealedTable:
    """A sealed table of a top-k."""
    return SealedTable(digest, items, values, msgspec.msgpack.encode([complete, draws]))


def fields_of(view: ViewPlan, level: int, items: Iterable[tuple[str, int]], *, complete: bool = True) -> dict[str, Any]:
    """What a record of some kinds says beside what every release says, for keys and counts of our own."""
    if isinstance(view.kind, TopKPlan):
        chosen = view.kind.selection
        ranked = [RankedCount(rank=rank, item=item, count=count) for rank, (item, count) in enumerate(items, start=1)]
        mechanism = None if chosen.mechanism == "gumbel" else chosen.mechanism
        return {"k": chosen.k, "complete": complete, "selection": mechanism, "items": tuple(ranked)}
    if isinstance(view.kind, GapPlan):
        names, column = map(list, zip(*list(items)[: view.kind.parameters.k], strict=True))
        payload = msgspec.msgpack.encode(["0" * 16, 16, [20] * len(names)])
        return view.kind.fields(SealedTable(b"", names, column, payload), level, column)
    rows = sorted(items, key=lambda row: (-row[1], row[0]))
    counts = tuple(HistogramItem(item=item, count=count) for item, count in rows)
    assert isinstance(view.kind, HistogramPlan)
    plan = view.kind
    return {
        "minimum_count": plan.minimum_counts[level],
        "two_sided_from": plan.two_sided_from[level],
        "items": counts,
    }
