"""The kind `running`: for every key of a public list, at the end of every pane, how many had it since the window began.

Contributions are bounded over the whole window: a user has at most `items_per_user` keys of it, each counted once, in
the pane in which it was accepted first. What is noised are not the totals but blocks of panes
(`windows.shapes.running`), each once, and a total is the sum of a few of them. A count of a user is in `height` blocks
at most, so noise is scaled to `items_per_user` times that; a level is paid for once, for all panes of the window and
for every block (specs/lossless 2.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import decimal_up
from stream_dp.kinds.base import Explanation, Kind, ViewBasis
from stream_dp.kinds.catalogue import CataloguePlan
from stream_dp.kinds.fields import Section
from stream_dp.kinds.listing import LEFT_OUT, ListDetails, ListedIn, placed
from stream_dp.kinds.lists import ListField
from stream_dp.kinds.noise import noise_levels
from stream_dp.records.models import ItemCount, Release
from stream_dp.windows.shapes.running import height, most_blocks

DISPLAY_DIGITS = 3


class RunningSettings(Section):
    """Running totals for every key of a public list."""

    kind: Literal["running"]
    catalogue: ListField


class RunningCount(ItemCount):
    """A key of the list and its noisy total."""

    count: int = Field(
        description="Number of users who had the key since the start of the window, with the noise of the blocks that "
        "it is the sum of; it may be negative, and lower than at the end of an earlier pane."
    )


class RunningRelease(Release):
    """Totals since the start of the window, for every key of a public list."""

    kind: Literal["running"] = Field(description="Totals since the start of the window, for every key of a list.")
    catalogue: ListedIn = Field(description="The list.")
    items: tuple[RunningCount, ...] = Field(
        description="Every key of the list and no other, largest noisy total first, then by key."
    )

    def extent(self) -> str:
        """Number of keys of the list, and its version."""
        return f"all {self.catalogue.keys} of list {self.catalogue.version}"


class RunningDetails(ListDetails):
    """List of a running view, and the sums that make up its totals."""

    panes: int = Field(description="Panes of a window; a total is published at the end of each.")
    height: int = Field(description="Of how many noisy blocks of panes a count of one user is part, at most.")
    most_blocks: int = Field(description="The most blocks that a total is the sum of: each brings noise of its own.")
    expected_errors: dict[str, list[str]] = Field(
        description="By level: mean absolute noise of a total of one block, of two, ..., rounded up."
    )


@dataclass(frozen=True)
class RunningPlan(CataloguePlan):
    """The plan of running totals; what is sealed and read is a block of panes.

    Attributes:
        panes: how many a window has.
    """

    panes: int = 1
    name = "running"
    shown: ClassVar[type[ItemCount]] = RunningCount

    @property
    def identity(self) -> Sequence[object]:
        """The list, and how many panes share the noise."""
        return [*self.list_identity, self.panes]

    def explain(self, keys_at_worst: str) -> Explanation:
        """The list, and what the panes have to do with the noise."""
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
            f"what it would be for one; a total is the sum of up to {most} blocks.",
            seen=["all listed"] * len(self.levels),
            columns={"error with\n1 block": [each[0] for each in errors.values()]},
            details=RunningDetails(
                **self.list_details.model_dump(),
                panes=self.panes,
                height=blocks,
                most_blocks=most,
                expected_errors=errors,
            ),
        )


def plan_running(settings: RunningSettings, basis: ViewBasis) -> RunningPlan:
    """Read the list, and compute the noise of every level from how many blocks a user's counts are in.

    Raises:
        ConfigError: a level's epsilon is out of bounds, or the list cannot be used.
    """
    listed, topics = placed(settings.catalogue, basis.folder)
    if listed is None:
        raise ConfigError(
            [
                Fault(
                    "catalogue",
                    "a list in a topic may change from pane to pane, and a total adds up panes: write it here, or name "
                    "a file",
                )
            ]
        )
    sensitivity = min(basis.items_per_user, listed.size) * height(basis.panes)
    return RunningPlan(noise_levels(basis.ladder, sensitivity), sensitivity, listed, topics, basis.panes)


RUNNING = Kind("running", "Release of running totals", RunningSettings, RunningRelease, plan_running, running=True)
