"""Whose a topic is: every application claims its topics in a topic of the cluster.

Kafka does not know who made a topic, so two applications that name one alike would write to it side by side: the state,
noise and ledger of neither would cover what readers see. An application is known by its name and its key file, which
all its workers share. A worker that starts

1. reads the claims, then looks which of its topics are there. One that is there and another's ends it; one that is not
   holds nobody up, since its former application may be gone;
2. creates those that are missing;
3. claims all of them in one record, which says how far it had read. The claim counts unless another application's that
   counts stands behind that place and names one of the topics: the worker begins again then, and finds it.

So what was claimed was there before, and whoever goes past a claim looked after reading it and found the topic gone.
Of several applications that start at once, the first in the log has the topics.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from stream_dp.config.crosschecks import OWNERS_TOPIC
from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault, StateError
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.topics import SIZE, Topics, TopicSpec
from stream_dp.windows.sizes import MESSAGE_BYTES

OWNERS = TopicSpec(OWNERS_TOPIC, 1, {"cleanup.policy": "compact", **SIZE})


class Owner(NamedTuple):
    """An application: its name, and the name of its key in hexadecimal."""

    application: str
    key_id: str


class Claim(msgspec.Struct, frozen=True):
    """That topics belong to an application; `seen` is the offset of the last record that it knew, -1 for none."""

    application: str
    key_id: str
    topics: tuple[str, ...]
    seen: int

    @property
    def owner(self) -> Owner:
        """Whose they are."""
        return Owner(self.application, self.key_id)


class Placed(NamedTuple):
    """A claim and its place in the log."""

    offset: int
    key: bytes
    claim: Claim


async def create_owned(plan: Plan, client: Client, key_id: bytes, *, replication: int = 1) -> None:
    """Create the topics of an application that are missing, and claim all but its sources.

    Safe to run by any number of workers at once. Of applications that name a topic alike, no two get through while the
    topic is there.

    Args:
        plan: the application.
        client: a client of its broker.
        key_id: the name of its key.
        replication: copies of every created topic.

    Raises:
        ConfigError: topics belong to another application; every one is named. Or they are too many for one claim.
        BrokerError: the cluster refused something.
        StateError: the topic of the claims holds something else.
    """
    await client.create([OWNERS], replication)
    specs, owner = Topics.of(plan).all(plan), Owner(plan.name, key_id.hex())
    key = f"{owner.application}/{owner.key_id}/{uuid.uuid4()}".encode()
    gone: set[tuple[str, bytes]] = set()
    """Topics that were missing under a claim, and the claim's key."""
    while True:
        log, seen = await _read(client)
        held = _holders(log)
        missing = [spec.name for spec in specs if await client.partitions(spec.name) is None]
        gone |= {(topic, held[topic].key) for topic in missing if topic in held}
        try:
            _check(plan, owner, {topic: one for topic, one in held.items() if (topic, one.key) not in gone})
        except ConfigError:
            if await _read(client) == (log, seen):
                raise
            continue  # a topic that was missing was created and claimed since the claims were read
        await client.create(specs, replication)
        topics = {spec.name for spec in specs} | {topic for topic, one in held.items() if one.claim.owner == owner}
        claim = msgspec.json.encode(Claim(*owner, tuple(sorted(topics)), seen))
        if len(claim) > MESSAGE_BYTES:
            raise ConfigError(
                f"application {plan.name!r} has had {len(topics)} topics, more than one claim can name; give it "
                "another name, or take views out of it"
            )
        await client.publish([Outgoing(OWNERS.name, 0, key, claim)])
        log, _ = await _read(client)
        held = _holders(log)
        if all(topic in held and held[topic].claim.owner == owner for topic in topics):
            await _withdraw(client, _superseded(log, key))
            return
        await _withdraw(client, [key])


async def _read(client: Client) -> tuple[list[Placed], int]:
    """The claims that were not withdrawn, in the order of the log, and the offset of its last record."""
    found: dict[bytes, Placed] = {}
    last = -1
    async for record in client.follow([OWNERS.name], until_end=True):
        last = record.offset
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = Placed(record.offset, record.key, _decoded(record.value))
    return list(found.values()), last


def _decoded(value: bytes) -> Claim:
    try:
        return msgspec.json.decode(value, type=Claim)
    except msgspec.DecodeError as error:
        raise StateError(f"topic {OWNERS.name} holds a record that is no claim: {error}") from None


def _holders(log: list[Placed]) -> dict[str, Placed]:
    """By topic, the last claim that counts."""
    held: dict[str, Placed] = {}
    for one in log:
        before = [held[topic] for topic in one.claim.topics if topic in held]
        if all(former.offset <= one.claim.seen or former.claim.owner == one.claim.owner for former in before):
            held |= dict.fromkeys(one.claim.topics, one)
    return held


def _superseded(log: list[Placed], key: bytes) -> list[bytes]:
    """Claims that the one with the key makes needless: the earlier ones of its application.

    Not those in front of a rival's: it does not count because of them, and its worker may not have seen that yet.
    """
    place = next((at for at, one in enumerate(log) if one.key == key), None)
    if place is None:
        return []  # a later one has made it needless
    claim, found = log[place].claim, []
    for one in reversed(log[:place]):
        if one.claim.owner == claim.owner:
            found.append(one.key)
        elif not {*one.claim.topics}.isdisjoint(claim.topics):
            break
    return found


async def _withdraw(client: Client, keys: list[bytes]) -> None:
    await client.publish([Outgoing(OWNERS.name, 0, key, None) for key in keys])


def _check(plan: Plan, owner: Owner, held: Mapping[str, Placed]) -> None:
    """Make sure that no topic is another application's.

    Raises:
        ConfigError: some are.
    """
    faults = []
    for path, topics, remedy in _places(plan):
        theirs: dict[str, list[str]] = {}
        for topic in topics:
            if topic in held and held[topic].claim.owner != owner:
                theirs.setdefault(held[topic].claim.application, []).append(topic)
        faults += [Fault(path, _told(plan, holder, those, remedy)) for holder, those in theirs.items()]
    if faults:
        raise ConfigError(faults)


def _places(plan: Plan) -> Iterator[tuple[str, list[str], str]]:
    """Every path of the configuration that topics are named by, those topics, and how they get other names."""
    topics = Topics.of(plan)
    internal = [spec.name for spec in topics.all(plan) if spec.name.startswith(f"{plan.name}-")]
    yield "name", internal, "give this application another name"
    for view in plan.views.values():
        released = [topics.release(view.name, audience) for audience in view.audiences]
        yield f"views.{view.name}", released, "give the view another name"
    for name, source in {view.source.name: view.source for view in plan.views.values()}.items():
        yield f"sources.{name}.dead_letter_topic", [source.dead_letter_topic], "choose another topic"


def _told(plan: Plan, holder: str, topics: list[str], remedy: str) -> str:
    whose = f"application {holder!r}"
    if holder == plan.name:
        whose += ", started with another key file"
        remedy += ", use that key file if it is the same application"
    what = f"topic {topics[0]} belongs" if len(topics) == 1 else f"topics {', '.join(topics)} belong"
    return f"{what} to {whose}; {remedy}, or delete what is left of that one if it is gone"
