"""Windows that overlap, in words and numbers: what they mean, and what they cost by panes and each by itself."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, Field

from stream_dp.config.plan import ViewPlan
from stream_dp.exact.rationals import decimal_up
from stream_dp.records.models import Price
from stream_dp.windows.durations import format_duration
from stream_dp.windows.shape import Shape

DAY_SECONDS = 86_400
DISPLAY_DIGITS = 3


class ModeDescription(BaseModel):
    """Windows that overlap in one of the two ways in which they can be made; a number for each level."""

    mode: str = Field(description="panes: sums of panes, each of which is noised once. direct: each noised by itself.")
    configured: bool = Field(description="Whether it is the way of this view.")
    day_costs: list[Price] = Field(description="What a day costs one user at worst.")
    expected_errors: list[str] = Field(description="Mean absolute noise of one count of a window, rounded up.")
    noise_intervals_95: list[int] = Field(description="It lies in plus or minus this with 95 % at least.")


def unit(view: ViewPlan) -> str:
    """What is counted, noised and charged by itself."""
    return "window" if view.window.made_of_panes is None else "pane"


def when_words(view: ViewPlan) -> str:
    """Of which time something is released, and how often."""
    length, step = format_duration(view.window.released.length_ms), format_duration(view.window.told.length_ms)
    if view.window.running is not None:
        return f"since the start of each {length}, told every {step}"
    return f"every {length}" if step == length else f"of the last {length} every {step}"


def hops_words(view: ViewPlan) -> str:
    """What it means that the windows of a view overlap or are made of panes; nothing where they do neither."""
    window = view.window
    size, step = format_duration(window.released.length_ms), format_duration(window.released.grid.length_ms)
    if window.made_of_panes is not None:
        pane = format_duration(window.shape.length_ms)
        return (
            f"Every {step} a window of the last {size} is released: the sum of {window.panes} panes of {pane}. A pane "
            "is counted, bounded, noised and paid for once, whatever windows it is in, so size and step cost nothing "
            "and may change. A user counts in each pane anew: a count of a window is how many users had the key in the "
            f"first pane, and how many in the second, and so on, with the noise of {window.panes} counts."
        )
    if window.running is not None:
        pane = format_duration(window.shape.length_ms)
        return (
            f"At the end of every {pane} the total since the window of {size} began is told. A user counts once in the "
            f"whole window, and that is paid for once, with its first {pane}; what follows costs nothing. The error "
            f"and the interval of a level are those of a total of {window.summands} blocks, the most there are."
        )
    if window.shape.at_once == 1:
        return ""
    return (
        f"A window of {size} begins every {step}: an event is in {window.shape.at_once} of them, and each is counted, "
        f"bounded, noised and paid for by itself, so time costs {window.shape.at_once} times what windows of {size} "
        f"one after another cost. A window is whole in one period of ledger {view.ledger.name}, which pays for it: the "
        f"first release of a period comes {size} after the period begins."
    )


def modes(view: ViewPlan) -> list[ModeDescription]:
    """Both ways, if the windows of a view overlap or are made of panes and its kind can be made either way."""
    return list(_modes(view))


def _modes(view: ViewPlan) -> Iterator[ModeDescription]:
    shape, paned = view.window.shape, view.window.made_of_panes
    if paned is not None:
        yield _mode(view, "panes", shape, paned.count, configured=True)
        if paned.direct is not None:
            yield _mode(view, "direct", paned.direct, 1, configured=False)
    elif shape.at_once > 1 and not view.kind.undivided:
        yield _mode(view, "panes", shape.grid, shape.at_once, configured=False)
        yield _mode(view, "direct", shape, 1, configured=True)


def _mode(view: ViewPlan, mode: str, charged: Shape, panes: int, *, configured: bool) -> ModeDescription:
    number = charged.per_second * DAY_SECONDS
    return ModeDescription(
        mode=mode,
        configured=configured,
        day_costs=[Price.spent(view.cost(index) * number) for index in range(len(view.levels))],
        expected_errors=[decimal_up(level.error_of(panes), DISPLAY_DIGITS) for level in view.levels],
        noise_intervals_95=[level.interval_of(panes) for level in view.levels],
    )
