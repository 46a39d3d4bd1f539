"""Settings of levels that come later: unlocks by age, and use of leftover budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from stream_dp.config.loading import Sections, unknown
from stream_dp.config.models import UnlockConfig, ViewConfig
from stream_dp.config.plan import SharpenPlan, Unlock, ViewPlan
from stream_dp.config.yaml_data import join
from stream_dp.errors import Fault
from stream_dp.exact.rationals import decimal_up, exact_text
from stream_dp.windows.durations import format_duration


def unlocks_of(sections: Sections, view: ViewConfig, audience: str) -> Sequence[UnlockConfig]:
    """The schedule of an audience of a view: the view's own, else that of the audience."""
    own = view.unlock.get(audience)
    return sections.audiences[audience].unlock if own is None else own


def unlock_faults(sections: Sections, path: str, view: ViewConfig, names: Sequence[str]) -> Iterator[Fault]:
    """Faults of the schedules of a view, and of what it does with what is left.

    Args:
        sections: the configuration.
        path: of the view.
        view: its configuration.
        names: the audiences that read it.
    """
    ladder = sections.ladders.get(view.ladder)
    levels = [level.level for level in ladder or ()]
    index = {name: at for at, name in enumerate(levels)}
    for audience in view.unlock:
        if audience not in names:
            yield Fault(f"{join(path, 'unlock')}.{audience}", f"does not read the view; {unknown(audience, names)}")
    if ladder is None:
        return
    for audience in names:
        if audience in sections.audiences:
            start = sections.audiences[audience].level
            own = audience in view.unlock
            where = f"{path}.unlock.{audience}" if own else f"audiences.{audience}.unlock"
            about = "" if own else f"view {path.partition('.')[2]}: "
            steps = unlocks_of(sections, view, audience)
            yield from _schedule(where, about, view, start, steps, index)
    yield from _sharpen(sections, f"{path}.sharpen", view, names, index)


def _schedule(
    path: str, about: str, view: ViewConfig, start: str, steps: Sequence[UnlockConfig], index: Mapping[str, int]
) -> Iterator[Fault]:
    for at, step in enumerate(steps):
        where = join(path, at)
        if step.level not in index:
            known = unknown(step.level, index)
            yield Fault(f"{where}.level", f"{about}ladder {view.ladder!r} has no level {step.level!r}; {known}")
        if step.after > view.retention:
            yield Fault(
                f"{where}.after",
                f"{about}{format_duration(step.after)} is longer than its retention, "
                f"{format_duration(view.retention)}: a window is gone then; give {join(path, at)} less time, or the "
                "view more retention",
            )
    rising = [(start, 0), *((step.level, step.after) for step in steps)]
    for at, ((coarse, early), (fine, late)) in enumerate(pairwise(rising)):
        if index.get(fine, len(index)) <= index.get(coarse, -1):
            yield Fault(f"{join(path, at)}.level", f"{about}{fine!r} is not finer than {coarse!r} before it")
        if late <= early:
            yield Fault(
                f"{join(path, at)}.after",
                f"{about}{format_duration(late)} is not later than the {format_duration(early)} before it",
            )


def _sharpen(
    sections: Sections, path: str, view: ViewConfig, names: Sequence[str], index: Mapping[str, int]
) -> Iterator[Fault]:
    wanted = view.sharpen
    if wanted is None:
        return
    if view.window.pane is not None:
        yield Fault(
            path,
            "is for views without `window.pane`: it sharpens the newest first, and what is made of panes gets finer "
            "with its oldest pane first; use `unlock`, or grants",
        )
    if wanted.audience not in names:
        yield Fault(
            f"{path}.audience", f"{wanted.audience!r} does not read the view; {unknown(wanted.audience, names)}"
        )
    if wanted.level not in index:
        yield Fault(f"{path}.level", f"ladder {view.ladder!r} has no such level; {unknown(wanted.level, index)}")
    elif wanted.audience in sections.audiences:
        start = sections.audiences[wanted.audience].level
        if index[wanted.level] <= index.get(start, -1):
            yield Fault(f"{path}.level", f"{wanted.level!r} is not finer than {start!r}, which {wanted.audience} has")
    if wanted.every > view.retention:
        yield Fault(
            f"{path}.every",
            f"{format_duration(wanted.every)} is longer than the view's retention, {format_duration(view.retention)}: "
            "of a window in between nothing would be left to sharpen",
        )


def planned_unlocks(sections: Sections, view: ViewConfig, names: Sequence[str]) -> dict[str, tuple[Unlock, ...]]:
    """By audience, what it is unlocked; of a view without faults."""
    index = {level.level: at for at, level in enumerate(sections.ladders[view.ladder])}
    found = {
        name: tuple(Unlock(index[step.level], step.after) for step in unlocks_of(sections, view, name))
        for name in names
    }
    return {name: steps for name, steps in found.items() if steps}


def planned_sharpening(sections: Sections, view: ViewConfig) -> SharpenPlan | None:
    """Return the plan for leftover budget, of a view without faults."""
    wanted = view.sharpen
    if wanted is None:
        return None
    index = {level.level: at for at, level in enumerate(sections.ladders[view.ladder])}
    return SharpenPlan(wanted.audience, index[wanted.level], wanted.reserve, wanted.every)


def unlocked_words(view: ViewPlan, audience: str) -> str:
    """Describe the later levels of an audience, and their cost beyond the start."""
    steps = [f"{view.levels[step.level].name} {format_duration(step.after_ms)}" for step in view.unlocks[audience]]
    more = view.levels[view.planned_level].epsilon - view.levels[view.start_level].epsilon
    return (
        f"{audience} sees {', '.join(steps)} after the end of a window. The ledger keeps the cost of the finest for "
        f"every window, epsilon {decimal_up(more)} beyond that of the start."
    )


def sharpening_words(view: ViewPlan) -> str | None:
    """Describe the use of leftover budget, and the cost of one window."""
    wanted = view.sharpen
    if wanted is None:
        return None
    base, level = view.levels[view.planned_level], view.levels[wanted.level]
    more = max(level.epsilon - base.epsilon, Fraction(0))
    reserve = f"{exact_text(wanted.reserve)} of the budget" if wanted.reserve else "nothing"
    return (
        f"Every {format_duration(wanted.every_ms)}, what ledger {view.ledger.name} has left in the period shows "
        f"{wanted.audience} its newest windows at level {level.name}: epsilon {decimal_up(more)} a window beyond "
        f"{base.name}, as long as what is left pays for it; {reserve} is held back, and what windows to come cost."
    )
