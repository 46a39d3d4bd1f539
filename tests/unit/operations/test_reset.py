"""A reset takes what is an application's own, and nothing else; one that is cut short is finished by another."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from stream_dp.config.plan import Plan
from stream_dp.errors import BrokerError, ConfigError, StateError
from stream_dp.operations.reset import holdings, reset
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.client import Group
from stream_dp.runtime.kafka.ownership import Owner, claimed, create_owned
from stream_dp.runtime.kafka.topics import Topics, sources_of
from tests.support.releasing import SHOP as TEXT
from tests.support.releasing import plan, plan_of

SHOP = plan()
OTHER_TEXT = TEXT.replace("name: shop", "name: market").replace("pages:", "sites:").replace("tops:", "firsts:")
MARKET = plan_of(OTHER_TEXT.replace("partitions: 1}", "partitions: 1, dead_letter_topic: letters}"))
OWNERS = Topics.of(SHOP).owners.name
KEYS, OTHER = KeyRing.of(bytes(32)), KeyRing.of(bytes(range(32)))


def names(*plans: Plan) -> set[str]:
    return {spec.name for one in plans for spec in Topics.of(one).all(one)}


@pytest.fixture
async def log() -> MemoryLog:
    """A cluster with two applications on one source."""
    log = MemoryLog()
    for topic in sources_of(SHOP):
        log.create(topic, 1)
    for one in (SHOP, MARKET):
        await create_owned(one, MemoryClient(log), KEYS.application)
    return log


async def forget(log: MemoryLog, keys: KeyRing = KEYS, client: type[MemoryClient] = MemoryClient) -> None:
    at = client(log)
    await reset(SHOP, at, keys, await holdings(SHOP, at, keys))


async def test_topics_and_claims_of_the_application_go_and_all_others_stay(log: MemoryLog) -> None:
    others = {topic: identity for topic, identity in log.ids.items() if topic not in names(SHOP)}
    await forget(log)
    assert log.partitions.keys() == {*names(MARKET), *sources_of(SHOP), OWNERS}
    assert {topic: log.ids[topic] for topic in others} == others
    assert not log.committed
    client = MemoryClient(log)
    assert await claimed(OWNERS, Owner("shop", KEYS.application), client) == {}
    assert {*await claimed(OWNERS, Owner("market", KEYS.application), client)} == names(MARKET)

    await create_owned(SHOP, client, OTHER.application)  # even under another key it begins anew


async def test_topics_of_views_that_were_taken_out_go_too(log: MemoryLog) -> None:
    fewer = replace(SHOP, views={"pages": SHOP.views["pages"]})
    await create_owned(fewer, MemoryClient(log), KEYS.application)
    client = MemoryClient(log)
    await reset(fewer, client, KEYS, await holdings(fewer, client, KEYS))
    assert not log.partitions.keys() & names(SHOP)


async def test_another_key_file_is_refused_and_a_rotated_one_is_not(log: MemoryLog) -> None:
    before = dict(log.ids)
    with pytest.raises(ConfigError, match=f"claimed with another key file: its first key is {KEYS.application}"):
        await forget(log, OTHER)
    assert log.ids == before
    await forget(log, KeyRing((*KEYS.keys, *OTHER.keys)))
    assert not log.partitions.keys() & names(SHOP)


async def test_nothing_is_deleted_while_workers_run(log: MemoryLog) -> None:
    class Running(MemoryClient):
        async def group(self, name: str) -> Group:
            return Group("Stable", "", {})

    before = dict(log.ids)
    with pytest.raises(StateError, match="workers of shop run, or ended less than a minute ago"):
        await forget(log, client=Running)
    found = await holdings(SHOP, MemoryClient(log), KEYS)
    with pytest.raises(StateError):  # they were started while somebody was asked
        await reset(SHOP, Running(log), KEYS, found)
    assert log.ids == before


async def test_a_topic_that_somebody_made_anew_under_the_name_of_a_claimed_one_is_left_alone(log: MemoryLog) -> None:
    taken = Topics.of(SHOP).ticks
    log.delete(taken)
    log.create(taken, 1)
    found = await holdings(SHOP, MemoryClient(log), KEYS)
    assert found.others == [taken]
    assert {*found.own} == names(SHOP) - {taken}
    await forget(log)
    assert taken in log.partitions


@pytest.mark.parametrize("left", [0, 1, 7])
async def test_after_a_reset_that_was_cut_short_no_worker_starts_until_another_one_is_done(
    log: MemoryLog, left: int
) -> None:
    class Failing(MemoryClient):
        async def delete(self, topics: Collection[str]) -> None:
            await super().delete([*topics][left:])
            raise BrokerError("gone")

    with pytest.raises(BrokerError):
        await forget(log, client=Failing)
    assert len(log.partitions.keys() & names(SHOP)) == left
    with pytest.raises(ConfigError, match="was deleted"):
        await create_owned(SHOP, MemoryClient(log), KEYS.application)
    await forget(log)
    await create_owned(SHOP, MemoryClient(log), KEYS.application)


async def test_an_application_that_never_ran_has_nothing() -> None:
    log = MemoryLog()
    assert not any(await holdings(SHOP, MemoryClient(log), KEYS))
    await create_owned(MARKET, MemoryClient(log), KEYS.application)
    assert not any(await holdings(SHOP, MemoryClient(log), KEYS))
