"""Selections over lists made of releases that have too few keys: fewer ranks, the same noise, the same price."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any

import pytest

from stream_dp.config.plan import Plan
from stream_dp.kinds import gap, subset
from stream_dp.kinds.kind import most_chosen
from stream_dp.kinds.public_lists import KeyList
from stream_dp.records.by_kind import GapRelease, SubsetRelease
from stream_dp.records.codec import decode, encode
from tests.support.releasing import SHOP, Desk, plan_of, release_topic

TOPIC = release_topic("pages", "public")
K = 3
COUNTS = {"a": 900, "b": 600, "c": 300, "d": 5}
KINDS = {
    "gap": 'selection: {epsilon: "1/2"}',
    "subset": 'selection: {epsilon: "1/2"}',
    "one-shot": 'selection: {epsilon: "1/2", mechanism: one-shot}',
}


def listing(kind: str) -> Plan:
    return plan_of(
        SHOP.partition("  tops:\n")[0]
        + f"""\
  counted:
    source: visits
    item: page
    kind: {"subset" if kind == "one-shot" else kind}
    catalogue: {{from: pages, audience: public}}
    k: {K}
    {KINDS[kind]}
    items_per_user: 2
    window: {{size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}}
    ledger: visitors
    ladder: three
    retention: 1h
    buckets: 2
"""
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("keys", range(6))
def test_a_short_list_gives_all_keys_but_one_and_a_record_says_how_many(kind: str, keys: int) -> None:
    listed = KeyList.of("abcde"[:keys])
    desk = Desk(listing(kind), lists={TOPIC: listed})
    desk.give("counted", 0, COUNTS)
    record: Any = desk.record("counted", "public", 0)
    assert isinstance(record, GapRelease | SubsetRelease)
    assert record.k == len(record.items) == [0, 0, 1, 2, 3, 3][keys]
    assert {entry.item for entry in record.items} == set("abc"[: record.k]), "they are far apart"
    assert (record.catalogue.keys, record.catalogue.version) == (keys, listed.version)
    assert record.is_empty == (keys < 2)
    assert record.privacy.window.cost.epsilon == Fraction(3, 2), "the selection and the level, whatever the list"
    assert decode(encode(record)) == record
    desk.grant(1, "public", "fine")
    finer: Any = desk.record("counted", "public", 0)
    assert finer.revision == 2
    assert [entry.item for entry in finer.items] == [entry.item for entry in record.items]
    desk.auditor.settled()


@pytest.mark.parametrize(
    ("kind", "module", "name"), [("gap", gap, "gap_top_k"), ("one-shot", subset, "one_shot_top_k")]
)
def test_fewer_ranks_have_the_noise_that_k_have_and_cost_less(
    monkeypatch: pytest.MonkeyPatch, kind: str, module: object, name: str
) -> None:
    asked, real = [], getattr(module, name)

    def seen(counts: object, zeros: int, p: Any, bits: object) -> Any:
        asked.append(p)
        return real(counts, zeros, p, bits)

    monkeypatch.setattr(module, name, seen)
    for keys in (5, 3, 2):
        desk = Desk(listing(kind), lists={TOPIC: KeyList.of("abcde"[:keys])})
        desk.give("counted", 0, COUNTS)
    price = Fraction(1, 2)
    assert [p.k for p in asked] == [3, 2, 1]
    assert {p.scale for p in asked} == {asked[0].scale}
    assert [p.epsilon for p in asked] == [price, price * Fraction(2, 3), price / 3]


@pytest.mark.parametrize(("charged", "holds"), [(Fraction(1), True), (Fraction(1, 3), True), (Fraction(1, 4), False)])
def test_the_law_of_the_only_rank_of_two_keys_is_within_its_share(charged: Fraction, holds: bool) -> None:
    """With noise of mean k / epsilon, k = 3 and epsilon = 1, one of two keys is chosen. The chance is a formula.

    The key that is d behind is chosen with (e^-d/s) / 2. A user moves d by 1, so a third of epsilon is what it costs:
    a price of a quarter is found out.
    """
    scale = 3.0

    def behind(d: int) -> float:
        return exp(-d / scale) / 2 if d >= 0 else 1 - exp(d / scale) / 2

    worst = max(behind(d) / behind(d + 1) for d in range(-20, 20))
    assert (worst <= exp(charged) + 1e-12) == holds


def test_a_list_that_is_long_enough_changes_nothing() -> None:
    assert [most_chosen(K, keys) for keys in (0, 1, 2, 3, 4, 5, 10**12)] == [0, 0, 1, 2, 3, 3, 3]
