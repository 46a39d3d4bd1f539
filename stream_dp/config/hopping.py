"""Windows that hop, in words: what they cost."""

from __future__ import annotations

from stream_dp.config.plan import ViewPlan
from stream_dp.windows.durations import format_duration


def hops_words(view: ViewPlan) -> str:
    """What it means that the windows of a view overlap; nothing where they do not."""
    shape = view.window.shape
    size, step, times = format_duration(shape.length_ms), format_duration(shape.grid.length_ms), shape.at_once
    if times == 1:
        return ""
    return (
        f"A window of {size} begins every {step}: an event is in {times} of them, and each is counted, bounded, noised "
        f"and paid for by itself. So time costs {times} times what windows of {size} one after another cost, and what "
        f"is said of a window holds for each. A window is whole in one period of ledger {view.ledger.name}, which pays "
        f"for it: the first release of a period comes {size} after the period begins."
    )
