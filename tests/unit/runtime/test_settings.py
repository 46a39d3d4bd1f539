"""Settings are read from the control topic and posted to it; of two operators at once one is told of the other."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import Verdict
from stream_dp.control.editions import SETTINGS, Posted, encode_posted, first_record, next_record
from stream_dp.errors import ConfigError
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import SettingsLog, holding, post, post_accepted, read_accepted, read_history
from stream_dp.runtime.kafka.topics import Topics
from stream_dp.windows.effects import Message

START = 1_704_067_200_000


async def test_before_the_first_start_there_are_none_and_the_files_plan_holds(plan: Plan) -> None:
    client = MemoryClient(MemoryLog())

    assert (await read_history(plan, client)).posted == []
    assert await holding(plan, client) == plan


async def test_what_was_posted_is_read_back_and_holds(plan: Plan, log: MemoryLog) -> None:
    client, control = MemoryClient(log), Topics.of(plan).control
    log.append(control, 0, b"grant/partner", b'{"type":"grant"}')
    first = first_record(plan, START)

    assert await post_accepted(plan, client, first)
    second = next_record([first], plan, {}, {}, 9)
    assert await post_accepted(plan, client, second)

    assert (await read_history(plan, client)).posted == [first, second]
    assert [one.number for one in await read_accepted(plan, client)] == [1, 2]
    assert (await holding(plan, client)).settings == 2


async def test_of_two_posted_at_once_the_first_in_the_log_holds_and_the_other_is_told(
    plan: Plan, log: MemoryLog
) -> None:
    first = first_record(plan, START)
    mine, theirs = (next_record([first], plan, {}, {}, 9, note) for note in ("mine", "theirs"))

    class Racing(MemoryClient):
        async def publish(self, records: Iterable[Message]) -> list[int | None]:
            log.append(Topics.of(plan).control, 0, SETTINGS + b"2/theirs", encode_posted(theirs))
            return await super().publish(records)

    await post(plan, MemoryClient(log), first)
    assert not await post(plan, Racing(log), mine)

    assert (await read_history(plan, MemoryClient(log))).posted == [first, theirs]


@pytest.mark.parametrize("number", [1, 3])
async def test_a_number_that_is_not_the_next_is_not_written(plan: Plan, log: MemoryLog, number: int) -> None:
    """One behind a gap would hold as soon as somebody fills that."""
    first = first_record(plan, START)
    await post(plan, MemoryClient(log), first)
    other = Posted(number, first.sections, first.begins, first.ends, first.fingerprints, 9)

    assert not await post(plan, MemoryClient(log), other)
    assert log.end(SettingsLog(plan, MemoryClient(log)).place) == 1


async def test_settings_too_large_for_a_record_are_refused_with_the_remedy(plan: Plan, log: MemoryLog) -> None:
    with pytest.raises(ConfigError, match="Put lists of keys into files or topics"):
        await post(plan, MemoryClient(log), next_record([], plan, {}, {}, 9, "x" * 2_000_000))


async def test_compaction_keeps_settings_and_verdicts(plan: Plan, log: MemoryLog) -> None:
    client = MemoryClient(log)
    await post_accepted(plan, client, first_record(plan, START))
    settings = SettingsLog(plan, client)
    for number in (2, 3):
        await settings.post(next_record((), plan, {}, {}, 9, number=number))
        await settings.judge(Verdict(number, 9, "why" if number == 2 else ""))
        await settings.judge(Verdict(number, 9, "too late to say so"))
    before = await read_history(plan, client)
    assert [before.reason(number) for number in (1, 2, 3)] == ["", "why", ""]

    newest = {record.key: record for record in log.records[settings.place]}
    log.records[settings.place] = [one for one in log.records[settings.place] if newest[one.key] is one]
    assert await read_history(plan, client) == before


async def test_a_log_is_read_on_from_where_it_was_read_to(plan: Plan, log: MemoryLog) -> None:
    client = MemoryClient(log)
    first = first_record(plan, START)
    settings = SettingsLog(plan, client)
    assert not await settings.read()

    await post(plan, client, first)
    assert await settings.read()
    assert not await settings.read()
    assert settings.history.waiting == [first]
