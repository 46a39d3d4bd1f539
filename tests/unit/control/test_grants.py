"""Grants on the control topic: what is one, what is passed over, and how they travel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.control.grant_records import Grant, Order, check_grant
from stream_dp.errors import ConfigError, StateError
from stream_dp.testing import plan_from
from stream_dp.windows.encoding import decode, encode
from tests.support.grants import MALFORMED_GRANTS


@pytest.fixture
def plan(visits: Callable[..., str], tmp_path: Path) -> Plan:
    return plan_from(visits(), tmp_path)


def test_grant_becomes_an_order_numbered_by_its_offset(plan: Plan) -> None:
    grant = Grant(audience="partner", level="detailed")

    later = check_grant(grant.key(), grant.model_dump_json().encode(), 0, plan, life=2)
    order = check_grant(grant.key(), grant.model_dump_json().encode(), 17, plan)
    assert isinstance(later, Order)
    assert isinstance(order, Order)
    assert later.number > order.number, "the first grant of a control topic that was made again is newer"

    assert grant.key() == b"grant/partner/" + grant.id.encode()
    assert order == Order(17, "partner", "detailed", id=grant.id)
    assert decode(Order, encode(order)) == order


@pytest.mark.parametrize(
    "value",
    MALFORMED_GRANTS,
)
def test_what_is_no_grant_of_this_plan_is_named_by_its_place_alone(plan: Plan, value: bytes) -> None:
    with pytest.raises(ConfigError) as refused:
        check_grant(b"grant/partner", value, 3, plan)
    words = "control record 3 is not a grant that this configuration knows; it is passed over"
    assert str(refused.value) == words


@pytest.mark.parametrize("key", [None, b"", b"origin/pages/1", b"grants/partner"])
def test_records_of_other_kinds_and_tombstones_are_no_grants_at_all(plan: Plan, key: bytes | None) -> None:
    value = Grant(audience="partner", level="detailed").model_dump_json().encode()

    assert check_grant(key, value, 0, plan) is None
    assert check_grant(b"grant/partner", None, 0, plan) is None


def test_check_names_what_there_is_instead(plan: Plan) -> None:
    with pytest.raises(ConfigError, match="no audience 'nobody'; there are public, partner, internal"):
        Grant(audience="nobody", level="detailed").check(plan)
    with pytest.raises(ConfigError, match="no view of public has a level 'best'; there are overview, standard, detail"):
        Grant(audience="public", level="best").check(plan)


def test_damaged_order_is_a_state_error() -> None:
    for value in (b"", b"\xc1", b"\x93\x01\x02\x03", json.dumps([1, "a", "b"]).encode()):
        with pytest.raises(StateError, match="a stored Order cannot be read"):
            decode(Order, value)


def test_none_is_a_grant_of_every_audience_and_the_name_of_no_level(visits: Callable[..., str], tmp_path: Path) -> None:
    plan = plan_from(visits(), tmp_path)
    grant = Grant(audience="partner", level="none")
    order = check_grant(grant.key(), grant.model_dump_json().encode(), 17, plan)
    assert isinstance(order, Order)
    assert (order.level, decode(Order, encode(order))) == ("none", order)
    with pytest.raises(ConfigError, match="must not be 'none'"):
        plan_from(visits(("overview", "none")), tmp_path)
