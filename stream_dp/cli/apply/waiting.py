"""Waiting until every worker has said that it knows of new settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stream_dp.cli.status import look
from stream_dp.config.plan import Plan
from stream_dp.runtime.kafka.client import Client

LOOK_SECONDS = 1.0
MOST_LOOKS = 60
"""Workers say every 10 s how they are."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Who has said what settings it goes by.

    Attributes:
        number: of the settings.
        known_by: instances that go by them, or by later ones.
        others: instances that run and have not said so.
        silent: members of the group that have said nothing at all.
        ran: workers ran when they were posted.
        refusals: by instance, why it cannot take them up.
    """

    number: int
    known_by: tuple[str, ...]
    others: tuple[str, ...]
    silent: int
    ran: bool
    refusals: Mapping[str, str]

    @property
    def by_everybody(self) -> bool:
        """Whether every worker that runs has said so; also where none ran."""
        return not self.others and not self.silent and bool(self.known_by or not self.ran)

    @property
    def words(self) -> str:
        """The same in a sentence."""
        if not (self.known_by or self.others or self.silent):
            if self.ran:
                return "No worker runs any more: those that ran have ended, and none has taken them up. See their logs."
            return "No worker runs now; those that start go by them."
        count = len(self.known_by)
        if self.by_everybody:
            return "The worker goes by them." if count == 1 else f"All {count} workers go by them."
        missing = [*self.others, *([f"{self.silent} that have said nothing yet"] if self.silent else [])]
        refused = "".join(f" {name} cannot take them up: {why}." for name, why in self.refusals.items())
        return (
            f"Of {count + len(self.others) + self.silent} workers {count} have said that they go by them, and not: "
            f"{', '.join(missing)}. They learn of them before they close another window; `stream-dp status` shows it."
            f"{refused}"
        )

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        said = {"known_by": list(self.known_by), "not_known_by": list(self.others), "silent": self.silent}
        return {**said, "refusals": dict(self.refusals)}


async def wait_until_known(number: int, plan: Plan, client: Client, say: Callable[[str], None], *, ran: bool) -> Heard:
    """Wait until every worker that runs has said that it goes by some settings, for a minute at most.

    Args:
        number: of the settings.
        plan: the application.
        client: of its broker.
        say: is told of progress.
        ran: workers ran when they were posted, so one of them at least is to say so.
    """
    before: Heard | None = None
    for _ in range(MOST_LOOKS):
        reports = await look(plan, client, accounts=False)
        known = tuple(one.instance for one in reports.running if one.settings >= number)
        others = tuple(one.instance for one in reports.running if one.settings < number)
        refusals = {
            one.instance: one.settings_error for one in reports.running if one.settings < number and one.settings_error
        }
        heard = Heard(number, known, others, max(0, reports.members - len(reports.running)), ran, refusals)
        if heard.by_everybody:
            return heard
        if before is None:
            say("Waiting for the workers to say so, up to a minute ...")
        elif heard.known_by != before.known_by:
            say(f"{len(known)} of {len(known) + len(others) + heard.silent} workers go by them ...")
        before = heard
        await asyncio.sleep(LOOK_SECONDS)
    assert before is not None  # noqa: S101 - it has looked
    return before
