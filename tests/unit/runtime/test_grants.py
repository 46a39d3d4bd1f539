"""Grants on the control topic: what is written is read back, and what is no grant is noted without its words."""

from __future__ import annotations

import logging

import pytest
from faust.types import TP

from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Grant
from stream_dp.runtime.embedded import LogRecord, MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import known_grants, read_order, withdraw_grant, write_grant
from stream_dp.runtime.kafka.topics import Topics
from tests.support.grants import MALFORMED_GRANTS

GRANT = b'{"type":"grant","audience":"partner","level":"detailed"}'


async def levels(plan: Plan, client: MemoryClient, audience: str) -> list[str | None]:
    return [order.level for order in await known_grants(plan, client) if order.audience == audience]


async def test_grant_is_read_back_as_an_order_and_as_the_last_of_its_scope(plan: Plan, log: MemoryLog) -> None:
    client = MemoryClient(log)
    assert await known_grants(plan, client) == []

    for audience, level in (("partner", "detailed"), ("public", "standard"), ("partner", "overview")):
        await write_grant(plan, client, Grant(audience=audience, level=level))

    records = log.records[TP(Topics.of(plan).control, 0)]
    orders = [order for record in records if (order := read_order(record, plan)) is not None]
    assert [(order.number, order.audience, order.level) for order in orders] == [
        (0, "partner", "detailed"),
        (1, "public", "standard"),
        (2, "partner", "overview"),
    ]
    assert [order.given_ms for order in orders] == [record.timestamp for record in records]
    assert await levels(plan, client, "partner") == ["overview"]
    assert await levels(plan, client, "public") == ["standard"]
    assert await levels(plan, client, "internal") == []


async def test_grants_of_other_scopes_and_times_have_keys_of_their_own_and_one_can_be_withdrawn(
    plan: Plan, log: MemoryLog
) -> None:
    client = MemoryClient(log)
    waits = Grant(audience="partner", level="overview", at="2100-01-01T00:00:00Z")
    given = [
        Grant(audience="partner", level="detailed"),
        Grant(audience="partner", level="detailed", views=tuple(plan.views)),
        Grant(audience="partner", level="detailed", windows="future"),
        Grant(audience="partner", level="detailed", start_from="2026-01-01T00:00:00Z"),
        waits,
        Grant(audience="public", level="overview", at="2100-01-01T00:00:00Z"),
    ]
    for grant in given:
        await write_grant(plan, client, grant)
    assert len({grant.key() for grant in given}) == len({grant.id for grant in given}) == len(given)
    known = await known_grants(plan, client)
    assert [(order.scope, order.at_ms) for order in known] == [(grant.scope, grant.at_ms) for grant in given]

    (order,) = [order for order in known if order.id == waits.id]
    await withdraw_grant(plan, client, order)
    assert await known_grants(plan, client) == [one for one in known if one is not order]
    last = read_order(log.records[TP(Topics.of(plan).control, 0)][-1], plan)
    assert last is not None
    assert (last.number, last.audience, last.level, last.id) == (len(given), "partner", None, waits.id)


@pytest.mark.parametrize(
    "value",
    MALFORMED_GRANTS,
)
async def test_what_is_no_grant_of_this_plan_is_passed_over_with_a_line_that_does_not_repeat_it(
    plan: Plan, log: MemoryLog, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await write_grant(plan, MemoryClient(log), Grant(audience="partner", level="detailed"))
    control = Topics.of(plan).control
    log.append(control, 0, b"grant/partner", value)

    with caplog.at_level(logging.WARNING):
        assert read_order(log.records[TP(control, 0)][1], plan) is None

    (said,) = caplog.records
    assert (said.name, said.levelname) == ("stream_dp.control", "WARNING")
    assert "control record 1" in caplog.text
    assert "finest" not in caplog.text
    assert "nobody" not in caplog.text
    assert await levels(plan, MemoryClient(log), "partner") == ["detailed"]


@pytest.mark.parametrize(
    ("key", "value"),
    [*((key, GRANT) for key in (None, b"", b"origin/pages/1", b"grants/partner")), (b"grant/partner", None)],
)
def test_records_of_other_kinds_and_tombstones_are_passed_over_silently(
    plan: Plan, key: bytes | None, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_order(LogRecord("control", 0, 0, key, value, 0), plan) is None
    assert not caplog.text
