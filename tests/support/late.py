"""A stream that a partition counts while views begin, change or are put back, and while records of it are deleted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView, state_name
from tests.support.counting import Entry, counter, event, handed_on, partials, view, watermark
from tests.support.machine import CutError, Machine

AHEAD = 35
"""How far events are ahead of the watermark before them at most."""
SPAN = 240
"""How long the stream is."""

Step = tuple[Sequence[Entry], int]
"""Records, none or some, and the time of the tick behind them."""


@dataclass
class Story:
    """What a partition gets, and the views that are known in the end.

    Attributes:
        steps: one after another.
        late: the view that is learned late, as known from `learned` on.
        former: what was known of the same view before it was taken out, if it was there before.
        removed: where that was learned.
        others: views that are there all the time.
        gone: (step, offset): from the step on, the source begins at the offset.
    """

    steps: list[Step]
    late: CountedView
    former: CountedView | None
    removed: int
    learned: int
    others: list[CountedView]
    gone: list[tuple[int, int]] = field(default_factory=list)

    def known(self, at: int) -> list[CountedView]:
        former = [] if self.former is None else [self.former]
        if at < self.removed:
            former = [replace(one, until_ms=None) for one in former]
        return [*self.others, *former, *([self.late] if at >= self.learned else [])]

    def begins(self, at: int) -> int:
        """Where the source begins at a step."""
        return max((offset for step, offset in self.gone if step <= at), default=0)

    def end(self, at: int) -> int:
        """Where it ends at a step."""
        return 1 + max((one.offset for entries, _ in self.steps[: at + 1] for one in entries), default=-1)

    def run(self, first: int = 0, cuts: Iterable[int] = (), *, whole: bool = False) -> Machine:
        """Count it, as if nothing was deleted where it is `whole`; at every step at least what is known at `first`."""
        machine, left = Machine(), iter(cuts)
        machine.cut_after = next(left, None)
        at, by, running = 0, None, None
        while at < len(self.steps):
            known = self.known(max(at, first))
            try:
                if running is None or by != known:
                    running, by = None, known
                    fresh = counter(*known)
                    machine.carry_out(fresh.load(machine))
                    running = fresh
                entries, now = self.steps[at]
                begins = 0 if whole else self.begins(at)
                if left_over := [one for one in entries if one.offset >= begins]:
                    machine.carry_out(running.chunk(left_over, now, begins))
                machine.carry_out(running.ticks([now], [self.end(at)], begins))
                at += 1
            except CutError:
                running, machine.cut_after = None, next(left, None)
        machine.cut_after = None
        return machine

    def check(self, machine: Machine) -> set[int]:
        """Every window that is not lost has the counts of one that nobody learned of late; the lost ones."""
        found, lost = self.check_view(self.late, machine)
        assert all(start > max(lost, default=-1) for start in found)
        return lost

    def check_view(self, view: CountedView, machine: Machine) -> tuple[set[int], set[int]]:
        """The same of any view; the windows that are not lost, and the lost ones."""
        name, bounds = view.name, view.bounds or view.windows
        due = handed_on(self.run(first=len(self.steps), whole=True).sent).get(name, {})
        lost = {one.start_ms for one in partials(machine.sent) if one.view == name and one.lost}
        sent = [
            one for one in machine.sent if (one.key or b"") not in {p.key for p in partials(machine.sent) if p.lost}
        ]
        found = handed_on(sent).get(name, {})
        begun = {bounds.start_of(start) for start in lost} if view.bounds is not None else set()
        whole = {start: counts for start, counts in found.items() if bounds.start_of(start) not in begun}
        assert whole == {start: due[start] for start in whole}
        assert found.keys() | lost == due.keys()
        return set(found), lost


def shaped(chance: random.Random, name: str, **more: object) -> CountedView:
    """A view of any shape."""
    common = {"max_ahead_ms": AHEAD, "idle_ms": 1 << 40, "items_per_user": chance.choice([1, 2]), **more}
    match chance.randrange(3):
        case 0:
            return view(name, length_ms=chance.choice([5, 10, 20]), **common)
        case 1:
            return view(name, length_ms=20, step_ms=10, **common)
        case _:
            return view(name, length_ms=10, bounds=Tiling(40), **common)


def made(seed: int, clock: str) -> Story:
    """A story: `speed` ms of stream pass in a ms of the wall clock, which is far ahead of the stream."""
    chance = random.Random(seed)
    speed = chance.choice([1, 3, 10, 100])
    start = 0 if clock == "wall" else 1_000_000
    steps: list[Step] = []
    shown, marked, offset = 0, 0, 0
    while shown < SPAN:
        now = shown if clock == "wall" else start + shown // speed
        latest = shown if clock == "wall" else marked + AHEAD
        entries: list[Entry] = []
        for _ in range(chance.randrange(5)):
            time = latest - chance.randrange(AHEAD + 15)
            entries.append(event(offset, f"u{chance.randrange(4)}", f"i{chance.randrange(5)}", time))
            offset += 1
        shown += chance.randrange(12)
        if clock == "event" and chance.random() < 0.7:
            marked = shown
            entries.append(watermark(offset, marked))
            offset += 1
        steps.append((entries, now))
    end = SPAN + 100 + (0 if clock == "wall" else start)
    steps += [([watermark(offset, SPAN + 100)], end), ([], end)]
    learned = chance.randrange(5, len(steps) - 5)
    at_learning = learned * SPAN // len(steps)
    begins = 40 * chance.randrange(0, at_learning // 40 + 4)  # some are past, some to come
    others = [shaped(chance, "others", clock=clock)] if chance.random() < 0.8 else []
    former, removed = None, 0
    late = shaped(chance, "pages", clock=clock, first_ms=begins)
    if chance.random() < 0.5 and begins:
        until = 40 * chance.randrange(1, begins // 40 + 1)
        alike = chance.random() < 0.6
        former = late if alike else shaped(chance, "pages", clock=clock)
        former = replace(former, first_ms=0, until_ms=until)
        # Where one definition takes the place of another that accepts otherwise, what came ahead of it is given up.
        removed = chance.randrange(1, learned + 1) if alike else chance.randrange(1, learned)
        name = state_name("pages", 2)
        late = replace(late, name=name, fingerprint=name.encode().ljust(8)[:8], origin_ms=0)
    return Story(steps, late, former, removed, learned, others)
