"""What stands in the public topics of views: the evidence by which a worker notices that its state was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    plans = {view.name: view for view in views}
    places = {
        topic(view.name, audience): (view.name, audience) for view in plans.values() for audience in view.audiences
    }
    found: dict[str, set[Shown]] = {view: set() for view, _ in places.values()}
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
        found[view].add(Shown.of(plans[view], audience, what))
    return found
