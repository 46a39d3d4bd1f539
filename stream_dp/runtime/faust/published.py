"""Contents of the public topics of views: the evidence by which a worker notices that its state was lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

from faust.types import TP

from stream_dp.config.plan import ViewPlan
from stream_dp.errors import StateError
from stream_dp.records.codec import outline
from stream_dp.releases.losses import Published, Shown
from stream_dp.runtime.kafka.client import Client

NEWEST = 100
"""Records of each topic that are read where the newest suffice: the last commits are what a changelog loses.

One part of a release tells of it as well as all of them: its commit was stored before any of them was published. A
tombstone tells of nothing, and compaction may have left few records among so many offsets; then more are read.
"""
_FURTHER = 4


async def read_published(
    client: Client,
    topic: Callable[[str, str], str],
    views: Collection[ViewPlan],
    *,
    whole: bool,
    missing: Collection[str] = (),
) -> Published:
    """Read the public topics of views up to where they end now.

    Args:
        client: a client of their broker.
        topic: of a view's name and an audience: their public topic.
        views: the views.
        whole: read all of them; otherwise the `NEWEST` records of each, at least.
        missing: topics that are left out; all others exist.

    Returns:
        What compaction leaves of what was read: the newest record of every key that was not taken back since.

    Raises:
        BrokerError: the cluster does not answer.
        StateError: a topic has a record of another application, or an open transaction that could hide releases.
    """
    definitions: dict[str, list[ViewPlan]] = {}
    for one in views:
        definitions.setdefault(one.view, []).append(one)
    # One that is never to hold may have released windows before that was known; it has no topics of its own.
    held = [view for view in views if not view.never_holds]
    places = {
        topic(view.view, audience): (definitions[view.view], audience) for view in held for audience in view.readers
    }
    places = {place: asked for place, asked in places.items() if place not in missing}
    found: dict[str, dict[bytes, tuple[str, Shown]]] = {place: {} for place in places}
    parts = [TP(place, 0) for place in places]
    await client.check_decided(parts)
    ends = await client.ends(parts)
    last, left = (None if whole else NEWEST), [*places]
    while left:
        told = dict.fromkeys(left, 0)
        async for record in client.follow(left, until_end=True, last=last):
            found[record.topic].pop(record.key, None)
            if record.value is not None and (shown := _shown(record, *places[record.topic])) is not None:
                found[record.topic][record.key] = shown
                told[record.topic] += 1
        if last is None:
            break
        left = [place for place in left if told[place] < NEWEST and last < ends[TP(place, 0)]]
        last *= _FURTHER
    told_of: dict[str, set[Shown]] = {one.name: set() for one in views}
    for definition, one_shown in chain.from_iterable(here.values() for here in found.values()):
        told_of[definition].add(one_shown)
    return told_of


def _shown(record: Any, asked: Sequence[ViewPlan], audience: str) -> tuple[str, Shown] | None:
    """Definition of a view that a record was made with, and what it shows; None if it is not about a window.

    It is the newest, if the edition that the record names is not known any more.
    """
    try:
        what = outline(record.value)
    except StateError as error:
        raise StateError(f"topic {record.topic}, offset {record.offset}: {error}") from None
    if what is None:
        return None
    of = (view for view in asked for one in view.editions if one.number == what.edition)
    definition = next(of, asked[-1])
    return definition.name, Shown.of(definition, audience, what)
