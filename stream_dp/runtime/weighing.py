"""What a higher `items_per_user` would do to a view: fewer items of a user left out, and more noise on every count.

Both sides are worked out on a sample that an operator asked for, and shown to nobody else: the words hold counts.
"""

from __future__ import annotations

from collections.abc import Callable

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.planning import build_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.findings import CLIPPED_PERCENT
from stream_dp.runtime.sampling import Taken

MOST_ITEMS = 10_000
"""Per user, that a view may have."""


def weighed(plan: Plan, view: ViewPlan, taken: Taken, count: Callable[[ViewPlan], Taken]) -> str:
    """What the view shows of the sample now and with a bound that leaves out little, and which to prefer.

    Args:
        plan: the application.
        view: one of its views, of which much is left out.
        taken: what it makes of the sample.
        count: what a view makes of the sample.
    """
    levels = sorted(set(view.audiences.values()))
    level = next((level for level in levels if taken.keys_from(_least(view, level))), levels[-1])
    bound, other, others = view.items_per_user, view, taken
    while others.clipped_percent > CLIPPED_PERCENT and bound < MOST_ITEMS:
        bound = min(2 * bound, MOST_ITEMS)
        try:
            other = _with(plan, view, bound)
        except ConfigError as error:
            return f"{_words(view, level, taken)}. {bound} is not possible: {error.faults[0].message}"
        others = count(other)
    now, then = taken.keys_from(_least(view, level)), others.keys_from(_least(other, level))
    if then < now:
        verdict = "Keep it, unless windows are much larger than this sample: a higher value would hide keys of it"
    elif not then:
        verdict = "The sample shows no key with either, so it cannot tell: take more records (--sample=N)"
    elif then == now:
        verdict = "Raise it only if what is left out is worth the noise"
    else:
        verdict = f"Raise it to {bound} if the keys that it adds are worth the noise"
    return f"{_words(view, level, taken)}. {_words(other, level, others)}. {verdict}"


def _with(plan: Plan, view: ViewPlan, bound: int) -> ViewPlan:
    """The view with another bound.

    Raises:
        ConfigError: it cannot be planned with that.
    """
    views = plan.raw["views"]
    raw = {**plan.raw, "views": {**views, view.name: {**views[view.name], "items_per_user": bound}}}
    return build_plan(raw, plan.folder).views[view.name]


def _least(view: ViewPlan, level: int) -> int:
    """The smallest count that is shown and stands out from the noise."""
    least = view.kind.least_shown(level)
    return _noise(view, level) + 1 if least is None else least


def _noise(view: ViewPlan, level: int) -> int:
    return view.levels[level].interval_of(view.window.summands)


def _words(view: ViewPlan, level: int, taken: Taken) -> str:
    least, keys = view.kind.least_shown(level), taken.keys_from(_least(view, level))
    shown = f" and shown from {least} on" if least is not None else ""
    of = f"reach {least}" if least is not None else "are above the noise"
    return (
        f"With items_per_user: {view.items_per_user}, {taken.clipped_percent} % of what users add is left out. At "
        f"level {view.levels[level].name} a count is noised by up to {_noise(view, level)} (95 %){shown}; in this "
        f"sample {keys:,} keys of a window {of}, and the largest count is {taken.largest:,}"
    )
