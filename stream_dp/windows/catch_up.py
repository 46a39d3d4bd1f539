"""The clock that catches up after a silence, so that an outage does not make buffered events late.

While a broker is away, producers keep the records that it has not acknowledged. They deliver them when it is back, but
the first tick may come before them. So after a silence, a view's clock stands still in that partition of its source
until producers have had time to deliver.

A silence is a long distance between two rising ticks about the source. The tick that ends it begins the catch-up, and
the first tick that is at least `catch_up` later ends it: the clock then jumps to that tick. If a further silence ends
before that, producers get the same time again. But from the end of the first silence on, a catch-up lasts at most
`MOST_CATCH_UPS` times `catch_up`, so that a broker that comes and goes cannot keep windows open forever. Windows that
closed because of this limit are marked as interrupted.

Everything follows from the times of ticks alone, so it is the same after a restart, and for all who read the ticks.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

MIN_SILENCE_MS = 5_000
"""A shorter distance between two ticks is never a silence: a busy worker makes ticks late, too."""
MOST_CATCH_UPS = 10
"""A catch-up that silences prolong lasts at most this many times `catch_up`."""


class CatchUp(msgspec.Struct, array_like=True, frozen=True):
    """A catch-up that has begun: the clock stands still."""

    stood_ms: int
    """The last tick before the first silence: the time at which the clock stands still."""
    began_ms: int
    """The tick that ended the first silence."""
    until_ms: int
    """The first tick at or after this time ends the catch-up, unless it ends a silence itself."""


class CatchUpRule(NamedTuple):
    """Rule of a view: the distance between ticks that is a silence, and the time its clock then stands still."""

    grace_ms: int
    """The grace of the view's windows. A distance of up to half of it makes no buffered event late."""
    catch_up_ms: int
    """Time that the clock stands still after a silence, but never longer than the silence was; 0: not at all."""

    @property
    def longest_distance_ms(self) -> int:
        """The longest distance between two ticks that is not a silence."""
        return max(MIN_SILENCE_MS, self.grace_ms // 2)


class ClockStep(NamedTuple):
    """Effect of a tick on a clock."""

    catch_up: CatchUp | None
    """The catch-up from here on: the clock stands still. None: the clock shows the tick."""
    before_ms: int
    """The tick that the clock showed before."""
    is_cut_short: bool = False
    """True if the clock moves because a catch-up reached its limit."""


def step_clock(rule: CatchUpRule, catch_up: CatchUp | None, before_ms: int, now_ms: int) -> ClockStep:
    """Return the effect of a rising tick on a clock.

    Args:
        rule: the rule of the view.
        catch_up: the catch-up that the tick before it left; None: the clock showed that tick.
        before_ms: the time of that tick; below 0 if there was none.
        now_ms: the time of this tick.
    """
    shown_ms = before_ms if catch_up is None else catch_up.stood_ms
    if not rule.catch_up_ms:
        return ClockStep(None, shown_ms)
    distance_ms = now_ms - before_ms
    if before_ms >= 0 and distance_ms > rule.longest_distance_ms:
        until_ms = now_ms + min(rule.catch_up_ms, distance_ms)
        if catch_up is None:
            catch_up = CatchUp(before_ms, now_ms, until_ms)
        else:  # a short silence must not end what a long one began
            catch_up = CatchUp(catch_up.stood_ms, catch_up.began_ms, max(until_ms, catch_up.until_ms))
    if catch_up is None or now_ms >= catch_up.until_ms:
        return ClockStep(None, shown_ms)
    if now_ms >= catch_up.began_ms + MOST_CATCH_UPS * rule.catch_up_ms:
        return ClockStep(None, shown_ms, is_cut_short=True)
    return ClockStep(catch_up, shown_ms)
