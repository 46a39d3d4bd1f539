"""What a change of settings means for the windows of the editions that there are already."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stream_dp.config.plan import Edition, Plan, ViewPlan
from stream_dp.control.boundaries import Situation
from stream_dp.windows.durations import format_duration


@dataclass(frozen=True, slots=True)
class Disclosed:
    """What is disclosed differently.

    Attributes:
        what: `audience NAME`, `sharpen` or `retention`.
        before: as it is now; None: nothing.
        after: as it becomes; None: nothing.
    """

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FormerEdition:
    """An edition that there is already, of which something is disclosed differently.

    Attributes:
        view: the view's name.
        edition: its number.
        from_ms: start of its first window.
        until_ms: the start of the first window that is not of it; None: there is none.
        changes: what is different.
    """

    view: str
    edition: int
    from_ms: int
    until_ms: int | None
    changes: tuple[Disclosed, ...]


def former_editions(situation: Situation, after: Plan) -> Iterator[FormerEdition]:
    """The editions whose windows may be retained, or are still to be released, and are disclosed differently.

    Args:
        situation: what is known of the application before the change.
        after: the plan that holds behind it.
    """
    for was in situation.holding.views.values():
        becomes = after.views.get(was.name)
        before, latter = _disclosure(was), {} if becomes is None else _disclosure(becomes)
        changes = tuple(
            Disclosed(what, before.get(what), latter.get(what))
            for what in dict.fromkeys([*before, *latter])
            if before.get(what) != latter.get(what)
        )
        clock_ms = situation.clock(was)
        for edition in (was if becomes is None else becomes).editions if changes else ():
            until_ms = _until(was if becomes is None else becomes, edition)
            over = None if until_ms is None else was.window.whole.end(until_ms) + was.window.kept_ms
            is_gone = over is not None and clock_ms is not None and over <= clock_ms
            never = until_ms is not None and until_ms <= edition.first_ms
            if edition.number in {one.number for one in was.editions} and not (is_gone or never):
                yield FormerEdition(was.view, edition.number, edition.first_ms, until_ms, changes)


def _until(view: ViewPlan, edition: Edition) -> int | None:
    """The start of the first window that an edition does not hold for."""
    later = [one.first_ms for one in view.editions if one.number > edition.number]
    return min([*later, *([] if view.until_ms is None else [view.until_ms])], default=None)


def _disclosure(view: ViewPlan) -> dict[str, str]:
    """What is disclosed of the windows of a question, in words."""
    found = {f"audience {name}": _rising(view, name, level) for name, level in view.audiences.items()}
    if view.sharpen is not None:
        level, every = view.levels[view.sharpen.level].name, format_duration(view.sharpen.every_ms)
        found["sharpen"] = f"{view.sharpen.audience} to {level} every {every}"
    found["retention"] = format_duration(view.window.retention_ms)
    return found


def _rising(view: ViewPlan, audience: str, level: int) -> str:
    steps = [
        f"{view.levels[step.level].name} after {format_duration(step.after_ms)}"
        for step in view.unlocks.get(audience, ())
    ]
    return ", ".join([view.levels[level].name, *steps])
