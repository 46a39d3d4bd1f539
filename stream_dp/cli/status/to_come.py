"""What was decided and has not happened yet: editions, ends of views, unlocks, and times to spend what is left.

All of it follows from the settings, from the clocks and from how far the windows are released, so nothing of it tells
of an event. Whether a grant holds an unlock back, and whether an audience has the level already, is not looked at: this
is the schedule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stream_dp.cli.numbers import moment
from stream_dp.config.plan import SharpenPlan, Unlock, ViewPlan
from stream_dp.control.editions import Posted, editions
from stream_dp.releases.view_definitions import stream_ms
from stream_dp.windows.views import Clock


@dataclass(frozen=True, slots=True)
class ToCome:
    """Something that was decided and has not happened yet.

    Attributes:
        view: what it happens to.
        what: in words.
        at_ms: when, by the clock of the view; of settings, the start of the first window that they are about.
        clock: that clock: the wall clock, or the time of the stream.
    """

    view: str
    what: str
    at_ms: int
    clock: Clock = "wall"


def settings_to_come(
    definitions: Mapping[str, Sequence[ViewPlan]], known: Sequence[Posted], clocks: Mapping[str, int]
) -> Iterator[ToCome]:
    """Editions that begin ahead of the clocks of their views, and ends of views that are taken out.

    Args:
        definitions: by view, its definitions, the newest last.
        known: the settings so far.
        clocks: by view, what its clock shows where it is ahead, as far as that is known.
    """
    for held in editions(known):
        if not held.never_holds and held.from_ms > clocks.get(held.view, held.from_ms):
            words = f"edition {held.edition} (settings {held.settings}) begins"
            yield ToCome(held.view, words, held.from_ms, definitions[held.view][-1].window.clock)
    for name, (*_, newest) in definitions.items():
        if newest.until_ms is not None and newest.until_ms > clocks.get(name, newest.until_ms):
            yield ToCome(name, "ends", newest.until_ms, newest.window.clock)


def sharper_to_come(definitions: Sequence[ViewPlan], released_to_ms: int, wall_ms: int) -> Iterator[ToCome]:
    """What becomes sharper next by itself: of every audience and level the next window that is unlocked, and when.

    Of windows that are released; and the next time at which what is left of a budget is spent.

    Args:
        definitions: the definitions of a view, the newest last.
        released_to_ms: start of its first window that is not released or refused.
        wall_ms: the wall clock.
    """
    ends = [released_to_ms if one.until_ms is None else min(released_to_ms, one.until_ms) for one in definitions]
    come_to = [*zip(definitions, ends, strict=True)]
    over = [(one, end_ms) for one, end_ms in come_to if not one.editions or one.begins_ms < end_ms]
    times: Mapping[Clock, int] = {"wall": wall_ms, "event": stream_ms(over or come_to[:1])}
    found: dict[tuple[str, str], ToCome] = {}

    def take(about: tuple[str, str], one: ToCome) -> None:
        if about not in found or one.at_ms < found[about].at_ms:
            found[about] = one

    for view, end_ms in come_to:
        clock, now_ms = view.window.clock, times[view.window.clock]
        for audience, steps in view.unlocks.items():
            for step in steps:
                words = f"unlocked to {view.levels[step.level].name} for {audience}"
                for at_ms, start_ms in _unlocked(view, audience, step, now_ms, end_ms):
                    take(("unlock", words), ToCome(view.view, f"window of {moment(start_ms)} {words}", at_ms, clock))
        if view.sharpen is not None and _is_sharpened(view, view.sharpen, now_ms):
            level, audience = view.levels[view.sharpen.level].name, view.sharpen.audience
            words = f"what is left of the budget is spent on level {level} for {audience}"
            take(("sharpen", words), ToCome(view.view, words, view.sharpen.next_ms(now_ms), clock))
    yield from found.values()


def _unlocked(view: ViewPlan, audience: str, step: Unlock, now_ms: int, end_ms: int) -> Iterator[tuple[int, int]]:
    """Of every edition: when the next window is unlocked that is released, and its start."""
    first_ms = view.window.first_younger(step.after_ms, now_ms)
    for edition in view.editions:
        start_ms = last_ms = view.charged.next(max(first_ms, edition.first_ms))
        if edition.shape.is_sum:  # it is unlocked with the pane that it ends with
            windows = edition.shape.released
            start_ms = max(windows.first_open(start_ms), windows.first_from(view.begins_ms))
            last_ms = view.window.shape.start_of(windows.end(start_ms) - 1)
        is_its_own = last_ms < end_ms and view.edition(last_ms) == edition
        if is_its_own and edition.audiences.get(audience, -1) < step.level:
            yield view.window.at_age(last_ms, step.after_ms), start_ms


def _is_sharpened(view: ViewPlan, sharpen: SharpenPlan, now_ms: int) -> bool:
    """Whether it has windows in the periods that the next time is about."""
    since_ms = view.ledger.periods.start_of(sharpen.times.start_of(now_ms))
    return view.begins_ms < sharpen.next_ms(now_ms) and (view.until_ms is None or since_ms < view.until_ms)
