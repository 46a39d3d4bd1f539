"""Consequences of deleted topics, and their remedies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics, sources_of

CHOICES = (
    "Bring back the broker's own copy, if there is one; or stop every worker and start one of them once with "
    "--accept-loss, which creates what is missing"
)
NEW_SOURCE = (
    "how far it was counted says nothing about another topic of its name: bring back the broker's own copy, or give "
    "the source and every view on it new names"
)
_ON_THEIR_WAY = (
    "exact counts on their way to a release: a window that misses some of them is published as a refusal with reason "
    "lost, and nothing is charged for it"
)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic that was deleted. `again` says whether another one of its name is there."""

    topic: str
    again: bool

    @property
    def what(self) -> str:
        """Outcome, in words."""
        return "was deleted and made again" if self.again else "was deleted"


def deleted(ids: Mapping[str, str], present: Mapping[str, TopicState]) -> list[Deleted]:
    """Return the topics that were deleted, or made anew.

    Args:
        ids: the topics by name, with the ids that they had.
        present: those that are there.
    """
    return [
        Deleted(topic, topic in present)
        for topic, was in sorted(ids.items())
        if topic not in present or present[topic].id != was
    ]


def lost_topics(plan: Plan, lost: Iterable[Deleted]) -> ConfigError:
    """The error of a worker that finds that topics of its application were deleted.

    Args:
        plan: the application.
        lost: the topics, at least one.
    """
    losses = _losses(plan)
    own, sources = [], []
    for one in lost:
        loss = losses.get(one.topic)
        path = f"topic {one.topic}"
        if loss is None:
            sources.append(Fault(path, f"the source {one.what}; {NEW_SOURCE}"))
        else:
            own.append(Fault(path, f"{one.what}, and with it {loss}"))
    return ConfigError([*own, *([Fault("", CHOICES)] if own else []), *sources])


def lost_with(plan: Plan, topic: str) -> str:
    """Return what is lost with a topic that the application made, in words."""
    return _losses(plan)[topic]


def _losses(plan: Plan) -> dict[str, str]:
    """Return what is lost with each topic that the application made."""
    topics = Topics.of(plan)
    lost = {
        topics.ticks: "nothing that lasts: ticks are made every second",
        topics.partials: _ON_THEIR_WAY,
        topics.merged: _ON_THEIR_WAY,
        topics.changelog(MERGES): _ON_THEIR_WAY,
        topics.changelog(COUNTS): "the exact counts of every window that was not handed on: whatever had begun is "
        "published as a refusal with reason lost, and nothing is charged for it",
        topics.changelog(RELEASES): "the ledger and the sealed tables: what readers have is charged at worst and never "
        "sharpened, and windows that waited are published as refusals with reason lost",
        topics.control: "grants that no worker had read, and the settings that hold: the file of the first start is "
        "posted as the first ones again; grants that were carried out hold",
        topics.orders: "grants on their way: write those again that were not carried out",
        topics.status: "nothing that lasts: workers say how they are every few seconds",
        topics.accounts: "what `stream-dp ledger` shows of the past; the ledger itself stands elsewhere",
    }
    for name in topics.rekeyed_sources:
        lost[topics.rekeyed(name)] = "events that were re-keyed and not counted: they are missing in their windows"
    for view in plan.views.values():
        for audience in view.readers:
            lost[topics.release(view.view, audience)] = "what its readers had not read; it is not published again"
    for source in sources_of(plan).values():
        lost[source.dead_letter_topic] = "the notes of refused records"
    return lost
