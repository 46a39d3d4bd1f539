"""The audit of a run finds nothing in a run that was right, and finds every fault that it is there to find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from stream_dp.accounting import Cost, Ledger, reserve
from stream_dp.accounting import decode as decode_ledger
from stream_dp.accounting import encode as encode_ledger
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.records.codec import encode, encode_parts
from stream_dp.releases.pieces import table_key
from stream_dp.releases.rows import LEDGER
from tests.support.audit import Evidence, Expected, Shown, audit
from tests.support.releasing import KEY, ONLY_PAGES, SECOND, Desk, plan

WITNESS = (
    "views:\n",
    """views:
  exact:
    source: visits
    item: page
    kind: catalogue
    catalogue: [a, b, c]
    items_per_user: 1
    window: {size: 1s, start: 1970-01-01T00:00:00Z, grace: 0s}
    ledger: witnesses
    ladder: plain
    audiences: [public]
    retention: 1h
    buckets: 1
""",
)
SHOP = plan(
    WITNESS,
    ("ledgers:\n", 'ledgers:\n  witnesses: {population: witnesses, epsilon: "1000", delta: "0", period: 4s}\n'),
    ("ladders:\n", 'ladders:\n  plain: [{level: coarse, epsilon: "40"}]\n'),
)
COUNTS = [{"a": 120 + start, "b": 80, "d": 3} for start in range(3)]
STARTS = [start * SECOND for start in range(3)]
EXPECTED = Expected(
    STARTS,
    {"exact": {start: {item: counts[item] for item in "ab"} for start, counts in zip(STARTS, COUNTS, strict=True)}},
    {"partner": "middle"},
)
PAGES = "shop.releases.pages.public"


def run(key: bytes = b"entropy") -> Evidence:
    """Three windows of all views are released, the partner is granted a finer level: what it left."""

    def noise(context: bytes) -> BitSource:
        return KeyedBits(key, context)

    desk = Desk(SHOP, entropy=noise)
    for view in SHOP.views:
        for start, counts in zip(STARTS, COUNTS, strict=True):
            desk.give(view, start, counts)
    desk.grant(1, "partner", "middle")
    return left_by(desk)


def left_by(desk: Desk) -> Evidence:
    """What a desk has published and stored."""
    shown: dict[str, list[Shown]] = {}
    for message in desk.published():
        assert message.key is not None
        assert message.value is not None
        log = shown.setdefault(message.topic, [])
        log.append(Shown(len(log), 0, message.key, message.value))
    return Evidence(shown, dict(desk.machine.rows), KEY)


RIGHT, OTHER = run(), run(b"other noise 2")


def with_log(evidence: Evidence, topic: str, log: Sequence[Shown]) -> Evidence:
    """The same but for one topic; its records are numbered anew."""
    numbered = [replace(one, offset=at) for at, one in enumerate(log)]
    return replace(evidence, shown={**evidence.shown, topic: numbered})


def with_rows(rows: Mapping[bytes, bytes | None]) -> Evidence:
    """The run with other rows; None for a row that is gone."""
    merged = {**RIGHT.rows, **rows}
    return replace(RIGHT, rows={key: value for key, value in merged.items() if value is not None})


def test_nothing_is_found_in_a_run_that_was_right() -> None:
    report = audit(SHOP, RIGHT, EXPECTED)

    report.assert_clean()
    assert report.figures == {"windows": 3, "records": 27, "revisions": 27, "repeats": 0, "forgone": 0}
    audit(SHOP, OTHER, EXPECTED).assert_clean()


def test_repetitions_of_the_same_bytes_are_counted_and_no_fault() -> None:
    log = RIGHT.shown[PAGES]

    report = audit(SHOP, with_log(RIGHT, PAGES, [log[0], log[0], *log, log[2]]), EXPECTED)

    report.assert_clean()
    assert report.figures["repeats"] == 3
    assert report.figures["revisions"] == 27


def another_draw() -> Evidence:
    return with_log(RIGHT, PAGES, [*RIGHT.shown[PAGES], OTHER.shown[PAGES][1]])


def another_draw_instead() -> Evidence:
    log = RIGHT.shown[PAGES]
    return with_log(RIGHT, PAGES, [log[0], OTHER.shown[PAGES][1], *log[2:]])


def another_table() -> Evidence:
    key = table_key("pages", STARTS[1], 0)
    return with_rows({key: OTHER.rows[key]})


def no_table() -> Evidence:
    return with_rows({table_key("pages", STARTS[1], 0): None})


def torn(log: Sequence[Shown]) -> Sequence[Shown]:
    """The same, but the second record is two parts."""
    cut = encode_parts(log[1].record, len(log[1].value) - 1)
    assert len(cut) == 2
    return [log[0], *(replace(log[1], key=key, value=value) for key, value in cut), *log[2:]]


def missing_part() -> Evidence:
    log = torn(RIGHT.shown[PAGES])
    return with_log(RIGHT, PAGES, [log[0], *log[2:]])


def missing_last_part() -> Evidence:
    log = torn(RIGHT.shown[PAGES])
    return with_log(RIGHT, PAGES, [*log[:2], *log[3:]])


def part_of_another_draw() -> Evidence:
    log, other = torn(RIGHT.shown[PAGES]), torn(OTHER.shown[PAGES])
    return with_log(RIGHT, PAGES, [*log, other[2]])


def lost_window() -> Evidence:
    log = RIGHT.shown[PAGES]
    return with_log(RIGHT, PAGES, [log[0], *log[2:]])


def lost_revision() -> Evidence:
    topic = "shop.releases.pages.partner"
    return with_log(RIGHT, topic, RIGHT.shown[topic][1:])


def lost_grant() -> Evidence:
    topic = "shop.releases.pages.partner"
    return with_log(RIGHT, topic, RIGHT.shown[topic][:-1])


def old_record_behind_a_new_one() -> Evidence:
    topic = "shop.releases.pages.partner"
    return with_log(RIGHT, topic, [*RIGHT.shown[topic], RIGHT.shown[topic][0]])


def revision_that_is_not_sharper() -> Evidence:
    one = RIGHT.shown[PAGES][1]
    again = encode(one.record.model_copy(update={"revision": 2}))
    return with_log(RIGHT, PAGES, [*RIGHT.shown[PAGES], replace(one, value=again)])


def compacted_topic() -> Evidence:
    log = RIGHT.shown[PAGES]
    return replace(
        RIGHT, shown={**RIGHT.shown, PAGES: [log[0], *(replace(one, offset=one.offset + 1) for one in log[1:])]}
    )


def wrong_count() -> Evidence:
    """A count that was taken twice, in the record and in the table that it was read from."""
    desk = Desk(SHOP)
    for start, counts in zip(STARTS, COUNTS, strict=True):
        desk.give("exact", start, {**counts, "b": counts["b"] + (start == STARTS[2])})
    counted = left_by(desk)
    return replace(RIGHT, shown={**RIGHT.shown, **counted.shown}, rows={**RIGHT.rows, **counted.rows})


def charge(difference: Fraction) -> Evidence:
    """The first ledger has paid so much more."""
    key = min(key for key in RIGHT.rows if key.startswith(LEDGER))
    ledger = decode_ledger(RIGHT.rows[key])
    zero = Fraction(0)
    spent = ledger.spent - Cost(-difference, zero) if difference < 0 else ledger.spent + Cost(difference, zero)
    return with_rows({key: encode_ledger(replace(ledger, spent=spent))})


def no_ledger() -> Evidence:
    return with_rows({key: None for key in RIGHT.rows if key.startswith(LEDGER)})


def open_reservation() -> Evidence:
    key = min(key for key in RIGHT.rows if key.startswith(LEDGER))
    reserved = reserve(decode_ledger(RIGHT.rows[key]), "pages 0  -1 -1 -1", Cost(Fraction(1), Fraction(0)))
    assert isinstance(reserved, Ledger)
    return with_rows({key: encode_ledger(reserved)})


MUTANTS: list[tuple[Callable[[], Evidence], dict[str, int]]] = [
    (another_draw, {"different": 1, "redrawn": 1, "undercharged": 1}),
    (another_draw_instead, {"redrawn": 1}),
    (another_table, {"redrawn": 4}),
    (no_table, {"redrawn": 4}),
    (lost_window, {"lost": 1}),
    (missing_part, {"lost": 1, "torn": 1}),
    (missing_last_part, {"torn": 1}),
    (part_of_another_draw, {"different": 1}),
    (lost_revision, {"hole": 1}),
    (lost_grant, {"coarse": 1}),
    (old_record_behind_a_new_one, {"outdated": 1}),
    (revision_that_is_not_sharper, {"blunt": 1}),
    (compacted_topic, {"compacted": 1}),
    (wrong_count, {"wrong": 1}),
    (lambda: charge(Fraction(-1, 2**40)), {"undercharged": 1}),
    (lambda: charge(Fraction(1, 2**40)), {"overcharged": 1}),
    (no_ledger, {"undercharged": 2}),
    (open_reservation, {"open": 1}),
]


@pytest.mark.parametrize(("mutant", "faults"), MUTANTS)
def test_a_fault_is_found(mutant: Callable[[], Evidence], faults: dict[str, int]) -> None:
    report = audit(SHOP, mutant(), EXPECTED)

    assert report.kinds == faults, str(report)
    report.assert_clean(but=faults)
    for kind in faults:
        with pytest.raises(AssertionError, match=f"{kind}: "):
            report.assert_clean(but=faults.keys() - {kind})


def test_windows_that_were_not_to_be_released_are_found() -> None:
    fewer = replace(EXPECTED, windows=STARTS[:2])

    assert audit(SHOP, RIGHT, fewer).kinds == {"unasked": sum(len(view.audiences) for view in SHOP.views.values())}


def test_a_window_that_hops_is_due_in_the_interval_in_which_it_ends() -> None:
    desk = Desk(plan(ONLY_PAGES, ("{size: 1s,", "{size: 2s, step: 1s,")))
    for start in STARTS[:2]:
        desk.give("pages", start, {"a": 100})
    evidence, expected = left_by(desk), Expected(STARTS, {})
    without = with_log(evidence, PAGES, evidence.shown[PAGES][:1])

    audit(desk.plan, evidence, expected).assert_clean()
    assert audit(desk.plan, without, expected).kinds == {"lost": 1}
    assert audit(desk.plan, evidence, Expected(STARTS[:2], {})).kinds == {"unasked": 3}


def test_records_of_another_edition_and_of_windows_that_no_definition_asks_for_are_found() -> None:
    two = replace(EXPECTED, editions={"pages": {start: 1 + (start == STARTS[2]) for start in STARTS}})
    begun = SHOP.begun(dict.fromkeys(SHOP.views, 0))
    ended = replace(begun, views={**begun.views, "pages": replace(begun.views["pages"], until_ms=STARTS[2])})

    assert audit(SHOP, RIGHT, two).kinds == {"wrong": 4}, "the partner has two revisions"
    assert audit(ended, RIGHT, EXPECTED).kinds == {"unasked": 3}
    audit(begun, RIGHT, replace(EXPECTED, editions={"pages": dict.fromkeys(STARTS, 1)})).assert_clean()


def test_refusals_are_faults_unless_they_were_to_be() -> None:
    desk = Desk(plan(ONLY_PAGES, ('epsilon: "40"', 'epsilon: "5"')))
    for start in STARTS:
        desk.give("pages", start, {"a": 100})
    evidence = left_by(desk)
    expected = Expected(STARTS, {}, refused={"pages": STARTS[2:]})

    audit(desk.plan, evidence, expected).assert_clean()
    assert audit(desk.plan, evidence, Expected(STARTS, {})).kinds == {"refused": 3, "lost": 3}


def test_a_window_may_be_forgone_for_a_reason_that_it_is_expected_to_have_and_only_instead_of_a_release() -> None:
    poor, rich = (Desk(plan(ONLY_PAGES, ('epsilon: "40"', f'epsilon: "{epsilon}"'))) for epsilon in (5, 50))
    for desk in (poor, rich):
        for start in STARTS:
            desk.give("pages", start, {"a": 100})
    evidence, released = left_by(poor), left_by(rich)
    last = Expected(STARTS, {}, forgone={"budget": STARTS[2:]})

    report = audit(poor.plan, evidence, last)
    report.assert_clean()
    assert report.figures["forgone"] == 3  # for three audiences
    for other in ({"budget": STARTS[:2]}, {"other": STARTS}):
        assert audit(poor.plan, evidence, replace(last, forgone=other)).kinds == {"refused": 3, "lost": 3}
    audit(rich.plan, released, last).assert_clean()
    both = with_log(released, PAGES, [*released.shown[PAGES], evidence.shown[PAGES][-1]])
    assert audit(rich.plan, both, last).kinds == {"unasked": 1}
