"""What a record tells of the ledger: what its own audience was told. What others cost stands in the entries alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost
from stream_dp.config.plan import Plan
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.records.codec import decode, entry_key
from stream_dp.records.models import Refusal
from stream_dp.windows.effects import Message
from tests.support.releasing import ACCOUNTS, DELTA, FINE, MIDDLE, ONLY_PAGES, POOL, Desk, is_about_view, plan

Counts = Mapping[str, int]
HOME = {"home": 50, "cart": 45, "rare": 1}
APART = (
    ("retention: 1h\n    buckets: 2", "retention: 1h\n    buckets: 2\n    audiences: [public]"),
    ("retention: 1h\n    buckets: 1", "retention: 1h\n    buckets: 1\n    audiences: [staff]"),
)
"""Changes after which public reads only the pages, and staff only the tops."""
PLANS = {
    "one account": plan(*APART),
    "pool": plan(*APART, (POOL[0], POOL[1].replace('"39"', '"200"').replace('"41"', '"202"'))),
}
OTHERS: Mapping[str, Callable[[int], Counts]] = {
    "two draws": lambda _start: HOME,
    "a lone bottom": lambda _start: {},
    "one of each": lambda start: HOME if start else {},
}


def other_noise(planned: Plan, view: str, key: bytes) -> Callable[[bytes], BitSource]:
    """Entropy that repeats, under a key of its own for one view."""
    query = planned.views[view].query_id
    return lambda context: KeyedBits(key if query in context else b"entropy", context)


def of(desk: Desk, audience: str) -> list[Message]:
    """What was published to an audience, byte for byte."""
    return [message for message in desk.published() if message.topic.endswith(f".{audience}")]


@pytest.mark.parametrize("name", PLANS)
def test_what_others_selections_cost_is_in_no_byte_of_an_audience_that_may_not_read_them(name: str) -> None:
    planned, found, left = PLANS[name], [], set()
    for key, (_, counts) in enumerate(OTHERS.items()):
        desk = Desk(planned, other_noise(planned, "tops", b"noise %d" % key))
        for start in (0, 1000):
            desk.give("tops", start, counts(start))
            desk.give("pages", start, HOME)
        desk.grant(1, "staff", "fine")
        desk.grant(2, "public", "middle")
        desk.auditor.settled()
        assert {record.type for view in planned.views for record in desk.records(view, "staff")} == {"release"}
        found.append(of(desk, "public"))
        left.add(desk.ledger().left)
    assert len(found[0]) == 4
    assert found[1:] == found[:1] * 2
    assert len(left) == 3, "the others did cost something else each time"


def test_what_finer_readers_of_a_window_have_is_in_no_byte_of_its_sharper_revision() -> None:
    """The ledger pays 3 for it, or nothing, after what others had; the record says neither."""
    found, charged = [], []
    for others in ((), ("staff",), ("staff", "partner")):
        desk = Desk(plan(ONLY_PAGES))
        desk.give("pages", 0, HOME)
        for number, audience in enumerate(others):
            desk.grant(number, audience, "fine")
        desk.grant(9, "public", "fine")
        found.append(of(desk, "public"))
        charged.append(desk.charged("pages", "public", 0).epsilon)
    assert charged == [2, 0, 0]
    assert len(found[0]) == 2
    assert found[1:] == found[:1] * 2


def test_told_adds_up_what_an_audience_holds_over_its_views_and_windows_of_the_period() -> None:
    desk = Desk(plan())
    for start in range(0, 5000, 1000):
        desk.give("pages", start, HOME)
        desk.give("tops", start, {})
    told = [desk.record("tops", "public", start).privacy.period.cost for start in (3000, 4000)]
    page, top = Cost(Fraction(1), DELTA), Cost(1 + 1 + DELTA, DELTA)
    assert told == [page * 4 + top * 4, page + top]
    desk.grant(1, "public", "middle")
    desk.auditor.settled()
    (newest,) = [record for record in desk.records("tops", "public") if record.window.start_ms == 3000][1:]
    assert newest.privacy.period.cost == told[0] + Cost(Fraction(1), Fraction(0)) * 8


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_refusal_says_no_more_than_that_the_ledger_does_not_cover_what_was_asked() -> None:
    """Of 10 the two windows before have left 2 or 3, after what was drawn; the fine window asks for 4 and delta."""
    changes = (('epsilon: "40"', 'epsilon: "10"'), ("public: coarse", "public: fine"))
    found, left = [], []
    for counts in (HOME, {}):
        desk = Desk(plan(*APART, *changes))
        desk.give("tops", 0, counts)
        desk.give("pages", 0, HOME)
        desk.give("pages", 1000, HOME)
        _, record = desk.records("pages", "public")
        found.append((record.type, of(desk, "public")))
        left.append(desk.entries()[-1].remaining.cost.epsilon)
    assert found[0][0] == "refusal"
    assert found[0] == found[1]
    assert left[0] < left[1] < 4


def test_a_refused_sharpening_does_not_say_what_other_audiences_have() -> None:
    found, asked = [], []
    for staff in ("coarse", "middle"):
        desk = Desk(plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "2"'), ("staff: middle", f"staff: {staff}")))
        desk.give("pages", 0, HOME)
        desk.grant(1, "public", "fine")
        found.append(of(desk, "public"))
        asked.append(desk.entries()[-1].requested.cost.epsilon)
    assert isinstance(decode(found[0][-1].value or b""), Refusal)
    assert found[0] == found[1]
    assert asked == [3, 2]


def test_a_refused_newcomer_is_not_told_what_the_selection_of_the_window_has_cost() -> None:
    few, found = ("retention: 1h\n    buckets: 1", "retention: 1h\n    buckets: 1\n    audiences: [public]"), []
    poor = ('epsilon: "40"', 'epsilon: "8"')
    for counts in (HOME, {}):
        desk = Desk(plan(poor, few))
        desk.give("tops", 0, counts)
        desk.change(plan(poor))
        desk.grant(1, "staff", "fine")
        (record,) = desk.records("tops", "staff")
        assert isinstance(record, Refusal)
        found.append(of(desk, "staff"))
        assert record.requested.cost == Cost(Fraction(4), Fraction(0))
    assert found[0] == found[1]


# -- entries ----------------------------------------------------------------------------------------------------------


def test_every_call_that_is_charged_or_refused_has_an_entry_behind_its_records() -> None:
    desk = Desk(plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "9"')))
    for start in (0, 1000, 2000):
        desk.give("pages", start, HOME)
    desk.grant(1, "public", "fine")
    desk.give("pages", 3000, HOME)
    desk.auditor.settled()
    entries = desk.entries()
    calls = [
        (entry.type, entry.window.start_ms, [(one.audience, one.revision, one.level) for one in entry.audiences])
        for entry in entries
    ]
    first = [("partner", 1, "coarse"), ("public", 1, "coarse"), ("staff", 1, "middle")]
    assert calls == [
        ("charge", 0, first),
        ("charge", 1000, first),
        ("charge", 2000, first),
        ("charge", 0, [("public", 2, "fine")]),
        ("refusal", 1000, [("public", 2, "fine")]),
        ("refusal", 2000, [("public", 2, "fine")]),
        ("refusal", 3000, [("partner", 1, "coarse"), ("staff", 1, "middle"), ("public", 1, "fine")]),
    ]
    assert [entry.remaining.cost.epsilon for entry in entries] == [7, 5, 3, 1, 1, 1, 1]
    assert [entry.requested.cost for entry in entries] == [
        *[desk.plan.views["pages"].cost(MIDDLE)] * 3,
        *[Cost(Fraction(2), Fraction(0))] * 3,
        desk.plan.views["pages"].cost(FINE),
    ]
    assert [one.loss.cost.epsilon for one in entries[3].audiences] == [3]
    places = [
        message.topic for message in desk.machine.sent if message.topic != "merged" and not is_about_view(message)
    ]
    assert places[3::4][:3] == [ACCOUNTS] * 3
    assert len({entry_key(entry) for entry in entries}) == len(entries)


def test_an_entry_tells_what_was_asked_at_worst_and_what_the_call_came_to() -> None:
    desk = Desk(plan())
    desk.give("tops", 0, {})
    (entry,) = desk.entries()
    assert entry.requested.cost == desk.plan.views["tops"].cost(MIDDLE)
    charged = sum((one.charged.cost for one in entry.audiences), Cost.ZERO)
    assert entry.requested.cost - charged == Cost(1 + DELTA, Fraction(0)), "the draw that was not made"
    assert entry.remaining.cost == desk.plan.ledgers["visitors"].budget - charged
