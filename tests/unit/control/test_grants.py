"""Grants on the control topic: what is one, what is passed over, and how they travel."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.grants import Grant, Order, check_grant, decode_order, encode_order
from stream_dp.errors import ConfigError, StateError
from stream_dp.testing import plan_from


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    return plan_from(visits(), tmp_path)


def test_grant_becomes_an_order_numbered_by_its_offset(plan: Plan) -> None:
    grant = Grant(audience="partner", level="detailed")

    order = check_grant(grant.key(), grant.model_dump_json().encode(), 17, plan)

    assert grant.key() == b"grant/partner"
    assert order == Order(17, "partner", "detailed")
    assert decode_order(encode_order(order)) == order


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b'{"type":"grant","audience":"partner"}',
        b'{"type":"grant","audience":"partner","level":"detailed","and":1}',
        b'{"type":"origin","audience":"partner","level":"detailed"}',
        b'{"type":"grant","audience":"nobody","level":"detailed"}',
        b'{"type":"grant","audience":"partner","level":"finest"}',
        b'{"type":"grant","audience":7,"level":"detailed"}',
        b"\xff",
    ],
)
def test_what_is_no_grant_of_this_plan_is_passed_over_with_a_line_that_does_not_repeat_it(
    plan: Plan, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert check_grant(b"grant/partner", value, 3, plan) is None

    assert "control record 3" in caplog.text
    assert "finest" not in caplog.text
    assert "nobody" not in caplog.text


@pytest.mark.parametrize("key", [None, b"", b"origin/pages/1", b"grants/partner"])
def test_records_of_other_kinds_and_tombstones_are_passed_over_silently(
    plan: Plan, key: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    value = Grant(audience="partner", level="detailed").model_dump_json().encode()

    assert check_grant(key, value, 0, plan) is None
    assert check_grant(b"grant/partner", None, 0, plan) is None
    assert not caplog.text


def test_check_names_what_there_is_instead(plan: Plan) -> None:
    with pytest.raises(ConfigError, match="no audience 'nobody'; there are public, partner, internal"):
        Grant(audience="nobody", level="detailed").check(plan)
    with pytest.raises(ConfigError, match="no view of public has a level 'best'; there are overview, standard, detail"):
        Grant(audience="public", level="best").check(plan)


def test_damaged_order_is_a_state_error() -> None:
    for value in (b"", b"\xc1", b"\x93\x01\x02\x03", json.dumps([1, "a", "b"]).encode()):
        with pytest.raises(StateError, match="not an order"):
            decode_order(value)
