"""What holds for every kind with one level: what records depend on, crashes, refusals, costs, words, schemas."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from stream_dp.accounting import Cost
from stream_dp.cli.check_command import check
from stream_dp.cli.tail_command import record_line
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import system_entropy
from stream_dp.histograms.compact import CompactHistogram
from stream_dp.kinds import KINDS
from stream_dp.kinds.lookup import LookupPlan
from stream_dp.records import codec
from stream_dp.records.by_kind import LookupRelease, PureTopKRelease
from stream_dp.records.codec import SCHEMA_NAMES, decode, encode
from stream_dp.records.models import ItemCount, Refusal, Release
from stream_dp.releases.rows import OUTBOX, TABLE
from tests.kinds.cases import CASES, VIEW
from tests.kinds.one_level import COUNTS, ONE_LEVEL, OTHERS, OneLevel
from tests.support.chosen import every, kept_ordinary
from tests.support.given import there
from tests.support.releasing import Desk, plan_of
from tests.support.schemas import mismatch

SECOND = 1000
schema = cache(codec.schema)


@pytest.fixture(params=sorted(ONE_LEVEL))
def case(request: pytest.FixtureRequest) -> OneLevel:
    name: str = request.param
    return ONE_LEVEL[name]


def released(desk: Desk, start: int = 0, audience: str = "public") -> Release:
    record = desk.record(VIEW, audience, start)
    assert isinstance(record, Release)
    return record


def test_every_kind_has_a_case() -> None:
    kinds = {case.kind for case in ONE_LEVEL.values()}
    strict = {case.kind for name, case in ONE_LEVEL.items() if name == f"{case.kind} strict"}
    assert CASES.keys() | kinds | {"bounds"} == KINDS.keys(), "bounds, which counts users, is in unit/kinds/test_bounds"
    assert CASES.keys() & kinds == strict == {"catalogue", "histogram"}


def test_a_second_level_is_refused_when_the_file_is_read(case: OneLevel) -> None:
    two = case.text().replace("three: [", 'three: [{level: coarse, epsilon: "1"}, ')
    with pytest.raises(ConfigError, match="must have one level, not 2: later releases cannot make this noise finer"):
        plan_of(two)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("lookup", "key_bytes: 8", "key_bytes: 21", "rows: must be at most 1024 with keys of more than 20 bytes"),
        ("lookup", 'epsilon: "2"', 'epsilon: "41"', "ladder: has a level with an epsilon above 20 for each of the 2"),
        ("histogram strict", 'epsilon: "2"', 'epsilon: "1001"', "must have at most epsilon 1000 for strict"),
        ("pure_topk", "key_bytes: 8", "key_bytes: 8\n    largest_count: 10", "no count up to 15 stands out"),
    ],
)
def test_what_cannot_be_planned_well_is_refused(name: str, old: str, new: str, words: str) -> None:
    text = ONE_LEVEL[name].text("10000").replace("rows: 101\n    key", "rows: 2000\n    key")
    assert old in text
    with pytest.raises(ConfigError, match=words):
        plan_of(text.replace(old, new))


def test_what_the_noise_leaves_is_near_the_counts() -> None:
    """The chance that this fails is below 2^-20 each, were the keyed bits drawn anew."""
    desks = {name: Desk(case.plan()) for name, case in ONE_LEVEL.items()}
    for name, desk in desks.items():
        desk.give(VIEW, 0, ONE_LEVEL[name].of(COUNTS))
    assert [entry.item for entry in released(desks["keys"]).items] == ["cart", "home"]
    top = released(desks["pure_topk"])
    assert isinstance(top, PureTopKRelease)
    assert [entry.item for entry in top.items] == ["home", "cart"]
    assert all(abs(entry.count - COUNTS[entry.item]) <= top.within_95 for entry in top.items)
    for entry in top.items:
        least, most = top.interval(entry)
        assert least <= COUNTS[entry.item] <= most
    listed, found = released(desks["catalogue strict"]), released(desks["histogram strict"])
    assert {entry.item for entry in listed.items} == {"home", "cart", "nobody", "page 7"}
    assert [entry.item for entry in found.items] == ["home", "cart"]
    for record in (listed, found):
        off = [abs(entry.count - COUNTS.get(entry.item, 0)) for entry in record.items]
        assert max(off) <= 6 * record.noise_interval_95
    table = released(desks["lookup"])
    assert isinstance(table, LookupRelease)
    read = CompactHistogram.from_bytes(b64decode(table.table))
    assert all(abs(read.lookup(key) - count) <= 6 * table.noise_interval_95 for key, count in COUNTS.items())
    assert read.lookup("nobody") <= 6 * table.noise_interval_95
    assert Fraction(table.absent_mean) - read.absent_mean < Fraction(1, 100)


def test_the_interval_of_an_answer_holds_the_count_of_its_key_whatever_that_is() -> None:
    """Of a key that is kept: the law of its answer is that of the table."""
    desk = Desk(ONE_LEVEL["lookup"].plan())
    desk.give(VIEW, 0, COUNTS)
    record, kind = released(desk), desk.plan.views[VIEW].kind
    assert isinstance(kind, LookupPlan)
    table, t = kind.compact.query, record.noise_interval_95
    for count in (*range(40), table.bound // 2, *range(table.bound - 40, table.bound + 1)):
        held = 0
        for answer in range(max(0, count - t - 2), min(table.bound, count + t + 2) + 1):
            least, most = record.interval(ItemCount(item="home", count=answer))
            of = table.cdf(count, answer) - (table.cdf(count, answer - 1) if answer else 0)
            held += of if least <= count <= most else 0
        assert Fraction(held, table.draws) >= Fraction(95, 100)


def test_nothing_but_the_mechanism_depends_on_the_data(case: OneLevel) -> None:
    """Every other field, the size of a table, and whatever is stored and sent: keys, topics, order."""
    shapes, stored, seen = [], [], []
    for counts in (COUNTS, *OTHERS):
        desk = Desk(case.plan(), entropy=system_entropy)
        desk.give(VIEW, 0, case.of(counts))
        fields = json.loads(encode(released(desk)))
        seen.append(str(fields.pop(case.dependent)))
        shapes.append(fields)
        stored.append([(message.topic, message.key) for message in desk.published()])
    assert shapes == shapes[:1] * len(shapes)
    assert stored == stored[:1] * len(stored)
    assert len(set(seen)) == len(seen), "the data do differ"


def test_the_order_in_which_keys_came_is_forgotten(case: OneLevel) -> None:
    found = []
    for counts in (COUNTS, dict(reversed(list(COUNTS.items())))):
        desk = Desk(case.plan())
        desk.give(VIEW, 0, case.of(counts))
        found.append(encode(released(desk)))
    assert found[0] == found[1]


def scenario(case: OneLevel, cuts: Sequence[int] = (), back: int = 0) -> Desk:
    """Two windows; noise from the operating system, so a window drawn twice would show."""
    desk = Desk(case.plan(), entropy=system_entropy, cuts=cuts, back=back)
    desk.give(VIEW, 0, case.of(COUNTS))
    desk.give(VIEW, SECOND, case.of(OTHERS[-1]))
    return desk


def finished(case: OneLevel, desk: Desk) -> None:
    """Both windows were released once to each audience, paid for once, and nothing is left open."""
    desk.auditor.settled()
    for audience in ("public", "staff"):
        distinct = {encode(record) for record in desk.records(VIEW, audience)}
        assert sorted(decode(value).window.start_ms for value in distinct) == [0, SECOND]
    assert desk.ledger(view=VIEW).spent == Cost(Fraction(4), 2 * case.keys.delta)
    assert not [key for key in desk.machine.rows if key.startswith(OUTBOX)]
    assert desk.machine.unerased(TABLE) == []


@pytest.mark.parametrize("case", kept_ordinary(["catalogue strict", "pure_topk"], sorted(ONE_LEVEL)), indirect=True)
@every(4)
def test_a_cut_at_every_effect_changes_nothing_that_was_shown(case: OneLevel, step: int) -> None:
    whole = scenario(case)
    finished(case, whole)
    for cut in range(0, whole.machine.points, step):
        finished(case, scenario(case, cuts=(cut,), back=cut % 3))


def test_both_audiences_get_one_draw_and_it_is_paid_once(case: OneLevel) -> None:
    desk = Desk(case.plan(), entropy=system_entropy)
    desk.give(VIEW, 0, case.of(COUNTS))
    public, staff = (json.loads(encode(released(desk, audience=name))) for name in ("public", "staff"))
    assert public[case.dependent] == staff[case.dependent]
    assert desk.ledger(view=VIEW).spent == Cost(Fraction(2), case.keys.delta) == desk.plan.views[VIEW].cost(0)


def test_a_window_that_cannot_be_paid_for_is_refused(case: OneLevel) -> None:
    desk = Desk(case.plan("3"))
    desk.give(VIEW, 0, case.of(COUNTS))
    desk.give(VIEW, SECOND, case.of(COUNTS))
    assert isinstance(desk.records(VIEW, "staff")[-1], Refusal)
    desk.auditor.settled()


@pytest.mark.parametrize("case", sorted(ONE_LEVEL.keys() - {"keys"}), indirect=True)
def test_a_user_with_more_items_gets_more_noise_for_the_same_epsilon(case: OneLevel) -> None:
    """The ratio of the noise, to the power of what one user moves, is at most e^epsilon, and close to it."""
    for items in (1, 3):
        plan = plan_of(case.text().replace("items_per_user: 1", f"items_per_user: {items}")).views[VIEW].kind
        assert plan.sensitivity == items * case.moved
        ratio = there(plan.levels[0].noise.ratio).value ** plan.sensitivity
        assert Fraction("7.389056") < 1 / ratio < Fraction("7.3890561")  # e^2


@pytest.mark.parametrize("case", kept_ordinary(["catalogue strict"], sorted(ONE_LEVEL)), indirect=True)
def test_check_explains_the_kind(case: OneLevel, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(case.text(), encoding="utf-8")
    page = CliRunner().invoke(check, [str(file), "--explain"], env={"COLUMNS": "2000", "STREAM_DP_BROKER": ""})
    assert page.exit_code == 0, page.stderr
    described = json.loads(CliRunner().invoke(check, [str(file), "--json"], env={"STREAM_DP_BROKER": ""}).stdout)
    (view,) = described["views"]
    assert f"view {VIEW} ({case.kind})" in page.stdout
    assert view["explanation"]["keys"] in page.stdout
    assert view["explanation"]["details"]


def test_records_fit_the_schema_of_their_kind_and_of_no_other(case: OneLevel) -> None:
    desk = Desk(case.plan())
    for start, counts in enumerate((COUNTS, *OTHERS)):
        desk.give(VIEW, start * SECOND, case.of(counts))
    for record in desk.records(VIEW, "public"):
        data = json.loads(encode(record))
        assert decode(encode(record)) == record
        assert isinstance(record, Release)
        assert (record.empty in record_line(record)) == (not record.items)
        assert [mismatch(data, schema(name), schema(name)) for name in ("record", case.kind)] == [[], []]
        for other in set(SCHEMA_NAMES) - {"record", case.kind}:
            assert mismatch(data, schema(other), schema(other))
