"""The kind `running`: for every key of a public list, at the end of every pane, how many had it since the window began.

Contributions are bounded over the whole window: a user has at most `items_per_user` keys of it, each counted once, in
the pane in which it was accepted first. What is noised are not the totals but blocks of panes
(`windows.shapes.running_totals`), each once, and a total is the sum of a few of them. A count of a user is in `height`
blocks at most, so noise is scaled to `items_per_user` times that; a level is paid for once, for all panes of the window
and for every block (specs/lossless 2.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.catalogue import CataloguePlan
from stream_dp.kinds.fields import Rank, Section
from stream_dp.kinds.kind import Explanation, Kind, ViewBasis
from stream_dp.kinds.public_lists import LEFT_OUT, ListField, placed
from stream_dp.windows.shapes.running_totals import height, most_blocks

DISPLAY_DIGITS = 3


class RunningSettings(Section):
    """Running totals for every key of a public list."""

    kind: Literal["running"]
    catalogue: ListField
    rank: Rank | None = None


@dataclass(frozen=True, kw_only=True)
class RunningPlan(CataloguePlan):
    """The plan of running totals; what is sealed and read is a block of panes.

    Attributes:
        panes: how many a window has.
    """

    panes: int
    name = "running"

    @property
    def identity(self) -> Sequence[object]:
        """The list, and how many panes share the noise."""
        return [*self.list_identity, self.panes]

    def explain(self, keys_at_worst: str) -> Explanation:
        """The list, and what the panes have to do with the noise.

        Details, beside the list: `panes` of a window, at the end of each of which a total is published; `height`: of
        how many noisy blocks of panes a count of one user is part, at most; `most_blocks` that a total is the sum of,
        each with noise of its own; `expected_errors` by level: mean absolute noise of a total of one block, of two,
        ..., rounded up.
        """
        blocks, most = height(self.panes), most_blocks(self.panes)
        errors = {
            level.name: [decimal_up(level.error_of(number), DISPLAY_DIGITS) for number in range(1, most + 1)]
            for level in self.levels
        }
        return Explanation(
            shows="a running total for every listed value",
            keys=f"{self.list_in_words} It is public, so showing its keys costs nothing. {LEFT_OUT} A window has "
            f"{self.panes} panes and is paid for once, with its first: all of them together cost what a level says. A "
            f"value of a user is part of up to {blocks} noisy blocks of panes, so noise is scaled to {blocks} times "
            f"what it would be for one; a total is the sum of up to {most} blocks.{self.ranked_words}",
            seen=["all listed" if self.rank is None else f"first {self.rank}"] * len(self.levels),
            columns={"error with\n1 block": [each[0] for each in errors.values()]},
            details={
                **self.list_details,
                "panes": self.panes,
                "height": blocks,
                "most_blocks": most,
                "expected_errors": errors,
            },
        )


def plan_running(settings: RunningSettings, basis: ViewBasis) -> RunningPlan:
    """Read the list, and compute the noise of every level from how many blocks a user's counts are in.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the list cannot be used.
    """
    place = placed(settings.catalogue, basis.folder, basis.application)
    listed = place["listed"]
    most = basis.items_per_user if listed is None else min(basis.items_per_user, listed.size)
    sensitivity = most * height(basis.panes)
    levels = basis.levels(sensitivity)
    return RunningPlan(levels=levels, sensitivity=sensitivity, panes=basis.panes, rank=settings.rank, **place)


RUNNING = Kind("running", RunningSettings, plan_running, running=True)
