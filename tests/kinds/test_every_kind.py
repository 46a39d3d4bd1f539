"""What holds for every release kind: the law of its records, what they depend on, crashes, grants, refusals, words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stream_dp.accounting import Cost
from stream_dp.cli.check_command import check
from stream_dp.cli.tail_command import record_line
from stream_dp.exact.bits import BitSource, KeyedBits, system_entropy
from stream_dp.exact.reals import exp_neg
from stream_dp.lossless.levels import WORD, threshold_for
from stream_dp.records import codec
from stream_dp.records.codec import SCHEMA_NAMES, decode, encode, encode_parts
from stream_dp.records.history import History, Joiner
from stream_dp.records.models import ItemCount, Refusal, Release
from stream_dp.releases import pieces, publication
from stream_dp.releases.rows import OUTBOX, TABLE
from stream_dp.windows.effects import Commit, Erase, Increment, Send, Step
from tests.kinds.cases import CASES, COARSE, FINE, MIDDLE, VIEW, Case, outcomes_of
from tests.support.chance import pooled_p_value
from tests.support.chosen import every, kept_ordinary, ordinarily
from tests.support.given import there
from tests.support.laplace_laws import half_width
from tests.support.machine import Machine
from tests.support.releasing import KEY, Desk, keyed, plan_of
from tests.support.schemas import later, mismatch
from tests.support.sealing import read_window, seal_window, window_key_of

LEVELS = (COARSE, MIDDLE, FINE)
SECOND = 1000

some_kinds = pytest.mark.parametrize(
    "kind", kept_ordinary(["histogram", "running", "topk"], sorted(CASES)), indirect=True
)
"""Of what takes long, three kinds ordinarily: others have the same rows and records, or much of them."""


def desk_of(case: Case, budget: str = "400", **options: Any) -> Desk:
    return Desk(case.plan(budget), lists=case.lists, **options)


# -- the law --------------------------------------------------------------------------------------------------------

WINDOWS = 2000
FALSE_ALARM = 1e-7
"""Of one p-value, were the key drawn anew; three are compared with it for each kind. Randomness is keyed, so a run
repeats. Mutants are off by a quarter in epsilon."""


@cache
def outcomes(kind: str) -> Sequence[Counter[Hashable]]:
    """What the records of many windows with the same counts say, level by level."""
    case = CASES[kind]
    return [Counter(level) for level in outcomes_of(case, case.plan().views[VIEW], WINDOWS)]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("level", ordinarily(1, LEVELS))
def test_a_record_follows_the_law_of_its_level_and_no_other(case: Case, kind: str, level: int) -> None:
    view, found = case.plan().views[VIEW], outcomes(kind)[level]

    def fit(a: Fraction) -> float:
        return pooled_p_value(found, {cell: float(p) for cell, p in case.law(a, view, level).items()})

    each = view.levels[level].epsilon / view.kind.sensitivity
    assert fit(Fraction(view.levels[level].threshold, WORD)) > FALSE_ALARM
    for off in (Fraction(3, 4), Fraction(4, 3)):
        assert fit(Fraction(threshold_for(each * off), WORD)) < FALSE_ALARM


@pytest.mark.parametrize("level", LEVELS)
def test_the_interval_of_a_shown_key_holds_its_count_with_95_percent(case: Case, level: int) -> None:
    view, truth = case.plan().views[VIEW], case.counts["home"]
    desk = Desk(plan_of(case.text().replace("public: coarse", f"public: {view.levels[level].name}")), lists=case.lists)
    desk.give(VIEW, 0, case.counts)
    record = desk.record(VIEW, "public", 0)
    law = case.law(Fraction(view.levels[level].threshold, WORD), view, level)
    held = Fraction(0)
    for noisy, chance in law.items():
        if isinstance(noisy, int):
            least, most = record.interval(ItemCount(item="home", count=noisy))
            held += chance if least <= truth <= most else 0
    assert Fraction(95, 100) <= held / (1 - law.get("hidden", Fraction(0))) <= 1


@pytest.mark.parametrize("level", LEVELS)
def test_the_law_that_a_record_names_is_that_of_its_noise_and_of_its_interval(case: Case, level: int) -> None:
    view = case.plan().views[VIEW]
    desk = Desk(plan_of(case.text().replace("public: coarse", f"public: {view.levels[level].name}")), lists=case.lists)
    desk.give(VIEW, 0, case.counts)
    record = desk.record(VIEW, "public", 0)
    a = there(record.noise.ratio).value
    assert a == Fraction(view.levels[level].threshold, WORD), "what is drawn (see the law above)"
    assert half_width(a, record.panes or record.blocks or 1) == record.noise_interval_95
    scale = Fraction(record.noise.scale)
    least, most = exp_neg(1 / scale, 128)
    assert 0 <= Fraction(least + most, 2 << 128) - a < Fraction(1, 10**10), "rounded up"


def test_levels_read_together_are_those_read_one_by_one(case: Case) -> None:
    view = case.plan().views[VIEW]
    table = seal_window(view, 0, case.counts, prf_key=KEY, entropy=keyed, lists=case.lists)
    alone = [reading for level in LEVELS for reading in read_window(view, 0, table, [level], KEY)]
    assert read_window(view, 0, table, LEVELS, KEY) == alone


def test_what_the_merge_sends_on_is_all_that_sealing_looks_at(case: Case) -> None:
    """The rest of the exact counts stays behind the merge, bucket by bucket, and nothing else is drawn without it."""
    view = case.plan().views[VIEW]
    for counts in (case.counts, *case.others):
        needed = dict(view.kind.needed(counts))
        assert needed.items() <= counts.items()
        assert view.kind.needed(needed) == needed
        tables = [seal_window(view, 0, some, prf_key=KEY, entropy=keyed, lists=case.lists) for some in (counts, needed)]
        assert tables[0] == tables[1]


def test_the_order_in_which_keys_came_is_forgotten(case: Case) -> None:
    view = case.plan().views[VIEW]
    for counts in (case.counts, *case.others):
        backwards = dict(reversed(list(counts.items())))
        tables = [
            seal_window(view, 0, some, prf_key=KEY, entropy=keyed, lists=case.lists) for some in (counts, backwards)
        ]
        assert tables[0] == tables[1]


# -- what depends on the data ---------------------------------------------------------------------------------------


@dataclass
class Watched(Machine):
    """Writes down the form of every effect: what it is about, nothing of what it holds."""

    forms: list[object] = field(default_factory=list)

    def carry_out(self, step: Step) -> None:
        super().carry_out(self._seen(step))

    def _seen(self, step: Step) -> Step:
        for effect in step:
            match effect:
                case Commit(rows):
                    self.forms.append(("commit", [(key, value is None) for key, value in rows]))
                case Send(messages):
                    self.forms.append(
                        (type(effect), [(m.topic, m.partition, m.key, m.value is None) for m in messages])
                    )
                case Erase(first, last):
                    self.forms.append(("erase", first, last))
                case Increment(name, amount, labels):  # the operators' counter of keys outside a list is exact
                    self.forms.append((name, None if name == "events_unknown" else amount, labels))
            yield effect


def test_nothing_but_the_mechanism_depends_on_the_data(case: Case) -> None:
    """The effects of a release, their order, keys and topics, and every field of a record but those of the release."""
    forms, shapes, shown = [], [], []
    for counts in (case.counts, *case.others):
        machine = Watched()
        desk = desk_of(case, machine=machine)
        desk.give(VIEW, 0, counts)
        desk.grant(1, "public", "fine")
        forms.append(machine.forms)
        records = [record for name in desk.plan.audiences for record in desk.records(VIEW, name)]
        shapes.append([shape(record, case.dependent) for record in records])
        shown.append([record.items for record in records if isinstance(record, Release)])
    assert forms == forms[:1] * len(forms)
    assert shapes == shapes[:1] * len(shapes)
    assert len({str(items) for items in shown}) == len(shown), "the data do differ"


def shape(record: Release | Refusal, dependent: frozenset[str]) -> dict[str, Any]:
    """A record without what may depend on the data: what is released, and what that came to cost."""
    fields = json.loads(encode(record))
    del fields["privacy"]
    return {name: value for name, value in fields.items() if name not in dependent}


def test_a_coarse_record_does_not_depend_on_what_finer_readers_see(case: Case) -> None:
    """specs/lossless T6: the clearances of others are not in its bytes."""
    found = []
    for level in ("middle", "fine"):
        desk = Desk(plan_of(case.text().replace("staff: middle", f"staff: {level}")), lists=case.lists)
        desk.give(VIEW, 0, case.counts)
        (record,) = desk.records(VIEW, "public")
        found.append(encode(record))
    assert found[0] == found[1]


# -- crashes --------------------------------------------------------------------------------------------------------


def scenario(case: Case, cuts: Sequence[int] = (), back: int = 0) -> Desk:
    """Two windows and a grant between them; noise from the operating system, so a window drawn twice would show."""
    desk = desk_of(case, entropy=system_entropy, cuts=cuts, back=back)
    desk.give(VIEW, 0, case.counts)
    desk.grant(1, "public", "fine")
    desk.give(VIEW, SECOND, case.others[-1])
    return desk


def finished(desk: Desk) -> None:
    """Everything was released, once, and paid for; nothing is left open (the auditor watched at every point)."""
    desk.auditor.settled()
    levels = {"partner": ["coarse", "coarse"], "public": ["coarse", "fine", "fine"], "staff": ["middle", "middle"]}
    for audience, expected in levels.items():
        distinct = {encode(record): record for record in desk.records(VIEW, audience)}
        records = [record for record in distinct.values() if isinstance(record, Release)]
        assert [record.level.name for record in sorted(records, key=_place)] == expected
        assert len(records) == len(distinct), "nothing was refused"
        assert len({_place(record) for record in records}) == len(records), "two records of one revision"


def _place(record: Release) -> tuple[int, int]:
    return record.window.start_ms, record.revision


@some_kinds
@every(3)
def test_a_cut_at_every_effect_changes_nothing_that_was_shown(case: Case, step: int) -> None:
    whole = scenario(case)
    finished(whole)
    for cut in range(0, whole.machine.points, step):
        finished(scenario(case, cuts=(cut,)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and records so small that a window takes many: a key or a few in each."""

    def in_parts(record: Release | Refusal, _most: int) -> Sequence[tuple[bytes, bytes]]:
        return encode_parts(record, len(encode(record.model_copy(update={"items": ()}))) + 60)

    monkeypatch.setattr(pieces, "RECORD_BYTES", 200)
    monkeypatch.setattr(publication, "encode_parts", in_parts)


@some_kinds
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most", [8, pytest.param(10**6, marks=pytest.mark.slow)])
def test_a_cut_at_any_row_of_a_release_in_parts_changes_nothing_that_was_shown(case: Case, most: int) -> None:
    """No table is made of two draws, every record is a reading of the stored one, and no row is left over."""
    whole = scenario(case)
    finished(whole)
    assert any((message.key or b"").endswith(b"/2") for message in whole.published())
    for cut in range(0, whole.machine.points, 1 + whole.machine.points // most):
        desk = scenario(case, cuts=(cut,), back=cut % 3)
        finished(desk)
        for start in (0, SECOND):
            table = desk.table(VIEW, start)
            for audience, state in desk.row(VIEW, start).states.items():
                (reading,) = read_window(desk.plan.views[VIEW], start, table, [state.level], desk.key(VIEW, start))
                record = desk.record(VIEW, audience, start)
                assert all(getattr(record, name) == value for name, value in reading.fields.items())
        assert not [key for key in desk.machine.rows if key.startswith(OUTBOX)]
        assert desk.machine.unerased(TABLE) == []


@some_kinds
@pytest.mark.parametrize("step", [8, pytest.param(3, marks=pytest.mark.slow)])
def test_messages_that_come_again_after_a_crash_change_nothing(case: Case, step: int) -> None:
    points = scenario(case).machine.points
    for cut in range(0, points, step):
        finished(scenario(case, cuts=(cut, 7, 11), back=4))


def test_a_sealed_table_is_read_back_as_it_was_stored(case: Case) -> None:
    desk = desk_of(case)
    desk.give(VIEW, 0, case.counts)
    stored = desk.table(VIEW, 0)
    view = desk.plan.views[VIEW]
    key = window_key_of(view, 0, KEY, keyed)
    fresh = seal_window(view, 0, case.counts, prf_key=key, entropy=keyed, lists=case.lists)
    assert stored == fresh
    assert len(stored.items) == len(stored.values)
    for counts in (case.counts, *case.others, {f"page {n}": 50 for n in range(3000)}):
        table = seal_window(view, 0, counts, prf_key=KEY, entropy=keyed, lists=case.lists)
        assert len(table.payload) <= 32, "it is in every row of the table"


# -- what it costs --------------------------------------------------------------------------------------------------


def test_a_window_costs_its_finest_level_and_its_keys_once(case: Case) -> None:
    view = case.plan().views[VIEW]
    assert view.keys_at_worst == case.worst
    assert [view.cost(level) for level in LEVELS] == [Cost(Fraction(e), Fraction(0)) + case.worst for e in (1, 2, 4)]
    for counts in (case.counts, *case.others):
        table = seal_window(view, 0, counts, prf_key=KEY, entropy=keyed, lists=case.lists)
        for level in LEVELS:
            assert view.counts(level) <= view.spent(table, level) <= view.cost(level)
            assert view.spent(table, level).delta == view.cost(level).delta, "delta is not returned"


def test_a_grant_publishes_the_sealed_window_sharper_for_the_difference(case: Case) -> None:
    desk = desk_of(case)
    desk.give(VIEW, 0, case.counts)
    desk.grant(1, "public", "fine")
    view = desk.plan.views[VIEW]
    first, sharper = desk.records(VIEW, "public")
    assert isinstance(sharper, Release)
    assert (first.revision, sharper.revision, sharper.level.name) == (1, 2, "fine")
    table = desk.table(VIEW, 0)
    (reading,) = read_window(view, 0, table, [FINE], window_key_of(view, 0, KEY, keyed))
    assert all(getattr(sharper, name) == value for name, value in reading.fields.items())
    assert desk.charged(VIEW, "public", 0) == view.counts(FINE) - view.counts(MIDDLE)
    assert sharper.privacy.window.cost == sharper.privacy.period.cost == view.spent(table, FINE)
    assert desk.ledger(view=VIEW).spent == view.spent(table, FINE)
    desk.grant(2, "partner", "middle")  # what staff have had from the start
    assert desk.charged(VIEW, "partner", 0) == Cost.ZERO


def test_an_unlock_publishes_what_a_grant_would_when_the_window_is_so_old(case: Case) -> None:
    granted = desk_of(case)
    granted.give(VIEW, 0, case.counts)
    granted.grant(1, "public", "fine")
    later = "public: {level: coarse, unlock: [{level: fine, after: 5s}]}"
    desk = Desk(plan_of(case.text().replace("public: coarse", later)), lists=case.lists)
    desk.give(VIEW, 0, case.counts)
    desk.tell(5999)
    assert len(desk.records(VIEW, "public")) == 1
    desk.tell(6000)
    assert desk.records(VIEW, "public") == granted.records(VIEW, "public")
    assert desk.ledger(view=VIEW).spent == granted.ledger(view=VIEW).spent
    desk.auditor.settled()


def test_a_window_that_cannot_be_paid_for_is_refused_and_nothing_is_drawn(case: Case) -> None:
    view = case.plan().views[VIEW]
    budget = str(view.cost(MIDDLE).epsilon)
    asked: list[bytes] = []

    def entropy(context: bytes) -> BitSource:
        asked.append(context)
        return KeyedBits(b"entropy", context)

    desk = desk_of(case, budget, entropy=entropy)
    for number in range(10):  # a kind that gives back what it did not need affords more than one window
        drawn = len(asked)
        desk.give(VIEW, number * SECOND, case.counts)
        if isinstance(desk.records(VIEW, "staff")[-1], Refusal):
            break
        assert len(asked) > drawn
    assert number > 0
    assert len(asked) == drawn
    for audience, level in view.audiences.items():
        record = desk.records(VIEW, audience)[-1]
        assert isinstance(record, Refusal)
        assert (record.kind, record.level.name) == (view.kind.name, view.levels[level].name)
        assert record.requested.cost == desk.plan.views[VIEW].cost(MIDDLE)
    desk.auditor.settled()


# -- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kept_ordinary(["histogram"], sorted(CASES)), indirect=True)
def test_check_explains_the_kind(case: Case, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(case.text(), encoding="utf-8")
    page = CliRunner().invoke(check, [str(file), "--explain"], env={"COLUMNS": "2000", "STREAM_DP_BROKER": ""})
    assert page.exit_code == 0, page.stderr
    described = json.loads(CliRunner().invoke(check, [str(file), "--json"], env={"STREAM_DP_BROKER": ""}).stdout)
    (view,) = described["views"]
    assert f"view {VIEW} ({kind})" in page.stdout
    assert f"{view['explanation']['shows']} of 'page' in topic visits" in page.stdout
    assert view["explanation"]["keys"] in page.stdout
    assert view["explanation"]["details"]
    assert [one["seen"] for one in described["audiences"]] == [
        view["explanation"]["seen"][[level["name"] for level in view["levels"]].index(one["level"])]
        for one in described["audiences"]
    ]
    assert all(one["seen"] in page.stdout for one in described["audiences"])
    for heading, cells in view["explanation"]["columns"].items():
        assert len(cells) == len(LEVELS)
        assert heading.split("\n")[0] in page.stdout


schema = cache(codec.schema)


@some_kinds
def test_records_fit_the_schema_of_their_kind_and_of_no_other(case: Case, kind: str) -> None:
    desk = desk_of(case)
    for start, counts in enumerate((case.counts, *case.others)):
        desk.give(VIEW, start * SECOND, counts)
    for audience in desk.plan.audiences:
        for record in desk.records(VIEW, audience):
            data = json.loads(encode(record))
            assert decode(encode(record)) == record
            assert [mismatch(data, schema(name), schema(name)) for name in ("record", kind)] == [[], []]
            for other in set(SCHEMA_NAMES) - {"record", kind}:
                assert mismatch(data, schema(other), schema(other))


@some_kinds
def test_todays_readers_read_records_with_more_fields_at_every_level(case: Case, kind: str) -> None:
    desk = desk_of(case)
    for start, counts in enumerate((case.counts, *case.others)):
        desk.give(VIEW, start * SECOND, counts)
    history, joiner = History(), Joiner()
    for record in desk.records(VIEW, "staff"):
        rows = [later(value) for _, value in encode_parts(record, 1 + len(encode(record)) // 2)]
        read = [decode(row) for row in rows]
        assert [joiner.take(part) for part in read] == [None] * (len(rows) - 1) + [record]
        *_, seen = [history.take(part) for part in read]
        assert seen is not None
        assert seen.release == record
        assert record_line(decode(later(encode(record)))) == record_line(record)
        for body in map(json.loads, rows):
            assert [mismatch(body, schema(name), schema(name), closed=False) for name in ("record", kind)] == [[], []]


def test_tail_shows_what_a_record_shows(case: Case) -> None:
    desk = desk_of(case)
    desk.give(VIEW, 0, case.counts)
    (record,) = desk.records(VIEW, "staff")
    assert isinstance(record, Release)
    line = record_line(record)
    for entry in record.items[:3]:
        assert f"{entry.item} {entry.count}" in line
    assert str(len(record.items)) in record.extent()
