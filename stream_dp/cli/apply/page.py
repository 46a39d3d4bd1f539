"""How a change of settings is shown before it is agreed to: in sentences, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stream_dp.accounting import Cost
from stream_dp.cli.numbers import moment
from stream_dp.config.differences import Setting
from stream_dp.control.proposals import DAY_MS, FormerEdition, Lasting, LedgerChange, Proposal, ViewChange
from stream_dp.exact.rationals import decimal_up
from stream_dp.records.models import PrivacyCost
from stream_dp.windows.durations import format_duration

DIGITS = 4
HOUR_MS = 3_600_000


def page(proposal: Proposal, application: str, number: int, made: Sequence[str] = ()) -> str:
    """What would change, for somebody who is asked whether it shall.

    Args:
        proposal: the change.
        application: its id.
        number: of the settings that hold.
        made: topics that are made for it.
    """
    lines = [f"Settings {number} of {application} hold. Settings {number + 1} would differ:"]
    for view in proposal.views:
        lines += _view(view)
    shown = {setting.path for view in proposal.views for setting in view.settings}
    for ledger in proposal.ledgers:
        lines += _ledger(ledger, shown)
        shown |= {setting.path for setting in ledger.settings}
    rest = [setting for setting in proposal.settings if setting.path not in shown]
    if rest:
        lines += ["in no view", *(f"  {setting}" for setting in rest)]
    if any(view.change != "new" for view in proposal.views):
        lines.append(
            "Windows that begin before keep what they count and their noise. Who sees what of them follows the new "
            "settings as soon as the workers have them."
        )
    if proposal.former:
        lines.append("For windows of former editions this changes what is published from then on:")
        lines += [_former(one) for one in proposal.former]
    if made:
        lines.append(f"New topics: {', '.join(made)}. On a secured cluster their readers need rights to them.")
    return "\n".join([*lines, *(f"warning: {words}" for words in proposal.warnings)])


def waits(shown: Proposal, now: Proposal) -> Iterator[str]:
    """What is later than it was shown, since time went on."""
    before = {view.view: view.at_ms for view in shown.views}
    for view in now.views:
        if view.at_ms != before[view.view]:
            yield f"Meanwhile time went on: view {view.view} changes at {moment(view.at_ms)}."


def dumped(proposal: Proposal) -> dict[str, Any]:
    """The same for machines."""
    return {
        "differs": [_setting(setting) for setting in proposal.settings],
        "views": [
            {
                "view": view.view,
                "change": view.change,
                "at_ms": view.at_ms,
                "at": moment(view.at_ms),
                "differs": [_setting(setting) for setting in view.settings],
                "state_goes_on": view.goes_on,
                "day_before": _dump(view.day_before),
                "day_after": _dump(view.day_after),
                "noise_interval_95": [
                    {"level": level.level, "before": level.before, "after": level.after} for level in view.levels
                ],
            }
            for view in proposal.views
        ],
        "ledgers": [
            {
                "ledger": ledger.ledger,
                "differs": [_setting(setting) for setting in ledger.settings],
                "day_before": _dump(ledger.day_before),
                "day_after": _dump(ledger.day_after),
                "lasts_before": _lasting(ledger.lasts_before),
                "lasts_after": _lasting(ledger.lasts_after),
            }
            for ledger in proposal.ledgers
        ],
        "former_editions": [
            {
                "view": one.view,
                "edition": one.edition,
                "from_ms": one.from_ms,
                "from": moment(one.from_ms),
                "until_ms": one.until_ms,
                "until": None if one.until_ms is None else moment(one.until_ms),
                "changes": [{"what": each.what, "before": each.before, "after": each.after} for each in one.changes],
            }
            for one in proposal.former
        ],
        "warnings": list(proposal.warnings),
    }


def _view(view: ViewChange) -> Iterator[str]:
    at = moment(view.at_ms)
    if view.change == "removed":
        yield f"view {view.view} ends at {at}; what was published of it stays until its retention is over"
        yield f"  a day of it has cost {_cost(view.day_before)}"
        return
    new = "is new, " if view.change == "new" else ""
    yield f"view {view.view} {new}from the window of {at} on"
    own = f"views.{view.view}."
    yield from (f"  {str(setting).removeprefix(own)}" for setting in view.settings if setting.path + "." != own)
    yield f"  a day costs {_costs(view.day_before, view.day_after)} at worst"
    if view.change == "new":
        noise = [f"{level.level} ±{level.after}" for level in view.levels]
    else:
        noise = [
            f"{level.level} {_interval(level.before)} -> {_interval(level.after)}"
            for level in view.levels
            if level.before != level.after
        ]
    yield f"  noise of a count, 95 %: {', '.join(noise) or 'as before'}"
    if view.change == "changed":
        yield "  " + (
            "same definition: it continues with the stored state"
            if view.goes_on
            else "new definition: counts and noise begin anew; ledger and revisions continue"
        )


def _former(one: FormerEdition) -> str:
    until = "" if one.until_ms is None else f" before {moment(one.until_ms)}"
    changes = "; ".join(f"{each.what} {each.before or 'nothing'} -> {each.after or 'nothing'}" for each in one.changes)
    return f"  view {one.view}, edition {one.edition}, windows from {moment(one.from_ms)} on{until}: {changes}"


def _interval(interval: int | None) -> str:
    return "none" if interval is None else f"±{interval}"


def _ledger(ledger: LedgerChange, shown: set[str]) -> Iterator[str]:
    yield f"ledger {ledger.ledger}"
    yield from (f"  {setting}" for setting in ledger.settings if setting.path not in shown)
    if ledger.lasts_after is None or ledger.day_after is None:
        yield "  it is gone; what was spent stays under the words for its population"
        return
    yield f"  a day of all its views costs {_costs(ledger.day_before, ledger.day_after)} at worst"
    yield f"  it lasts {_lasts(ledger.lasts_after, ledger.lasts_before)}"
    if ledger.settings and ledger.lasts_after.until_ms is not None:
        yield "  a period that runs keeps the budget that it began with; the next one has the new"


def _lasts(after: Lasting, before: Lasting | None) -> str:
    """How long, and what it was: "19d instead of 29d, to 2026-02-08"."""
    if after.until_ms is None:
        words = "the whole of a period" if after.is_whole else f"{_duration(after.for_ms)} of a period"
        was = "" if before is None or before == after else f" instead of {_duration(before.for_ms)}"
        return f"{words}{was}"
    words = f"{_duration(after.for_ms)}"
    if before is not None and before != after:
        words += f" instead of {_duration(before.for_ms)}"
    end = "the end of its period, " if after.is_whole else ""
    return f"{words}, to {end}{moment(after.until_ms)}"


def _duration(duration_ms: int) -> str:
    """A time, rounded down: to days from two days on, to minutes from an hour on."""
    for at_least, unit in ((2 * DAY_MS, DAY_MS), (HOUR_MS, 60_000), (60_000, 1000)):
        if duration_ms >= at_least:
            return format_duration(duration_ms // unit * unit)
    return format_duration(duration_ms)


def _costs(before: Cost | None, after: Cost | None) -> str:
    """Entry by entry: "epsilon 0.6 -> 0.9, delta 1e-6"."""
    if before is None or after is None:
        return _cost(after)
    names = dict.fromkeys([name for cost in (before, after) for name, _ in cost.entries(at_least=1)])
    return ", ".join(
        f"{name} {_number(before, name)}" + ("" if _same(before, after, name) else f" -> {_number(after, name)}")
        for name in names
    )


def _cost(cost: Cost | None) -> str:
    entries: Sequence[tuple[str, object]] = [] if cost is None else cost.entries(at_least=1)
    return ", ".join(f"{name} {_number(cost, name)}" for name, _ in entries if cost is not None) or "nothing"


def _number(cost: Cost, name: str) -> str:
    return decimal_up(getattr(cost, name), DIGITS)


def _same(before: Cost, after: Cost, name: str) -> bool:
    return bool(getattr(before, name) == getattr(after, name))


def _setting(setting: Setting) -> dict[str, Any]:
    return {"path": setting.path, "change": setting.change, "before": setting.before, "after": setting.after}


def _dump(cost: Cost | None) -> dict[str, Any] | None:
    return None if cost is None else PrivacyCost.spent(cost).model_dump(mode="json", exclude_none=True)


def _lasting(lasting: Lasting | None) -> dict[str, Any] | None:
    if lasting is None:
        return None
    return {"for_ms": lasting.for_ms, "until_ms": lasting.until_ms, "whole_period": lasting.is_whole}
