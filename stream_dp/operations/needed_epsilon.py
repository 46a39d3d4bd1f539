"""The epsilon a ledger would have to promise for a recall that is asked for: `stream-dp plan --recall`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from stream_dp.config.plan import Plan
from stream_dp.config.planner import build_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.rationals import decimal_up, parse_exact
from stream_dp.operations.assignments import assigned
from stream_dp.operations.past_counts import EventColumns
from stream_dp.operations.what_if import Subject, assignments, finder, what_if

MOST_STEPS, COARSE_STEPS, STEPS_OF_OCTAVE = 96, 4, 16
"""A needed epsilon is looked for from 64 times smaller to 64 times larger, in steps of 19 %, and then of 4 %."""
_FINE = 1 << 20
"""Factors are multiples of 1 over this."""


def needed_epsilon(
    subject: Subject, columns: EventColumns, settings: Mapping[str, str], asked: tuple[float, float]
) -> str | None:
    """Return the epsilon that the ledger would have to promise for a recall; None if none suffices that was tried.

    All epsilons of the view and its ledger, and those of the view that finds its keys, are as many times larger or
    smaller.

    Args:
        subject: the view.
        columns: of the view.
        settings: of a point.
        asked: the least recall, and the largest median error.
    """
    recall, most_error = asked

    def suffices(step: int) -> bool:
        try:
            larger = replace(subject, plan=_scaled(subject, settings, step))
        except ConfigError:
            return False
        (point,) = what_if(larger, columns, [{}])
        found, error = point.recall or 0, math.inf if point.error is None else point.error[0]
        return point.lasts and found >= recall and error <= most_error

    # More epsilon does not always help: levels have largest sizes, budgets end, and thresholds are whole numbers.
    found = next((step for step in range(-MOST_STEPS, MOST_STEPS + 1, COARSE_STEPS) if suffices(step)), None)
    if found is None:
        return None
    finest = next(step for step in range(found - COARSE_STEPS + 1, found + 1) if step == found or suffices(step))
    return decimal_up(_scaled(subject, settings, finest).views[subject.view].ledger.total.epsilon, 4)


def _scaled(subject: Subject, settings: Mapping[str, str], step: int) -> Plan:
    """Return the plan of a point with all epsilons of the view, the one that finds its keys, and both ledgers scaled.

    Raises:
        ConfigError: that is no valid configuration.
    """
    raw = assigned(subject.plan, subject.view, assignments(subject, settings))
    times = Fraction(round(2 ** (step / STEPS_OF_OCTAVE) * _FINE), _FINE)
    finds = finder(subject.plan.views[subject.view], subject.plan.views)
    views = [raw["views"][name] for name in (subject.view, *([] if finds is None else [finds.name]))]
    ledgers = [raw["ledgers"][name] for name in {view["ledger"] for view in views}]
    levels = [level for name in {view["ladder"] for view in views} for level in raw["ladders"][name]]
    pools, selections = [one.get("zcdp") for one in ledgers], [view.get("selection") for view in views]
    for part in (*ledgers, *pools, *selections, *levels):
        if part is not None and part.get("epsilon") is not None:
            part["epsilon"] = str(parse_exact(str(part["epsilon"])) * times)
    return build_plan(raw, subject.plan.folder)
