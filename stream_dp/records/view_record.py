"""The record of a view itself: what its counts count, how its windows are cut, and which noise one audience gets.

It is a function of the settings alone, never of events, counts or ledgers' spending, and of no other audience's levels.
A release topic has one for each edition of the view whose windows it holds or will hold.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from stream_dp.records.models import AccountPool, Level, Noise, PrivacyCost, PublicRecord, optional
from stream_dp.windows.durations import CalendarUnit
from stream_dp.windows.shapes.calendars import Calendar
from stream_dp.windows.shapes.shape import Shape
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import Clock

Length = Annotated[int, Field(ge=1)]


class ViewWindow(PublicRecord):
    """Windows of a view; lengths in ms are absent where they follow a calendar."""

    size: str = Field(description='Length of a window as a configuration has it: "7d", "1h30m", "1mo".')
    zone: str | SkipJsonSchema[None] = optional("Time zone of the calendar that windows follow.")
    size_ms: Length | SkipJsonSchema[None] = optional("Length of a window.")
    every_ms: Length | SkipJsonSchema[None] = optional(
        "From the end of one release's window to that of the next: the size, the step of windows that "
        "overlap, or the pane of running totals."
    )
    pane_ms: Length | SkipJsonSchema[None] = optional("Length of a pane, where windows are made of panes.")
    totals: Annotated[int, Field(ge=2)] | SkipJsonSchema[None] = optional(
        "Number of totals that are released of a window, one at the end of every pane."
    )
    origin_ms: int | SkipJsonSchema[None] = optional(
        "A moment, in ms since 1970-01-01T00:00:00Z: all ends of windows are whole multiples of "
        "`every_ms` away from it."
    )
    grace_ms: int = Field(ge=0, description="For so long after its end a window waits for late events.")
    clock: Clock = Field(
        description="wall: windows end by the time of day. event: they end by the time of the events, so nobody can "
        "tell by a clock when one is due."
    )

    @property
    def ends(self) -> Shape:
        """Shape whose intervals end where windows end, or totals."""
        if self.size_ms is None or self.every_ms is None:
            return Calendar(CalendarUnit(self.size), self.zone or "UTC")
        return Tiling(self.every_ms, self.origin_ms or 0)


class ViewLevel(Level):
    """A level that the audience has or will get by its schedule."""

    noise: Noise = Field(description="The law of the noise of one count.")
    noise_interval_95: int = Field(
        ge=0, description="As in releases: of a count of a whole window, and of the total with the most noise."
    )
    minimum_count: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional("As in releases of a histogram.")
    two_sided_from: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional(
        "As in releases of a histogram from which `rank` left nothing out."
    )
    stays_from: Annotated[int, Field(ge=1)] | SkipJsonSchema[None] = optional("As in releases of a histogram.")


class ViewUnlock(PublicRecord):
    """A level that the audience gets when windows are old enough."""

    level: str = Field(description="Name of the level.")
    after_ms: int = Field(ge=0, description="Age of a window, from its end on.")


class ViewEdition(PublicRecord):
    """An edition, and where it begins."""

    number: int = Field(ge=1, description="Its number, as in releases.")
    first_window: str = Field(description="Start of its first window, RFC 3339 in UTC; of panes, that of the first.")
    first_window_ms: int = Field(description="The same in milliseconds since 1970-01-01T00:00:00Z.")


class ViewLedger(PublicRecord):
    """The ledger that pays for the view."""

    name: str = Field(description="The ledger's name.")
    population: str = Field(description="Who is protected: one of these is a user.")
    budget: PrivacyCost = Field(
        description="What may be spent on one user in a period that begins now, over all views and audiences."
    )
    period: str = Field(description="Length of a period, in words.")
    zcdp: AccountPool | SkipJsonSchema[None] = optional("The pool of the budget, where it has one.")


class ViewRecord(PublicRecord):
    """An edition of a view, as one audience gets it.

    It follows from the settings alone, so it reveals nothing about events. It has this audience's levels only: those
    that it starts with or is unlocked. A grant may give it another one; releases name the level that they have.
    """

    schema_version: Literal[1] = Field(description="Version of this form.")
    code_version: str = Field(description="Version of the stream-dp that made the record.")
    type: Literal["view"] = Field(
        description="The view itself. A later record of the same view, audience and edition replaces it."
    )
    view: str = Field(description="Name of the view.")
    audience: str = Field(description="The group of readers this record is for.")
    edition: ViewEdition = Field(description="The edition that it describes; releases name theirs.")
    next_edition: ViewEdition | SkipJsonSchema[None] = optional(
        "The edition behind it, where one is known. It may be replaced before it begins."
    )
    title: str = Field(description="Title of the view, for people.")
    unit: str = Field(description="What is counted, in words: a count of 3 is 3 of these.")
    item_meaning: str | SkipJsonSchema[None] = optional("What an item is, in words.")
    kind: str = Field(description="Release kind.")
    items_per_user: int = Field(ge=1, description="Number of distinct items of one user that count in one window.")
    windows_per_user: Length | SkipJsonSchema[None] = optional(
        "Number of windows of a period that a user is counted in, at most, of those that are charged by themselves; "
        "absent: a user may be in every window."
    )
    rank: Length | SkipJsonSchema[None] = optional(
        "Most keys of a release: those with the largest noisy counts. Absent: all that the kind shows."
    )
    window: ViewWindow = Field(description="Its windows.")
    retention_ms: int = Field(ge=0, description="For so long after its end a window is kept, and its records are.")
    level: str = Field(description="Name of the level that windows of the edition are released with.")
    levels: tuple[ViewLevel, ...] = Field(
        min_length=1, description="The levels of this audience: `level`, its present one, and its unlocks'."
    )
    unlocks: tuple[ViewUnlock, ...] = Field(description="What it gets later by the age of a window, oldest last.")
    ledger: ViewLedger = Field(description="The account that its releases are charged to.")
    neighbours: str = Field(description="Neighbouring inputs, which the guarantee makes hard to tell apart, in words.")

    def due_ms(self, newest_ms: int | None) -> int | None:
        """When the next window is due; None by the event clock, which nobody can foretell.

        Args:
            newest_ms: end of the newest window that is known; None: there is none.
        """
        if self.window.clock == "event":
            return None
        ends, first_ms = self.window.ends, self.edition.first_window_ms
        least_ms = first_ms
        if self.window.totals is None and self.window.size_ms is not None:
            least_ms = first_ms + self.window.size_ms - 1
        last_ms = least_ms if newest_ms is None else max(newest_ms, least_ms)
        return ends.end(ends.start_of(last_ms)) + self.window.grace_ms
