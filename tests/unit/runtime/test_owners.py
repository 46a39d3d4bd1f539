"""A topic belongs to one application: another one is told so before it writes anything, however they race."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faust.types import TP
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.config.plan import Plan
from stream_dp.errors import AccessError, ConfigError, Fault
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryLog
from stream_dp.runtime.kafka import ownership as owners
from stream_dp.runtime.kafka.client import TopicState
from stream_dp.runtime.kafka.ownership import Claim, Life, Owner, create_owned
from stream_dp.runtime.kafka.topics import Topics, TopicSpec
from stream_dp.runtime.kafka.transactions import CLAIM
from stream_dp.testing import plan_from
from stream_dp.version import STATE_FORM
from stream_dp.windows.effects import Message
from tests.support.chosen import examples
from tests.support.phases import PHASES
from tests.support.releasing import plan_of

KEY, OTHER_KEY = "0" * 16, "1" * 16
SHOP = """\
name: shop
broker: memory://
data_dir: state
key_file: key
sources:
  visits: {topic: visits, partitions: 1, dead_letter_topic: letters}
ledgers:
  visitors: {population: visitors, epsilon: "40", delta: "1/5", period: 4s}
ladders:
  one: [{level: coarse, epsilon: "1"}]
audiences: {public: coarse, staff: coarse}
views:
  pages:
    source: visits
    item: page
    kind: histogram
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    delta: "1/100"
    ledger: visitors
    ladder: one
"""
SHOP_PLAN = plan_of(SHOP)
MARKET = plan_of(SHOP.replace("name: shop", "name: market"))
FAIR = plan_of(SHOP.replace("name: shop", "name: fair"))
OWNERS = Topics.of(SHOP_PLAN).owners.name
SHARED = ["letters"]
"""The topic that all three name."""
GONE = "or delete what is left of that one if it is gone"


def names(plan: Plan) -> set[str]:
    return {spec.name for spec in Topics.of(plan).all(plan)}


def remove(log: MemoryLog, topics: Iterable[str]) -> None:
    """Delete topics, as an operator does."""
    for topic in topics:
        log.delete(topic)


def standing(log: MemoryLog) -> list[Claim]:
    """The claims in their topic that were not withdrawn, in its order."""
    withdrawn = {record.key for record in claim_records(log) if record.value is None}
    return [decoded(record) for record in claim_records(log) if record.key not in withdrawn]


def claim_records(log: MemoryLog) -> list[LogRecord]:
    return log.records[TP(OWNERS, 0)]


def decoded(record: LogRecord) -> Claim:
    return msgspec.json.decode(record.value or b"", type=Claim)


async def create(log: MemoryLog, plan: Plan, key_id: str = KEY) -> None:
    await create_owned(plan, MemoryClient(log), key_id)


async def refused(log: MemoryLog, plan: Plan, key_id: str = KEY) -> tuple[Fault, ...]:
    """The faults by which an application is refused; nothing was created, and its claims are withdrawn."""
    before, claims = dict(log.partitions), standing(log)
    with pytest.raises(ConfigError) as caught:
        await create(log, plan, key_id)
    assert log.partitions == before
    assert standing(log) == claims
    return caught.value.faults


# -- one after another ----------------------------------------------------------------------------------------------


async def test_every_topic_but_the_sources_is_created_and_claimed_in_one_record() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    assert log.partitions.keys() == names(SHOP_PLAN) | {OWNERS}
    lives = {name: Life(log.ids[name], 1) for name in sorted(names(SHOP_PLAN))}
    assert standing(log) == [Claim("shop", KEY, lives, -1, form=STATE_FORM)]


async def test_the_claims_of_an_application_do_not_pile_up_while_its_workers_come_and_go() -> None:
    log = MemoryLog()
    for _ in range(5):
        await create(log, SHOP_PLAN)
    assert len(standing(log)) == 1


async def test_an_application_that_names_a_topic_of_another_one_is_refused_and_told_so() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    assert await refused(log, MARKET) == (
        Fault(
            "sources.visits.dead_letter_topic",
            f"topic letters belongs to application 'shop'; choose another topic, {GONE}",
        ),
    )


async def test_a_release_topic_that_another_application_took_for_its_dead_letters_is_refused() -> None:
    log = MemoryLog()
    topic = Topics.of(SHOP_PLAN).release("pages", "public")
    await create(log, plan_of(SHOP.replace("name: shop", "name: market").replace("letters", topic)))
    assert await refused(log, SHOP_PLAN) == (
        Fault("name", f"topic {topic} belongs to application 'market'; give this application another name, {GONE}"),
    )


async def test_applications_with_the_same_views_of_one_source_run_side_by_side() -> None:
    log = MemoryLog()
    text = SHOP.replace(", dead_letter_topic: letters", "")
    first, other = plan_of(text), plan_of(text.replace("name: shop", "name: market"))
    assert names(first).isdisjoint(names(other))
    for plan in (first, other, first, other):
        await create(log, plan)
    assert {claim.application: {*claim.topics} for claim in standing(log)} == {
        "shop": names(first),
        "market": names(other),
    }


async def test_an_application_of_the_same_name_with_another_key_file_is_refused() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    name, source = await refused(log, SHOP_PLAN, OTHER_KEY)
    assert (name.path, source.path) == ("name", "sources.visits.dead_letter_topic")
    assert name.message.startswith("topics shop-ticks, shop-partials, shop-merged, shop-control, shop-orders, shop-")
    assert name.message.endswith(
        f"belong to application 'shop', started with another key file, whose first key is {KEY}; give this application "
        f"another name, use that key file if it is the same application, {GONE}"
    )


async def test_topics_of_views_that_were_taken_out_stay_the_applications() -> None:
    log = MemoryLog()
    more = replace(SHOP_PLAN, views={**SHOP_PLAN.views, "more": replace(SHOP_PLAN.views["pages"], name="more")})
    for plan in (SHOP_PLAN, more, SHOP_PLAN, SHOP_PLAN):
        await create(log, plan)
    (claim,) = standing(log)
    assert {*claim.topics} == names(more)


async def test_topics_that_were_deleted_are_anybodys() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    remove(log, SHARED)
    await create(log, MARKET)
    paths = [fault.path for fault in await refused(log, SHOP_PLAN)]
    assert paths == ["sources.visits.dead_letter_topic"]
    await create(log, MARKET)


async def test_topics_of_which_one_was_left_are_not() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    remove(log, names(SHOP_PLAN).difference(SHARED))
    (fault,) = await refused(log, MARKET)
    assert fault.message.startswith("topic letters belongs to application 'shop'")


async def test_topics_that_nobody_claimed_belong_to_whoever_comes_first() -> None:
    log = MemoryLog()
    log.create("letters", 1)
    await create(log, SHOP_PLAN)
    assert "letters" in standing(log)[0].topics


async def test_a_record_that_is_no_claim_is_an_error() -> None:
    log = MemoryLog()
    log.create(OWNERS, 1)
    log.append(OWNERS, 0, b"key", b"[]")
    with pytest.raises(ConfigError, match="stream-dp-owners holds a record that is no claim"):
        await create(log, SHOP_PLAN)


@pytest.mark.parametrize("key", ["topic", "dead_letter_topic"])
def test_the_topic_of_claims_is_nobodys_source_and_no_dead_letter_topic(
    visits: Callable[..., str], tmp_path: Path, key: str
) -> None:
    changes = {
        "topic": ("topic: NAME.visits", "topic: stream-dp-owners"),
        "dead_letter_topic": ("partitions: 3", "partitions: 3, dead_letter_topic: stream-dp-owners"),
    }
    with pytest.raises(ConfigError) as caught:
        plan_from(visits(changes[key]), tmp_path)
    assert caught.value.faults == (
        Fault(f"sources.visits.{key}", "'stream-dp-owners' is the topic in which applications claim theirs"),
    )


# -- at once --------------------------------------------------------------------------------------------------------


class _Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield


class SteppingClient(MemoryClient):
    """Waits for its turn before everything it asks of the log."""

    async def describe(self, topics: Collection[str]) -> Mapping[str, TopicState]:
        await _Turn()
        return await super().describe(topics)

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        for topic in topics:
            await _Turn()
            await super().create([topic])

    async def publish(self, records: Iterable[Message]) -> list[int | None]:
        appended: list[int | None] = []
        for record in records:
            await _Turn()
            appended += await super().publish([record])
        return appended

    async def follow(self, topics: Sequence[str], **options: Any) -> AsyncIterator[Any]:
        await _Turn()
        async for record in super().follow(topics, **options):
            yield record


def race(log: MemoryLog, plans: Sequence[Plan], turns: Iterable[tuple[int, int]] = ()) -> list[bool]:
    """Start workers at once, each for some steps when it is its turn; who gets through."""
    return run_in_turns([create_owned(plan, SteppingClient(log), KEY) for plan in plans], turns)


def run_in_turns(acts: Sequence[Coroutine[Any, Any, Any]], turns: Iterable[tuple[int, int]]) -> list[bool]:
    """Run each for some steps when it is its turn; return which of them finish."""
    running = dict(enumerate(acts))
    through = [False] * len(acts)
    for who, steps in [*turns, *((at, 10_000) for at in range(len(acts)))]:
        for _ in range(steps if who in running else 0):
            try:
                running[who].send(None)
            except StopIteration:
                through[who] = True
            except ConfigError:
                pass
            else:
                continue
            del running[who]
            break
    return through


def one_by_one(log: MemoryLog, plans: Sequence[Plan]) -> list[bool]:
    return [race(log, [plan])[0] for plan in plans]


TURNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 45)), max_size=12)
"""Who goes on, for how many steps; an attempt has about 40."""


@pytest.mark.parametrize("former", [(), ("fair",)], ids=["a new cluster", "topics of another one were deleted"])
@examples(40, 150, given(turns=TURNS), phases=PHASES)
def test_of_applications_that_start_at_once_exactly_one_gets_through(
    former: tuple[str, ...], turns: list[tuple[int, int]]
) -> None:
    log = MemoryLog()
    if former:
        race(log, [FAIR])
        remove(log, names(FAIR))
    plans = [SHOP_PLAN, MARKET, FAIR]
    through = race(log, plans, turns)
    assert sum(through) == 1
    assert one_by_one(log, plans) == through
    assert one_by_one(log, plans) == through
    if not former:
        assert [claim.application for claim in standing(log)] == [plans[through.index(True)].name]


@settings(max_examples=150, phases=PHASES)
@given(turns=TURNS)
def test_an_application_that_comes_back_to_deleted_topics_and_one_that_takes_them_do_not_both_get_through(
    turns: list[tuple[int, int]],
) -> None:
    log = MemoryLog()
    race(log, [SHOP_PLAN])
    remove(log, SHARED)
    first, second, other = through = race(log, [SHOP_PLAN, SHOP_PLAN, MARKET], turns)
    assert (first or second) != other
    assert one_by_one(log, [SHOP_PLAN, SHOP_PLAN, MARKET]) == [not other, not other, other], through


def test_a_worker_finds_that_another_one_took_the_topics_of_a_former_application_while_it_looked_for_them() -> None:
    log = MemoryLog()
    race(log, [MARKET])
    remove(log, names(MARKET))
    read_the_claims = 3
    assert race(log, [SHOP_PLAN, SHOP_PLAN], [(0, read_the_claims), (1, 10_000)]) == [True, True]


async def test_a_claim_stays_while_a_rival_that_does_not_count_because_of_it_may_not_know_that_yet() -> None:
    log = MemoryLog()
    await create(log, SHOP_PLAN)
    (first,) = standing(log)
    rival = Claim("market", KEY, dict.fromkeys(SHARED, Life("id", 1)), -1, form=STATE_FORM)
    log.append(OWNERS, 0, b"rival", msgspec.json.encode(rival))
    await create(log, SHOP_PLAN)
    assert standing(log)[:2] == [first, rival]
    log.append(OWNERS, 0, b"rival", None)
    await create(log, SHOP_PLAN)
    assert [claim.application for claim in standing(log)] == ["shop"]


@settings(max_examples=150, phases=PHASES)
@given(turns=TURNS)
def test_workers_of_one_application_that_start_at_once_all_get_through(turns: list[tuple[int, int]]) -> None:
    log = MemoryLog()
    assert race(log, [SHOP_PLAN] * 3, turns) == [True] * 3
    assert one_by_one(log, [SHOP_PLAN, MARKET]) == [True, False]
    assert len(standing(log)) == 1


@settings(max_examples=150, phases=PHASES)
@given(before=st.integers(0, 60), turns=TURNS)
def test_a_worker_that_dies_while_it_starts_leaves_nothing_that_lets_two_through(
    before: int, turns: list[tuple[int, int]]
) -> None:
    """It dies after some steps, and is not started again."""
    log = MemoryLog()
    dying = create_owned(FAIR, SteppingClient(log), KEY)
    try:
        for _ in range(before):
            dying.send(None)
    except StopIteration:
        pass
    dying.close()
    through = race(log, [SHOP_PLAN, MARKET], [(who % 2, steps) for who, steps in turns])
    assert sum(through) <= 1
    plans = [SHOP_PLAN, MARKET, FAIR]
    again = one_by_one(log, plans)
    assert sum(again) == 1
    assert again[:2] == through or not any(through)


async def test_an_application_that_had_more_topics_than_a_claim_can_name_is_told(
    visits: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_from(visits(), tmp_path)
    monkeypatch.setattr(owners, "MESSAGE_BYTES", 300)
    client = MemoryClient(MemoryLog())
    with pytest.raises(ConfigError, match=r"has had \d+ topics, more than one claim can name; give it another name"):
        await create_owned(plan, client, KEY)
    assert not [record async for record in client.follow([OWNERS], until_end=True)]


# -- topics that were deleted ---------------------------------------------------------------------------------------


def shop(source: bool = True) -> MemoryLog:
    log = MemoryLog()
    if source:
        log.create("visits", 1)
    return log


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_no_topic_of_an_application_that_was_deleted_is_made_anew_without_a_word(again: bool) -> None:
    """Every one of them, with what is lost with it."""
    topics = Topics.of(SHOP_PLAN)
    for spec in topics.all(SHOP_PLAN):
        if spec.name in topics.stateless(SHOP_PLAN) | topics.releases(SHOP_PLAN):
            continue
        log = shop()
        await create(log, SHOP_PLAN)
        remove(log, [spec.name])
        if again:
            log.create(spec.name, spec.partitions)
        fault, choices = await refused(log, SHOP_PLAN)
        assert fault.path == f"topic {spec.name}"
        assert fault.message.startswith(f"was deleted{' and made again' * again}, and with it ")
        assert "--accept-loss" in choices.message


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_topics_without_state_are_created_again(again: bool) -> None:
    log, stateless = shop(), sorted(Topics.of(SHOP_PLAN).stateless(SHOP_PLAN))
    await create(log, SHOP_PLAN)
    remove(log, stateless)
    for topic in stateless if again else ():
        log.create(topic, 1)
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY)
    assert [claim.topics[topic] for topic in stateless] == [Life(log.ids[topic], 2) for topic in stateless]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
async def test_release_topic_is_created_again_only_when_asked_for(again: bool) -> None:
    log, topic = shop(), Topics.of(SHOP_PLAN).release("pages", "public")
    await create(log, SHOP_PLAN)
    former = log.ids[topic]
    remove(log, [topic])
    if again:
        log.create(topic, 1)
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY)
    assert claim.topics[topic] == Life(former, 1)
    assert (topic in log.partitions) is again
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY, republished={topic})
    assert claim.topics[topic] == Life(log.ids[topic], 2)


async def test_a_loss_that_is_accepted_begins_another_life_and_is_not_told_again() -> None:
    log, topics = shop(), Topics.of(SHOP_PLAN)
    await create(log, SHOP_PLAN)
    remove(log, [topics.partials, topics.changelog("counts")])
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY, accept_loss=True, now_ms=77)
    assert {name: life.number for name, life in claim.topics.items() if life.number > 1} == {
        topics.partials: 2,
        topics.changelog("counts"): 2,
    }
    assert claim.uncounted == {"pages": 77}
    again = await create_owned(SHOP_PLAN, MemoryClient(log), KEY)
    assert (again.topics, again.uncounted) == (claim.topics, claim.uncounted)


async def test_counts_of_a_view_that_is_new_were_not_lost() -> None:
    log, topics = shop(), Topics.of(SHOP_PLAN)
    await create(log, SHOP_PLAN)
    remove(log, [topics.changelog("counts")])
    more = replace(SHOP_PLAN, views={**SHOP_PLAN.views, "more": replace(SHOP_PLAN.views["pages"], name="more")})
    claim = await create_owned(more, MemoryClient(log), KEY, accept_loss=True, now_ms=77)
    assert claim.uncounted == {"pages": 77}


async def test_a_source_that_was_made_again_is_refused_whatever_is_accepted_until_it_has_another_name() -> None:
    log = shop()
    await create(log, SHOP_PLAN)
    remove(log, ["visits"])
    log.create("visits", 1)
    for accept_loss in (False, True):
        with pytest.raises(ConfigError, match="topic visits: the source was deleted and made again; how far it was"):
            await create_owned(SHOP_PLAN, MemoryClient(log), KEY, accept_loss=accept_loss)
    renamed = SHOP.replace("  visits: {topic", "  calls: {topic").replace("source: visits", "source: calls")
    await create(log, plan_of(renamed.replace("  pages:\n", "  sheets:\n")))


async def test_a_copy_of_everything_on_another_cluster_is_noticed_and_its_source_not_accepted() -> None:
    """There topics have other ids, and records other offsets."""
    log, other = shop(), MemoryLog()
    await create(log, SHOP_PLAN)
    for topic, partitions in log.partitions.items():
        other.create(topic, partitions)
    for record in claim_records(log):
        other.append(OWNERS, 0, record.key, record.value)
    with pytest.raises(ConfigError) as caught:
        await create(other, SHOP_PLAN)
    said = {fault.path: fault.message for fault in caught.value.faults if fault.path}
    topics = Topics.of(SHOP_PLAN)
    with_state = {*names(SHOP_PLAN)} - topics.stateless(SHOP_PLAN) - topics.releases(SHOP_PLAN)
    assert said.keys() == {f"topic {name}" for name in [*with_state, "visits"]}
    assert all("deleted and made again" in message for message in said.values())
    with pytest.raises(ConfigError, match="topic visits: the source was deleted and made again"):
        await create_owned(SHOP_PLAN, MemoryClient(other), KEY, accept_loss=True)


# -- other versions -------------------------------------------------------------------------------------------------


async def test_state_that_a_version_of_another_form_has_stored_is_refused_and_that_of_others_is_theirs() -> None:
    log = shop()
    await create(log, SHOP_PLAN)
    (claim,) = standing(log)
    later = msgspec.structs.replace(claim, form=STATE_FORM + 1, seen=0)
    log.append(OWNERS, 0, b"of a later version", msgspec.json.encode(later))
    (fault,) = await refused(log, SHOP_PLAN)
    stored = f"the state of application 'shop' is stored in form {STATE_FORM + 1}, and this version of stream-dp ("
    assert str(fault).startswith(stored)
    assert (
        f"stores form {STATE_FORM}; go on with the version that wrote it, or `stream-dp reset FILE` with this one"
        in str(fault)
    )
    another = SHOP.replace("pages", "sites").replace("letters", "notes")
    await create(log, plan_of(another.replace("name: shop", "name: market")))


async def test_a_claim_that_says_no_form_is_one_of_the_first() -> None:
    log = shop()
    await create(log, SHOP_PLAN)
    (claim,) = standing(log)
    unsaid = msgspec.to_builtins(msgspec.structs.replace(claim, seen=0))
    del unsaid["form"]
    log.append(OWNERS, 0, b"of an earlier version", msgspec.json.encode(unsaid))
    (fault,) = await refused(log, SHOP_PLAN)
    assert str(fault).startswith("the state of application 'shop' is stored in form 1, and this version of stream-dp (")


@pytest.mark.parametrize("rows", [[], [(CLAIM, b"")], [(b"row", b""), (CLAIM, b"")]], ids=["none", "one", "compacted"])
async def test_topics_that_an_operator_made_or_whose_claims_were_deleted_are_claimed(
    rows: list[tuple[bytes, bytes]],
) -> None:
    log = MemoryLog()
    changelog = Topics.of(SHOP_PLAN).changelog("releases")
    log.create(changelog, 1)
    for key, value in rows:
        log.append(changelog, 0, key, value)
    await create(log, SHOP_PLAN)
    assert changelog in standing(log)[0].topics


# -- release topics that are given up -------------------------------------------------------------------------------

OWNER = Owner("shop", KEY)
TOPIC = Topics.of(SHOP_PLAN).release("pages", "staff")
PAGES = SHOP_PLAN.views["pages"]
SHRUNK = replace(
    SHOP_PLAN, views={"pages": replace(PAGES, audiences={"public": PAGES.audiences["public"]}, former=("staff",))}
)


class DyingClient(MemoryClient):
    """Client that is killed right before its n-th change of the cluster."""

    def __init__(self, log: MemoryLog, effects: int) -> None:
        super().__init__(log)
        self._left = effects

    def _step(self) -> None:
        if self._left == 0:
            raise KilledError
        self._left -= 1

    async def publish(self, records: Iterable[Message]) -> list[int | None]:
        appended: list[int | None] = []
        for record in records:
            self._step()
            appended += await super().publish([record])
        return appended

    async def delete(self, topics: Collection[str]) -> None:
        for topic in topics:
            self._step()
            await super().delete([topic])

    async def create(self, topics: Iterable[TopicSpec]) -> None:
        for topic in topics:
            if not await self.describe([topic.name]):
                self._step()
            await super().create([topic])


class KilledError(Exception):
    """A process was killed."""


async def killed(act: Callable[[MemoryClient], Coroutine[Any, Any, Any]], log: MemoryLog, effects: int) -> bool:
    """Do something up to a number of effects; return True if it was cut short."""
    try:
        await act(DyingClient(log, effects))
    except KilledError:
        return True
    return False


async def given_up(log: MemoryLog) -> None:
    await owners.give_up(OWNERS, OWNER, [TOPIC], MemoryClient(log))


async def test_given_up_topic_is_created_when_its_audience_returns() -> None:
    log = shop()
    await create(log, SHOP_PLAN)
    former = log.ids[TOPIC]
    await given_up(log)
    assert TOPIC not in log.partitions
    claim = await create_owned(SHRUNK, MemoryClient(log), KEY)
    assert TOPIC not in log.partitions
    assert claim.topics[TOPIC] == Life(former, 1, 1)
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY)
    assert claim.topics[TOPIC] == Life(log.ids[TOPIC], 2, 1)

    remove(log, [TOPIC])  # by somebody else
    again = await create_owned(SHOP_PLAN, MemoryClient(log), KEY)
    assert TOPIC not in log.partitions
    assert again.topics[TOPIC] == claim.topics[TOPIC]


@pytest.mark.parametrize("is_back", [True, False])
async def test_giving_up_and_creating_a_topic_survive_interruptions(is_back: bool) -> None:
    """Before and after each effect: mark, delete, create, claim."""
    plan = SHOP_PLAN if is_back else SHRUNK
    cut = 0
    for first in range(10):
        for second in range(10):
            log = shop()
            await create(log, SHOP_PLAN)
            before = dict(log.ids)
            await killed(lambda client: owners.give_up(OWNERS, OWNER, [TOPIC], client), log, first)
            is_marked = any(claim.topics[TOPIC].is_given_up for claim in standing(log))
            assert is_marked or log.ids == before
            cut += await killed(lambda client: create_owned(plan, client, KEY), log, second)
            claim = await create_owned(plan, MemoryClient(log), KEY)
            assert {one for one in before if one not in log.partitions or log.ids[one] != before[one]} == (
                {TOPIC} if is_marked else set()
            )
            if not is_marked:
                assert claim.topics[TOPIC] == Life(before[TOPIC], 1)
            elif is_back:
                assert claim.topics[TOPIC] == Life(log.ids[TOPIC], 2, 1)
            else:
                assert (claim.topics[TOPIC], TOPIC in log.partitions) == (Life(before[TOPIC], 1, 1), False)
    assert cut > 3


async def test_foreign_topic_with_the_name_of_a_given_up_one_stays() -> None:
    log = shop()
    await create(log, SHOP_PLAN)
    await given_up(log)
    log.create(TOPIC, 1)
    await given_up(log)
    await create(log, SHRUNK)
    assert TOPIC in log.partitions


@examples(40, 150, given(turns=TURNS), phases=PHASES)
def test_claim_of_a_starting_worker_keeps_topics_given_up(turns: list[tuple[int, int]]) -> None:
    log = shop()
    race(log, [SHOP_PLAN])
    former = log.ids[TOPIC]
    client = SteppingClient(log)
    acts: list[Coroutine[Any, Any, Any]] = [
        owners.give_up(OWNERS, OWNER, [TOPIC], client),
        create_owned(SHRUNK, client, KEY),
        create_owned(SHRUNK, client, KEY),
    ]
    run_in_turns(acts, turns)
    assert race(log, [SHRUNK]) == [True]
    assert TOPIC not in log.partitions
    (claim,) = standing(log)
    assert claim.topics[TOPIC] == Life(former, 1, 1)


async def test_given_up_topic_that_cannot_be_deleted_gets_no_records() -> None:
    class Guarded(MemoryClient):
        async def delete(self, topics: Collection[str]) -> None:
            raise AccessError("no")

    log = shop()
    await create(log, SHOP_PLAN)
    former = log.ids[TOPIC]
    with pytest.raises(AccessError):
        await owners.give_up(OWNERS, OWNER, [TOPIC], Guarded(log))
    claim = await create_owned(SHOP_PLAN, Guarded(log), KEY, allow_missing=True)
    assert claim.topics[TOPIC] == Life(former, 1, 1)
    claim = await create_owned(SHOP_PLAN, MemoryClient(log), KEY, allow_missing=True)
    assert claim.topics[TOPIC] == Life(log.ids[TOPIC], 2, 1)


async def test_no_topic_is_created_for_an_audience_that_was_taken_out() -> None:
    log = shop()
    await create(log, SHRUNK)
    assert TOPIC not in log.partitions
