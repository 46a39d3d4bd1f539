"""What stands in the public topics of views: the evidence by which a worker notices that its state was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.records.codec import outline
from stream_dp.releases.losses import Published, Shown
from stream_dp.runtime.client import Client

NEWEST = 100
"""Records of each topic that are read where the newest suffice: the last commits are what a changelog loses.

One part of a release tells of it as well as all of them: its commit was stored before any of them was published.
"""


async def read_published(
    client: Client, topic: Callable[[str, str], str], views: Iterable[ViewPlan], *, whole: bool
) -> Published:
    """Read the public topics of views up to where they end now.

    Args:
        client: a client of their broker.
        topic: of a view's name and an audience: their public topic.
        views: the views; their topics exist.
        whole: read all of them; otherwise the `NEWEST` records of each.

    Raises:
        BrokerError: the cluster does not answer.
        StateError: a topic holds a record that is none of ours.
    """
    asked: dict[str, list[ViewPlan]] = {}
    for one in views:
        asked.setdefault(one.view, []).append(one)
    readers = ((name, audience) for name, some in asked.items() for view in some for audience in view.readers)
    places = {topic(*reader): reader for reader in readers}
    found: dict[str, set[Shown]] = {one.name: set() for some in asked.values() for one in some}
    if not places:
        return found
    async for record in client.follow([*places], until_end=True, last=None if whole else NEWEST):
        if record.value is None:
            continue
        view, audience = places[record.topic]
        try:
            what = outline(record.value)
        except StateError as error:
            raise StateError(f"topic {record.topic}, offset {record.offset}: {error}") from None
        question = _question(what.edition, asked[view])
        found[question.name].add(Shown.of(question, audience, what))
    return found


def _question(edition: int, asked: Sequence[ViewPlan]) -> ViewPlan:
    """Which question of a view a record answers: the newest, if the edition that it names is not known any more."""
    of = (view for view in asked for one in view.editions if one.number == edition)
    return next(of, asked[-1])
