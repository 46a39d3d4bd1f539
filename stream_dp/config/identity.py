"""What a view's identity is made of: everything that may not change while state of it exists."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b

from stream_dp.config.plan import FINGERPRINT_BYTES, ViewPlan
from stream_dp.config.window_plan import WindowPlan
from stream_dp.windows.shape import Hopping


def fingerprint(view: ViewPlan, application: str) -> bytes:
    """Identity of a view: `FINGERPRINT_BYTES` bytes of BLAKE2b over everything that may not change under its state.

    The id of its application is in: of two that have one key file and ask the same, each draws noise of its own.

    What is left out may change between two starts: the view's name (it stands beside the fingerprint in `query_id`),
    clearances, unlocks and audiences, what is done with what is left, grace, clock, how far ahead, idle time,
    retention, the ledger's name, its periods, its budget, how that is parted and how it is shared. Which parts a ledger
    has decides how a window is charged, so it is in. `view.fingerprint` itself is not looked at.
    """
    source, ledger = view.source, view.ledger
    identity = [
        application,
        view.kind.name,
        [source.topic, source.partitions, source.format, source.user_field, source.time_field, source.time_unit],
        source.partitioner,
        *([] if source.key_field is None else [["key", source.key_field]]),
        [view.item_field] if view.has_lists else view.item_field,
        [*_lengths(view.window), view.window.first_ms],
        [view.items_per_user, view.buckets],
        [[level.name, str(level.epsilon), level.threshold] for level in view.levels],
        [ledger.fingerprint.hex(), *sorted(ledger.parts)],
        list(view.kind.identity),
    ]
    text = json.dumps(identity, ensure_ascii=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=FINGERPRINT_BYTES, person=b"stream-dp view 1").digest()


def _lengths(window: WindowPlan) -> Sequence[int]:
    """What of the lengths of a view's windows may not change: each that decides what is counted, noised or charged."""
    shape, running = window.shape, window.running
    step = [shape.step_ms] if isinstance(shape, Hopping) else []
    return [shape.length_ms, *step, *([running.windows.length_ms] if running is not None else [])]
