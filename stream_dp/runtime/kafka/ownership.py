"""Whose a topic is: every application claims its topics in a topic of the cluster.

Kafka does not know who made a topic, so two applications that name one alike would write to it side by side: the state,
noise and ledger of neither would cover what readers see. An application is known by its name and the first key of
its key file, which all its workers share. A worker that starts

1. reads the claims, then looks which of its topics are there. One that is there and another's ends it; one that is not
   holds nobody up, since its former application may be gone;
2. creates those that are missing;
3. claims all of them in one record, which says how far it had read. The claim counts unless another application's that
   counts stands behind that place and names one of the topics: the worker begins again then, and finds it.

So what was claimed was there before, and whoever goes past a claim looked after reading it and found the topic gone.
Of several applications that start at once, the first in the log has the topics.

A claim also says which topics these were: one that is deleted and made again has another id. Where a topic with state
is gone, or another one of its name is there, an application does not start: with the topic went what the others rely
on. Once that is accepted, the claim counts another life of the topic, and whoever passed something on through the
former one goes by that.

When an application gives a release topic up, the claim says so first, and then the topic is deleted. If the process
ends in between, the next start deletes the topic. If the topic has an audience again, it is created and claimed like
one that never existed. A crash before the new claim leaves a topic with another id, which the next start claims.

Several workers of an application may write claims at the same time. No claim withdraws one that its worker had not
read, and of each topic the newest life in all claims counts. So no claim takes back that a topic was given up.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from aiokafka import TopicPartition

from stream_dp.config.plan import Plan
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topic_checks import Deleted, deleted, lost_topics
from stream_dp.runtime.kafka.topics import COUNTS, Topics, TopicSpec, sources_of
from stream_dp.runtime.key_file import key_fault
from stream_dp.version import STATE_FORM, __version__
from stream_dp.windows.effects import Message
from stream_dp.windows.encoding import MESSAGE_BYTES, UNDECODABLE

logger = logging.getLogger("stream_dp.worker")


class Owner(NamedTuple):
    """An application: its name, and the id of its first key."""

    application: str
    key_id: str


class Life(NamedTuple):
    """A topic from its creation to its deletion: its id, and which life of its name it is, the first being 1."""

    id: str
    number: int
    ended: int = 0
    """The last life of the name that the application ended itself; 0: none."""

    @property
    def is_given_up(self) -> bool:
        """Return True if the application ended this life: the topic is deleted, or about to be."""
        return self.ended == self.number


class Claim(msgspec.Struct, frozen=True):
    """That topics belong to an application; `seen` is the offset of the last record that it knew, -1 for none."""

    application: str
    key_id: str
    topics: dict[str, Life]
    seen: int
    sources: dict[str, tuple[str, str]] = {}
    """By name: the topic of each source, and its id. They belong to nobody."""
    uncounted: dict[str, int] = {}
    """By view, where exact counts of it were lost: when that was accepted, in ms. What had begun then is not known."""
    form: int = 1
    """Of what its workers store; the first versions that claimed topics did not say it."""

    @property
    def owner(self) -> Owner:
        """Whose they are."""
        return Owner(self.application, self.key_id)


class Placed(NamedTuple):
    """A claim and its place in the log."""

    offset: int
    key: bytes
    claim: Claim


async def create_owned(
    plan: Plan,
    client: Client,
    key_id: str,
    *,
    accept_loss: bool = False,
    now_ms: int = 0,
    allow_missing: bool = False,
    republished: Collection[str] = (),
) -> Claim:
    """Create the topics of an application that are missing, and claim all but its sources.

    A deleted topic without state is created again. If someone else deleted a release topic, it is not created again,
    and another topic with its name is not claimed, unless it is in `republished`: the claim keeps the id of the deleted
    topic. A release topic that the application gave up is deleted if it still exists, and created again only if it has
    an audience.

    Safe to run by any number of workers at once. Of applications that name a topic alike, no two get through while the
    topic is there.

    Args:
        plan: the application.
        client: a client of its broker.
        key_id: what it is known by, `KeyRing.application`.
        accept_loss: go on where a topic that it had was deleted.
        now_ms: the wall time at which that is accepted.
        allow_missing: continue without release topics and deleted dead-letter topics that this account may not create.
        republished: deleted release topics to create again, or to claim if they were created again.

    Returns:
        The claim. Topics that could not be created are not in it, or are marked as given up.

    Raises:
        ConfigError: topics belong to another application, or were deleted; every one is named. Or they are too many for
            one claim. Or another version of stream-dp has stored state in another form.
        BrokerError: the cluster refused something.
        ConfigError: the topic of the claims holds something else.
    """
    topics = Topics.of(plan)
    await client.create([topics.owners])
    owners, specs, owner = topics.owners.name, topics.all(plan), Owner(plan.id, key_id)
    unserved = topics.releases(plan) - topics.served(plan)
    key = _claim_key(owner)
    gone: set[tuple[str, bytes]] = set()
    """Topics that were missing under a claim, and the claim's key."""
    while True:
        log, seen = await _read(owners, client)
        held = _holders(log)
        last = _check_form(_merged(log, owner))
        former = last.topics
        optional = topics.releases(plan) | topics.letters(plan) & former.keys() if allow_missing else frozenset[str]()
        given_up = {name: life for name, life in former.items() if life.is_given_up}
        undeleted = await _delete_given_up(given_up, client)
        names = {spec.name for spec in specs} - (given_up.keys() & unserved) - undeleted
        names -= await _hidden(optional, client)
        present = await client.describe(list(names))
        # Removed views and audiences publish nothing more, so no topic is created for them.
        names -= unserved - former.keys() - present.keys()
        gone |= {(name, held[name].key) for name in names if name in held and name not in present}
        sources = await _sources(plan, client)
        lost = deleted({name: former[name].id for name in names & former.keys() - given_up.keys()}, present)
        left_alone = {one.topic for one in lost} & topics.releases(plan) - {*republished}
        lost = [one for one in lost if one.topic not in left_alone]
        try:
            _check(plan, owner, {topic: one for topic, one in held.items() if (topic, one.key) not in gone})
            _check_deleted(plan, lost, accept_loss, sources, last.sources)
        except ConfigError:
            if await _read(owners, client) == (log, seen):
                raise
            continue  # a topic that was missing was created and claimed since the claims were read
        # Only missing topics: one that is given up in the meantime must not be created again.
        to_create = names - left_alone - present.keys()
        names -= await _create([spec for spec in specs if spec.name in to_create], optional, client)
        _warn_of([one for one in lost if one.topic in names], topics.stateless(plan))
        ids = {name: state.id for name, state in (await client.describe(list(names))).items()}
        ids |= {name: former[name].id for name in left_alone}
        recreated = {one.topic for one in lost} | given_up.keys()
        kept = {name: former[name].id for name in names - recreated if name in former}
        if ids.keys() != names or not kept.items() <= ids.items():
            continue  # someone deletes topics at this moment
        lives = {name: _next_life(former.get(name), ids[name], is_new=name in recreated) for name in names}
        lost_counts = _known(plan, former) if topics.changelog(COUNTS) in recreated else []
        claim = Claim(
            *owner,
            dict(sorted({**former, **lives}.items())),
            seen,
            {**last.sources, **sources},
            {**last.uncounted, **dict.fromkeys(lost_counts, now_ms)},
            form=STATE_FORM,
        )
        await client.publish([Message(owners, key, encode_claim(claim))])
        log, _ = await _read(owners, client)
        held = _holders(log)
        if all(topic in held and held[topic].claim.owner == owner for topic in claim.topics):
            await _withdraw(owners, client, _superseded(log, key))
            return claim
        await _withdraw(owners, client, [key])


def _claim_key(owner: Owner) -> bytes:
    return f"{owner.application}/{owner.key_id}/{uuid.uuid4()}".encode()


async def _hidden(topics: Collection[str], client: Client) -> set[str]:
    """Return which topics this account may not see."""
    with suppress(AccessError):
        await client.describe(topics)
        return set()
    hidden: set[str] = set()
    for topic in topics:
        try:
            await client.describe([topic])
        except AccessError:
            hidden.add(topic)
    return hidden


async def _delete_given_up(lives: Mapping[str, Life], client: Client) -> set[str]:
    """Delete given-up topics that still exist, and return those that this account may not delete."""
    visible = lives.keys() - await _hidden(lives, client)
    undeleted: set[str] = set()
    for topic in sorted(await client.describe(visible) if visible else ()):
        try:
            # Another worker may have deleted and created it since, so its id is read again right before.
            state = (await client.describe([topic])).get(topic)
            if state is not None and state.id == lives[topic].id:
                await client.delete([topic])
        except OutageError:
            raise
        except (AccessError, BrokerError) as error:
            logger.info("topic %s was given up, but cannot be deleted: %s", topic, error)
            undeleted.add(topic)
    return undeleted


async def _create(specs: Sequence[TopicSpec], optional: Collection[str], client: Client) -> set[str]:
    """Create missing topics, and return the optional ones that this account may not create.

    Raises:
        AccessError: this account may not create or see a required topic.
        BrokerError: the cluster refused to create a required topic.
    """
    try:
        await client.create(specs)
    except OutageError:
        raise
    except (AccessError, BrokerError):
        if not optional:
            raise
    else:
        return set()
    await client.create([spec for spec in specs if spec.name not in optional])
    missing: set[str] = set()
    for spec in specs:
        if spec.name in optional and not await _create_one(spec, client):
            missing.add(spec.name)
    return missing


async def _create_one(spec: TopicSpec, client: Client) -> bool:
    """Create a topic if it is missing, and return whether this account can see it now."""
    try:
        await client.create([spec])
    except OutageError:
        raise
    except (AccessError, BrokerError):
        return False
    return True


def encode_claim(claim: Claim) -> bytes:
    """Return a claim as the value of a record.

    Raises:
        ConfigError: it names too many topics for one record.
    """
    encoded = msgspec.json.encode(claim)
    if len(encoded) > MESSAGE_BYTES:
        raise ConfigError(
            f"application {claim.application!r} has had {len(claim.topics)} topics, more than one claim can name; give "
            "it another name, or remove views from it"
        )
    return encoded


async def check_claimable(plan: Plan, client: Client, key_id: str) -> None:
    """Check that no topic of an application belongs to another one. Nothing is created or claimed.

    Args:
        plan: the application.
        client: a client of its broker.
        key_id: what it is known by, `KeyRing.application`.

    Raises:
        ConfigError: topics belong to another application; every one is named.
        BrokerError: the cluster does not answer.
    """
    topics = Topics.of(plan)
    if await client.partitions(topics.owners.name) is None:
        return
    log, _ = await _read(topics.owners.name, client)
    owner = Owner(plan.id, key_id)
    names = {spec.name for spec in topics.all(plan)}
    theirs = {topic: one for topic, one in _holders(log).items() if topic in names and one.claim.owner != owner}
    present = await client.describe(theirs) if theirs else {}
    _check(plan, owner, {topic: one for topic, one in theirs.items() if topic in present})


async def claimed(owners: str, owner: Owner, client: Client) -> Mapping[str, Life]:
    """The topics that claims of an application count for, whether they are still there or not.

    Args:
        owners: the topic of the claims.
        owner: the application.
        client: a client of its broker.

    Raises:
        ConfigError: it has none, and an application of its name that was started with another key file has some.
        ConfigError: the topic of the claims holds something else.
    """
    if await client.partitions(owners) is None:
        return {}
    log, _ = await _read(owners, client)
    held = _holders(log)
    found = _merged(log, owner).topics
    others = sorted({o.key_id for one in held.values() if (o := one.claim.owner).application == owner.application})
    if others and not found:
        which = "another key file" if owner.key_id else "a key file, and it is not there"
        raise key_fault(
            f"the topics of application {owner.application!r} are claimed with {which}: its first key is {others[0]}. "
            f"Put that file back. If it is lost for good, `stream-dp keys retire FILE {others[0]}` makes a new one; "
            "windows of lost keys are never sharpened again"
        )
    return found


async def give_up(owners: str, owner: Owner, topics: Collection[str], client: Client) -> Mapping[str, Life]:
    """Delete release topics that an application no longer needs. Its claim says so before the first is deleted.

    It is safe to run again: it completes an earlier run that was cut short. Topics of other applications stay, even if
    they have the name of a deleted topic.

    Args:
        owners: the topic of the claims.
        owner: the application.
        topics: the topics to give up.
        client: a client of its broker.

    Returns:
        The lives of the topics that it had claimed.

    Raises:
        AccessError: this account may not delete a topic. It is given up nevertheless.
        BrokerError: the cluster refused something.
    """
    while True:
        log, seen = await _read(owners, client)
        last = _merged(log, owner)
        lives = {topic: last.topics[topic] for topic in topics if topic in last.topics}
        marks = {topic: life._replace(ended=life.number) for topic, life in lives.items() if not life.is_given_up}
        if not marks:
            break
        key = _claim_key(owner)
        claim = msgspec.structs.replace(last, topics=dict(sorted({**last.topics, **marks}.items())), seen=seen)
        await client.publish([Message(owners, key, encode_claim(claim))])
        await _withdraw(owners, client, _superseded((await _read(owners, client))[0], key))
    present = await client.describe(list(lives)) if lives else {}
    left = [topic for topic, state in present.items() if state.id == lives[topic].id]
    if left:
        await client.delete(left)
    return lives


async def disclaim(owners: str, owner: Owner, client: Client) -> None:
    """Withdraw every claim of an application; its topics are nobody's then."""
    log, _ = await _read(owners, client)
    await _withdraw(owners, client, [one.key for one in log if one.claim.owner == owner])


def _check_form(claim: Claim) -> Claim:
    """Return a claim if this version can read what is stored.

    Raises:
        ConfigError: a version of another form has stored it.
    """
    if claim.form != STATE_FORM:
        raise ConfigError(
            f"the state of application {claim.application!r} is stored in form {claim.form}, and this version of "
            f"stream-dp ({__version__}) stores form {STATE_FORM}; go on with the version that wrote it, or "
            "`stream-dp reset FILE` with this one"
        )
    return claim


def _warn_of(lost: Collection[Deleted], stateless: Collection[str]) -> None:
    for one in lost:
        if one.topic in stateless:
            logger.warning("topic %s %s; it holds no state and is created again", one.topic, one.what)


def _next_life(former: Life | None, topic_id: str, *, is_new: bool) -> Life:
    if former is None:
        return Life(topic_id, 1)
    return Life(topic_id, former.number + is_new, former.ended)


def _known(plan: Plan, former: Mapping[str, Life]) -> list[str]:
    """The views of which a release topic was claimed before."""
    topics = Topics.of(plan)
    return [
        view.view
        for view in plan.views.values()
        if any(topics.release(view.view, audience) in former for audience in view.readers)
    ]


async def _sources(plan: Plan, client: Client) -> dict[str, tuple[str, str]]:
    """The topics of the sources that are there, and their ids, by name of the source."""
    present = await client.describe(list(sources_of(plan)))
    return {source.name: (topic, present[topic].id) for topic, source in sources_of(plan).items() if topic in present}


def _check_deleted(
    plan: Plan,
    lost: list[Deleted],
    accept_loss: bool,
    sources: Mapping[str, tuple[str, str]],
    former: Mapping[str, tuple[str, str]],
) -> None:
    """Make sure that no topic was deleted since it was claimed, or that this is accepted.

    Raises:
        ConfigError: some were. That of a source is not accepted: where it was counted to belongs to the former one.
    """
    again = [
        Deleted(topic, again=True)
        for name, (topic, _) in sources.items()
        if name in former and former[name][0] == topic and former[name] != sources[name]
    ]
    topics = Topics.of(plan)
    with_state = [one for one in lost if one.topic not in topics.releases(plan) | topics.stateless(plan)]
    if found := [*([] if accept_loss else with_state), *again]:
        raise lost_topics(plan, found)


async def _read(owners: str, client: Client) -> tuple[list[Placed], int]:
    """Return the claims that were not withdrawn, in the order of the log, and the offset of its last record.

    Raises:
        StateError: a transaction is open in the topic, so a claim could be missed.
    """
    await client.check_decided([TopicPartition(owners, 0)])
    found: dict[bytes, Placed] = {}
    last = -1
    async for record in client.follow([owners], until_end=True):
        last = record.offset
        found.pop(record.key, None)
        if record.value is not None:
            found[record.key] = Placed(record.offset, record.key, _decoded(owners, record.value))
    return list(found.values()), last


def _decoded(owners: str, value: bytes) -> Claim:
    try:
        return msgspec.json.decode(value, type=Claim)
    except UNDECODABLE as error:
        raise ConfigError(
            f"topic {owners} holds a record that is no claim of this version of stream-dp ({__version__}): {error}"
        ) from None


def _mark_counting(log: list[Placed]) -> list[tuple[Placed, bool]]:
    """Return the claims, each with whether it counts."""
    held: dict[str, Placed] = {}
    found: list[tuple[Placed, bool]] = []
    for one in log:
        before = [held[topic] for topic in one.claim.topics if topic in held]
        counts = all(former.offset <= one.claim.seen or former.claim.owner == one.claim.owner for former in before)
        if counts:
            held |= dict.fromkeys(one.claim.topics, one)
        found.append((one, counts))
    return found


def _holders(log: list[Placed]) -> dict[str, Placed]:
    """Return the last claim that counts, by topic."""
    return {topic: one for one, counts in _mark_counting(log) if counts for topic in one.claim.topics}


def _merged(log: list[Placed], owner: Owner) -> Claim:
    """Return what the claims of an application say together: of each topic that it holds, the newest life.

    The form is that of the last claim, even if that does not count: it says what is stored.
    """
    held = _holders(log)
    lives: dict[str, Life] = {}
    sources: dict[str, tuple[str, str]] = {}
    uncounted: dict[str, int] = {}
    form = STATE_FORM
    for one, counts in _mark_counting(log):
        claim = one.claim
        if claim.owner != owner:
            continue
        form = claim.form
        sources |= claim.sources
        for view, lost_ms in claim.uncounted.items():
            uncounted[view] = max(lost_ms, uncounted.get(view, lost_ms))
        for topic, life in claim.topics.items() if counts else ():
            known = lives.get(topic, life)
            if held[topic].claim.owner == owner and (life.number, life.ended) >= (known.number, known.ended):
                lives[topic] = life
    return Claim(*owner, lives, -1, sources, uncounted, form)


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
            found += [one.key] if one.offset <= claim.seen else []
        elif not {*one.claim.topics}.isdisjoint(claim.topics):
            break
    return found


async def _withdraw(owners: str, client: Client, keys: list[bytes]) -> None:
    await client.publish([Message(owners, key, None) for key in keys])


def _check(plan: Plan, owner: Owner, held: Mapping[str, Placed]) -> None:
    """Make sure that no topic is another application's.

    Raises:
        ConfigError: some are.
    """
    faults = []
    for path, topics, remedy in _places(plan):
        theirs: dict[Owner, list[str]] = {}
        for topic in topics:
            if topic in held and held[topic].claim.owner != owner:
                theirs.setdefault(held[topic].claim.owner, []).append(topic)
        faults += [Fault(path, _told(plan, holder, those, remedy)) for holder, those in theirs.items()]
    if faults:
        raise ConfigError(faults)


def _places(plan: Plan) -> Iterator[tuple[str, list[str], str]]:
    """Every path of the configuration that topics are named by, those topics, and how they get other names.

    All carry the application's id but for dead letters that the configuration names otherwise.
    """
    names = [spec.name for spec in Topics.of(plan).all(plan)]
    letters = {source.name: source.dead_letter_topic for source in sources_of(plan).values()}
    named = {name: topic for name, topic in letters.items() if not topic.startswith((f"{plan.id}-", f"{plan.id}."))}
    yield "name", [name for name in names if name not in named.values()], "give this application another name"
    for name, topic in named.items():
        yield f"sources.{name}.dead_letter_topic", [topic], "choose another topic"


def _told(plan: Plan, holder: Owner, topics: list[str], remedy: str) -> str:
    whose = f"application {holder.application!r}"
    if holder.application == plan.id:
        whose += f", started with another key file, whose first key is {holder.key_id}"
        remedy += ", use that key file if it is the same application"
    what = f"topic {topics[0]} belongs" if len(topics) == 1 else f"topics {', '.join(topics)} belong"
    return f"{what} to {whose}; {remedy}, or delete what is left of that one if it is gone"
