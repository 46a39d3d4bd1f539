"""Verdicts on settings: who gives them, what they rest on, and how unusable settings are replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from msgspec.structs import replace

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import Use, Verdict, encode_decision
from stream_dp.control.editions import Posted, next_record
from stream_dp.errors import AccessError, ConfigError, Fault
from stream_dp.runtime.adoption import Adoption
from stream_dp.runtime.clock import Clock
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.control_topic import SettingsLog, read_history
from stream_dp.runtime.kafka.list_topics import read_lists
from stream_dp.runtime.kafka.outages import Outage
from stream_dp.runtime.kafka.ownership import Claim, Life, encode_claim
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.runtime.settled import prepare
from stream_dp.runtime.verdicts import MAX_REASON_CHARS, judge
from stream_dp.testing import plan_from
from stream_dp.version import STATE_FORM
from tests.support.visits import MINUTE

KEY_ID = "0" * 16
START = 1_704_067_200_000
WALL = ("clock: event", "clock: wall")
MORE = (
    "views:\n",
    "views:\n  NAME-more: {kind: histogram, source: visits, item: page, items_per_user: 1, "
    "window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s}, "
    'delta: "1e-4", ledger: visitors, ladder: standard, retention: 1d}\n',
)
UNPLANNABLE = r"^settings 2: they are accepted, but cannot be planned here: settings 2: views\..*\.item: "
USED = UNPLANNABLE + r".* Workers have used them"
LARGER_MORE = (MORE[0], MORE[1].replace("size: 1m", "size: 2m"))


class Crew:
    """Two workers of one application without partitions, one of which is the judge.

    Attributes:
        judge: which one it is, 0 or 1; 2: none.
        now_ms: what the clocks show.
    """

    def __init__(self, plans: Callable[..., Plan], log: MemoryLog, began: Settled) -> None:
        self.judge = 0
        self.now_ms = START
        self.client = MemoryClient(log)
        self.plans = plans
        self.plan = began.plan
        self.log = log
        clock = Clock(lambda: self.now_ms, None)
        self.workers = [
            Adoption(began, self.client, KEY_ID, Outage("memory"), lambda _: None, clock, self._is(number))
            for number in (0, 1)
        ]
        (self.view,) = self.plan.newest

    def _is(self, number: int) -> Callable[[], bool]:
        return lambda: self.judge == number

    def at(self, minute: int) -> int:
        return START + minute * MINUTE

    async def post(self, plan: Plan, begins: dict[str, int], *, is_broken: bool = False) -> int:
        """Post settings, and return their number."""
        log = SettingsLog(self.plan, self.client)
        await log.read()
        posted = next_record((), plan, begins, {}, START, number=log.history.next_number)
        assert await log.post(broken(posted) if is_broken else posted)
        return posted.number

    async def post_finer(self, minute: int, *, is_broken: bool = False) -> int:
        """Post settings in which a level has another epsilon from a minute on."""
        plan = self.plans(('overview, epsilon: "1"', f'overview, epsilon: "1.{minute:02}"'))
        return await self.post(plan, {self.view: self.at(minute)}, is_broken=is_broken)

    async def decide(self, *decisions: Verdict | Use) -> None:
        """Write decisions as another version of the program, or another program, does."""
        for number, decision in enumerate(decisions):
            kind = "uses" if isinstance(decision, Use) else "verdicts"
            key = f"{kind}/{decision.number}/forged{number}".encode()
            self.log.append(Topics.of(self.plan).control, 0, key, encode_decision(decision))

    async def claim_as_another(self, topic: str) -> None:
        """Let another application create and own a topic."""
        self.log.create(topic, 1)
        (state,) = (await self.client.describe([topic])).values()
        claim = Claim("another", "f" * 16, {topic: Life(state.id, 1)}, 0, form=STATE_FORM)
        self.log.append(Topics.of(self.plan).owners.name, 0, b"another/f/1", encode_claim(claim))

    async def states(self) -> list[str]:
        history = await read_history(self.plan, self.client)
        return [history.state(one.number) for one in history.posted]


def broken(posted: Posted) -> Posted:
    """The settings, with an item that no version can select."""
    views = {name: {**view, "item": '$["a\\"b"]'} for name, view in posted.sections["views"].items()}
    return replace(posted, sections={**posted.sections, "views": views})


@pytest.fixture
async def crew(visits: Callable[..., str], tmp_path: Path) -> Crew:
    def plans(*changes: tuple[str, str]) -> Plan:
        return plan_from(visits(WALL, *changes), tmp_path)

    log = MemoryLog()
    log.create(plans().name + ".visits", 3)
    began = await prepare(plans(), MemoryClient(log), lambda: KEY_ID, now_ms=lambda: START)
    return Crew(plans, log, began)


@pytest.mark.parametrize("judge_changes", [False, True])
@pytest.mark.parametrize("is_broken", [*product((False, True), repeat=2), *product((False, True), repeat=3)])
async def test_every_waiting_posting_gets_its_verdict_in_any_order(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, is_broken: tuple[bool, ...], judge_changes: bool
) -> None:
    numbers = [await crew.post_finer(minute, is_broken=bad) for minute, bad in enumerate(is_broken, 3)]
    writing = SettingsLog.judge

    async def judge(log: SettingsLog, verdict: Verdict) -> None:
        await writing(log, verdict)
        crew.judge ^= judge_changes

    monkeypatch.setattr(SettingsLog, "judge", judge)
    for worker in crew.workers * len(numbers):
        await worker.advance()

    due = ["refused" if bad else "accepted" for bad in is_broken]
    assert await crew.states() == ["accepted", *due]
    newest = max((number for number, bad in zip(numbers, is_broken, strict=True) if not bad), default=1)
    for worker in crew.workers:
        await worker.advance()
        assert worker.plan.settings == newest
        assert [edition.first_ms for edition in worker.plan.newest[crew.view].editions][-1] == (
            crew.at(newest + 1) if newest > 1 else START
        )


@pytest.mark.parametrize("judge_changes", [False, True])
async def test_second_posting_is_judged_after_the_first(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, judge_changes: bool
) -> None:
    """The first adds a view, and the second changes it too soon. No worker counts that view yet."""
    more, larger = crew.plans(MORE), crew.plans(LARGER_MORE)
    (name,) = more.newest.keys() - {crew.view}
    await crew.post(more, {name: crew.at(2)})
    await crew.post(larger, {name: crew.at(4)})
    crew.now_ms = crew.at(4) - 5_000
    writing = SettingsLog.judge

    async def judge(log: SettingsLog, verdict: Verdict) -> None:
        await writing(log, verdict)
        crew.judge ^= judge_changes

    monkeypatch.setattr(SettingsLog, "judge", judge)
    for worker in crew.workers:
        await worker.advance()
    assert await crew.states() == ["accepted", "accepted", "refused"]
    history = await read_history(crew.plan, crew.client)
    assert history.reason(3).startswith("a view would change in less than 10 s")


async def test_unplannable_settings_end_a_worker_that_writes_nothing(crew: Crew) -> None:
    await crew.post_finer(3, is_broken=True)
    await crew.decide(Verdict(2, START))
    ends = dict(crew.log.records)
    for worker in crew.workers:
        with pytest.raises(ConfigError, match=UNPLANNABLE) as caught:
            await worker.advance()
        assert "No worker has used them. Run `stream-dp apply FILE`" in str(caught.value)
    with pytest.raises(ConfigError, match=UNPLANNABLE):
        await prepare(crew.plan, crew.client, lambda: KEY_ID)
    assert crew.log.records == ends


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("forged", [1, 2])
async def test_next_posting_heals_settings_that_nobody_can_plan(crew: Crew, forged: int, restarts: bool) -> None:
    for minute in range(forged):
        number = await crew.post_finer(3 + minute, is_broken=True)
        await crew.decide(Verdict(number, START))
    number = await crew.post_finer(9)
    if restarts:
        plan = (await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: START)).plan
    else:
        await crew.workers[0].advance()
        plan = crew.workers[0].plan
    assert await crew.states() == ["accepted", *["refused"] * forged, "accepted"]
    assert plan.settings == number
    assert [edition.number for edition in plan.newest[crew.view].editions] == [1, 2][
        -len(plan.newest[crew.view].editions) :
    ]
    history = await read_history(crew.plan, crew.client)
    assert history.reason(2).startswith("they were taken back before any worker used them: settings ")


@pytest.mark.parametrize("sections", [{}, {"views": 7}, {"views": {"a": None}}])
async def test_next_posting_heals_damaged_settings(crew: Crew, sections: dict[str, Any]) -> None:
    log = SettingsLog(crew.plan, crew.client)
    damaged = next_record((), crew.plan, {crew.view: crew.at(3)}, {}, START, number=2)
    assert await log.post(replace(damaged, sections=sections))
    await crew.decide(Verdict(2, START))
    await crew.post_finer(9)
    await crew.workers[0].advance()
    assert await crew.states() == ["accepted", "refused", "accepted"]


async def test_used_settings_stay_and_later_ones_wait(crew: Crew) -> None:
    """A worker of another version can plan them, and judges the next posting."""
    await crew.post_finer(3, is_broken=True)
    await crew.decide(Verdict(2, START), Use(2))
    await crew.post_finer(5)
    for start in (
        crew.workers[0].advance,
        lambda: prepare(crew.plan, crew.client, lambda: KEY_ID),
    ):
        with pytest.raises(ConfigError, match=USED):
            await start()
    assert await crew.states() == ["accepted", "accepted", "waiting"]


async def test_settings_after_used_unplannable_ones_stay(crew: Crew) -> None:
    await crew.post_finer(3, is_broken=True)
    await crew.post_finer(4)
    await crew.decide(Verdict(2, START), Use(2), Verdict(3, START))
    await crew.post_finer(5)
    with pytest.raises(ConfigError, match=USED):
        await crew.workers[0].advance()
    assert await crew.states() == ["accepted", "accepted", "accepted", "waiting"]


async def test_start_replaces_first_settings_that_were_never_used(visits: Callable[..., str], tmp_path: Path) -> None:
    plan, log = plan_from(visits(WALL), tmp_path), MemoryLog()
    log.create(plan.name + ".visits", 3)
    log.create(Topics.of(plan).control, 1)
    first = SettingsLog(plan, MemoryClient(log))
    assert await first.post(broken(next_record((), plan, dict.fromkeys(plan.newest, START), {}, START)))
    await first.judge(Verdict(1, START))
    began = await prepare(plan, MemoryClient(log), lambda: KEY_ID, now_ms=lambda: START)
    assert began.plan.settings == 2
    assert (await read_history(plan, MemoryClient(log))).state(1) == "refused"


ReadLists = Callable[[Plan, Any], Any]


def read_lists_by(monkeypatch: pytest.MonkeyPatch, read: ReadLists) -> None:
    """Let workers read public lists in another way."""
    for module in ("adoption", "verdicts"):
        monkeypatch.setattr(f"stream_dp.runtime.{module}.read_lists", read)


class Rights:
    """Rights of the workers to public lists: settings whose lists they may not read."""

    def __init__(self) -> None:
        self.lacking: set[int] = set()


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> Rights:
    found = Rights()

    async def guarded(plan: Plan, client: Any) -> Any:
        if plan.settings in found.lacking:
            raise AccessError("this account may not read topic list")
        return await read_lists(plan, client)

    read_lists_by(monkeypatch, guarded)
    monkeypatch.setattr("stream_dp.runtime.adoption.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("stream_dp.runtime.adoption.LOOK_SECONDS", 0.001)
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_worker_that_lacks_a_right_waits_until_it_is_granted(crew: Crew, rights: Rights) -> None:
    first, second = crew.workers
    await crew.post_finer(3)
    await first.advance()
    rights.lacking = {2}
    waiting = asyncio.ensure_future(second.catch_up())
    await until(lambda: bool(second.problem))
    assert second.is_blocked
    assert "settings 2 are accepted, but cannot be used yet: this account may not read topic list" in second.problem
    rights.lacking = set()
    await waiting
    assert second.plan.settings == 2
    assert not second.is_blocked
    assert not second.problem


async def test_newer_settings_end_the_wait_for_a_right(crew: Crew, rights: Rights) -> None:
    """No worker has used the settings that need the right, so they are taken back."""
    rights.lacking = {2}
    await crew.post_finer(3)
    await crew.decide(Verdict(2, START))
    waiting = asyncio.ensure_future(crew.workers[0].catch_up())
    await until(lambda: bool(crew.workers[0].problem))
    await crew.post_finer(5)
    await asyncio.wait_for(waiting, 60)
    assert crew.workers[0].plan.settings == 3
    assert await crew.states() == ["accepted", "refused", "accepted"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_next_posting_replaces_one_that_waits_for_a_right(crew: Crew, rights: Rights, restarts: bool) -> None:
    rights.lacking = {2}
    await crew.post_finer(3)
    worker = crew.workers[0]
    await worker.advance()
    assert worker.problem
    assert await crew.states() == ["accepted", "waiting"]
    await crew.post_finer(5)
    if restarts:
        await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: START)
    await worker.advance()
    assert await crew.states() == ["accepted", "refused", "accepted"]
    assert worker.plan.settings == 3
    assert not worker.problem


async def test_worker_starts_while_settings_wait_for_a_right(crew: Crew, rights: Rights) -> None:
    """It goes on by the accepted settings, as running workers do, and judges the others once it has the right."""
    rights.lacking = {2}
    await crew.post_finer(3)
    began = await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: START)
    assert began.plan.settings == 1
    worker = crew.workers[0]
    await worker.advance()
    assert worker.problem
    assert not worker.is_blocked
    rights.lacking = set()
    await worker.advance()
    assert await crew.states() == ["accepted", "accepted"]
    assert worker.plan.settings == 2


async def test_long_reason_fits_in_a_verdict(crew: Crew) -> None:
    log = SettingsLog(crew.plan, crew.client)
    await log.read()
    posted = broken(next_record((), crew.plan, {}, {}, START, number=2))
    (view,) = posted.sections["views"].values()
    views = {f"v{number}": view for number in range(300)}
    assert await log.post(replace(posted, sections={**posted.sections, "views": views}))
    await crew.workers[0].advance()
    history = await read_history(crew.plan, crew.client)
    assert history.state(2) == "refused"
    assert len(history.reason(2)) == MAX_REASON_CHARS


async def test_list_of_a_former_definition_refuses_no_later_settings(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic was deleted. Workers go on with the list that they have read, and other settings replace it."""

    async def deleted(plan: Plan, client: Any) -> Any:
        lists, faults = await read_lists(plan, client)
        return lists, [*faults, *(Fault("views", "no topic") for name in plan.views if name == crew.view)]

    read_lists_by(monkeypatch, deleted)
    await crew.post_finer(3)
    await crew.post_finer(5)
    await crew.workers[0].advance()
    assert await crew.states() == ["accepted"] * 3
    assert crew.workers[0].plan.settings == 3


async def test_settings_that_are_taken_back_during_adoption_are_not_used(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    await crew.post_finer(3)
    await crew.decide(Verdict(2, START))

    async def overtaken(plan: Plan, client: Any) -> Any:
        read_lists_by(monkeypatch, read_lists)
        await crew.decide(Verdict(2, START, "taken back", takes_back=True))
        return await read_lists(plan, client)

    read_lists_by(monkeypatch, overtaken)
    worker = crew.workers[0]
    await worker.advance()
    assert worker.plan.settings == 1
    assert not worker.is_blocked
    assert await crew.states() == ["accepted", "refused"]


async def test_use_of_later_settings_is_no_use_of_those_taken_back(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a worker reads lists, the settings are taken back, and another worker uses the next ones."""
    await crew.post_finer(3)
    await crew.decide(Verdict(2, START))

    async def overtaken(plan: Plan, client: Any) -> Any:
        read_lists_by(monkeypatch, read_lists)
        await crew.decide(Verdict(2, START, "taken back", takes_back=True))
        await crew.post_finer(5)
        await crew.decide(Verdict(3, START), Use(3))
        return await read_lists(plan, client)

    read_lists_by(monkeypatch, overtaken)
    taken: list[int] = []
    worker = crew.workers[0]
    worker._take = lambda settled: taken.append(settled.plan.settings)
    await worker.advance()
    assert worker.is_blocked
    monkeypatch.setattr("stream_dp.runtime.adoption.RETRY_SECONDS", 0.0)
    await worker.advance()
    assert taken == [3]
    assert await crew.states() == ["accepted", "refused", "accepted"]


async def test_use_of_settings_is_stated_before_parts_are_made_with_them(crew: Crew) -> None:
    stated: list[bool] = []
    worker = crew.workers[0]
    control = TopicPartition(Topics.of(crew.plan).control, 0)

    def take(_: Settled) -> None:
        stated.append(any((record.key or b"").startswith(b"uses/2/") for record in crew.log.records[control]))

    worker._take = take
    await crew.post_finer(3)
    await worker.advance()
    assert stated == [True]


async def test_settings_with_topics_of_another_application_are_refused(crew: Crew) -> None:
    more = crew.plans(MORE)
    (name,) = more.newest.keys() - {crew.view}
    topic = Topics.of(more).release(name, "public")
    await crew.claim_as_another(topic)
    await crew.post(more, {name: crew.at(2)})
    await crew.workers[0].advance()
    assert await crew.states() == ["accepted", "refused"]
    history = await read_history(crew.plan, crew.client)
    assert topic in history.reason(2)


@pytest.mark.parametrize("is_missing", [False, True])
async def test_start_takes_back_settings_whose_topics_cannot_be_had(crew: Crew, is_missing: bool) -> None:
    """Their source is missing, or one of their topics belongs to another application."""
    if is_missing:
        other = crew.plans(
            ("  visits: {topic: NAME.visits", "  clicks: {topic: NAME.clicks"), ("source: visits", "source: clicks")
        )
    else:
        other = crew.plans(("user: user,", "user: user, dead_letter_topic: letters,"))
        await crew.claim_as_another("letters")
    await crew.post(other, {crew.view: crew.at(3)})
    await crew.decide(Verdict(2, START))
    with pytest.raises(ConfigError):
        await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: START)
    assert (await read_history(crew.plan, crew.client)).used == 1
    await crew.post(crew.plans(), {})
    began = await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: START)
    assert began.plan.settings == 3
    assert await crew.states() == ["accepted", "refused", "accepted"]


async def test_verdict_of_a_start_does_not_count_once_a_worker_has_joined(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start finds no worker. While it plans, one joins, which counts by the former settings."""
    await crew.post_finer(3)
    crew.judge = 2

    async def slow(*words: Any) -> Verdict:
        verdict = await judge(*words)
        if (await read_history(crew.plan, crew.client)).waiting:
            await crew.workers[0].advance()
        return verdict

    monkeypatch.setattr("stream_dp.runtime.settled.judge", slow)
    decided = await prepare(crew.plan, crew.client, lambda: KEY_ID, now_ms=lambda: crew.at(9))
    history = await read_history(crew.plan, crew.client)
    assert decided.plan.settings == 2
    assert history.decisions == 5, "two on settings 1, the worker's statement, and two on settings 2"


async def test_joining_worker_states_its_settings_once_if_others_wait(crew: Crew) -> None:
    worker = crew.workers[0]
    crew.judge = 2

    async def stated() -> int:
        await worker.advance()
        return (await read_history(crew.plan, crew.client)).decisions

    assert await stated() == 2
    await crew.post_finer(3)
    assert await stated() == 3
    assert await stated() == 3
    worker.forget()
    assert await stated() == 4
