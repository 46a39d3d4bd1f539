"""A ranked list: the first keys of a release by noisy count, how to read them, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import count, product

import pytest

from stream_dp.config.planner import build_plan
from stream_dp.control.settings_change import Disclosed, Situation, former_editions, propose
from stream_dp.errors import ConfigError
from stream_dp.kinds.kind import largest_first
from stream_dp.operations.assignments import tuned
from stream_dp.operations.what_if import check_kind
from stream_dp.records.by_kind import CatalogueRelease, HistogramRelease, RunningRelease
from stream_dp.records.history import Seen
from stream_dp.records.models import CountRow, ItemCount, Release
from stream_dp.records.table import rows
from tests.support.editions import holding
from tests.support.laplace_family import pmf
from tests.support.panes import CATALOGUE, COUNTS, paned
from tests.support.releasing import ONLY_PAGES, Desk, plan
from tests.support.running import running

ENOUGH = Fraction(95, 100)
FIRST = ("    kind: histogram\n", "    kind: histogram\n    rank: 1\n")
RANKED = ("    kind: histogram\n", "    kind: histogram\n    rank: 2\n")
ONE_LEVEL = (
    (', {level: middle, epsilon: "2"}, {level: fine, epsilon: "4"}', ""),
    ("staff: middle", "staff: coarse"),
)
COUNTED = {"home": 60, "cart": 40, "help": 40, "about": 25}
REACH = 60
"""Noise is further away with a chance below e^-60."""


def both() -> tuple[Desk, Desk]:
    """A desk with a ranked view, and one that shows the whole list."""
    return Desk(plan(ONLY_PAGES, RANKED)), Desk(plan(ONLY_PAGES))


def test_a_release_has_the_first_keys_of_the_whole_list_at_the_same_cost() -> None:
    ranked, whole = both()
    for start in range(0, 20_000, 1000):
        for desk in (ranked, whole):
            desk.give("pages", start, COUNTED)
        cut, full = (desk.record("pages", "public", start) for desk in (ranked, whole))
        assert isinstance(cut, HistogramRelease)
        assert len(full.items) > 2
        assert cut.items == full.items[:2]
        assert (cut.rank, cut.minimum_count) == (2, full.model_dump()["minimum_count"])
        assert cut.two_sided_from == full.items[2].count + full.noise_interval_95 + 2
        assert cut.privacy == full.privacy
    assert ranked.ledger().spent == whole.ledger().spent
    assert ranked.plan.views["pages"].query_id == whole.plan.views["pages"].query_id


def test_where_there_are_no_more_keys_nothing_is_left_out_and_the_record_does_not_say_so() -> None:
    ranked, whole = both()
    for desk in (ranked, whole):
        desk.give("pages", 0, {"home": 60, "cart": 40})
    assert ranked.record("pages", "public", 0) == whole.record("pages", "public", 0)


def test_equal_counts_are_in_the_order_of_their_keys() -> None:
    kind = plan(ONLY_PAGES, RANKED).views["pages"].kind
    fields = kind.ranked({"items": largest_first([CountRow(7, item) for item in "bca"])}, 3)
    assert [entry.item for entry in fields["items"]] == ["a", "b"]


def test_a_finer_level_may_show_other_keys_and_each_is_the_head_of_its_own_list() -> None:
    ranked, whole = both()
    shown = set()
    for start in range(0, 30_000, 1000):
        for desk in (ranked, whole):
            desk.give("pages", start, COUNTED)
        for audience in ("public", "staff"):
            cut, full = (desk.record("pages", audience, start) for desk in (ranked, whole))
            assert cut.items == full.items[:2]
        coarse, fine = (ranked.record("pages", audience, start) for audience in ("public", "staff"))
        shown.add({entry.item for entry in coarse.items} == {entry.item for entry in fine.items})
    assert shown == {True, False}


# -- what readers may conclude ----------------------------------------------------------------------------------------


A = Fraction(1, 3)
"""Parameter of the noise; the bound on noise that readers get is worked out from it here."""


def law(panes: int) -> dict[int, Fraction]:
    """The noise of a count of so many panes, exact within `REACH`."""
    found = {0: Fraction(1)}
    for _ in range(panes):
        sums: dict[int, Fraction] = {}
        for (at, chance), k in product(found.items(), range(-REACH, REACH + 1)):
            if abs(at + k) <= REACH:
                sums[at + k] = sums.get(at + k, Fraction(0)) + chance * pmf(A, k)
        found = sums
    return found


def ending() -> dict[int, Fraction]:
    """Noise that ends."""
    kept = {k: chance for k, chance in law(1).items() if abs(k) <= 7}
    return {k: Fraction(chance, sum(kept.values())) for k, chance in kept.items()}


def half_width(noise: Mapping[int, Fraction]) -> int:
    return next(t for t in count() if sum(noise[k] for k in range(-t, t + 1)) >= ENOUGH)


def coverage(
    noise: Mapping[int, Fraction],
    others: tuple[int, int],
    true: int,
    reading: Callable[[Release, ItemCount], tuple[int, int]],
) -> Fraction:
    """The chance that the interval of the key "m" holds, given the noisy counts of the others and that it is shown."""
    kind, half = plan(ONLY_PAGES, FIRST).views["pages"].kind, half_width(noise)
    shown = held = Fraction(0)
    for k, chance in noise.items():
        items = largest_first([*map(CountRow, (others[0], true + k, others[1]), "amz")])
        if items[0].item == "m":
            cut = kind.ranked({"items": items}, half)
            least, most = reading(
                BLANK.model_copy(update={**cut, "noise_interval_95": half}), ItemCount(item="m", count=true + k)
            )
            shown += chance
            held += chance if least <= true <= most else 0
    return held / shown


def ranked_reading(record: Release, entry: ItemCount) -> tuple[int, int]:
    return record.interval(entry)


def named_reading(record: Release, entry: ItemCount) -> tuple[int, int]:
    """The mutant: what holds for a key that was named beforehand."""
    return Release.interval(record, entry)


def near_reading(record: Release, entry: ItemCount) -> tuple[int, int]:
    """The mutant: two-sided from the largest count that was left out."""
    assert isinstance(record, CatalogueRelease)
    assert record.two_sided_from is not None
    start = record.two_sided_from - record.noise_interval_95 - 2
    return record.model_copy(update={"two_sided_from": start}).interval(entry)


def _blank() -> Release:
    desk = Desk(plan(*CATALOGUE))
    desk.give("pages", 0, COUNTED)
    return desk.record("pages", "public", 0)


BLANK = _blank()
OTHERS = [(0, 0), (3, 12), (12, 3)]


@pytest.mark.parametrize("noise", [law(1), law(2), ending()], ids=["one pane", "two panes", "noise that ends"])
@pytest.mark.parametrize("others", OTHERS)
def test_every_true_count_lies_in_the_interval_of_a_ranked_key(
    others: tuple[int, int], noise: dict[int, Fraction]
) -> None:
    could_be_shown = range(max(0, max(others) + 1 - max(noise)), 40)
    assert all(coverage(noise, others, true, ranked_reading) >= ENOUGH for true in could_be_shown)


@pytest.mark.parametrize("reading", [named_reading, near_reading])
@pytest.mark.parametrize("panes", [1, 2])
def test_other_readings_miss_a_key_that_is_first_by_its_noise(
    panes: int, reading: Callable[[Release, ItemCount], tuple[int, int]]
) -> None:
    assert coverage(law(panes), (3, 12), 2, reading) < Fraction(1, 2)


def test_a_key_that_is_not_there_may_just_be_lower() -> None:
    desk = Desk(plan(ONLY_PAGES, RANKED))
    desk.give("pages", 0, COUNTED)
    release = desk.record("pages", "public", 0)
    table = {row[4]: row[-1] for row in rows([Seen(release)], ["home", "nobody"])}
    assert table == {"home": "released", "nobody": "unranked"}
    assert release.extent().startswith("the first 2 shown, from ")


# -- the other kinds --------------------------------------------------------------------------------------------------


def test_windows_of_panes_and_running_totals_are_cut_too() -> None:
    first = ("    items_per_user: 1\n", "    items_per_user: 1\n    rank: 1\n")
    for ranked, whole in ((paned(3, 1, first), paned(3, 1)), (running(first), running())):
        desks = Desk(ranked), Desk(whole)
        for desk in desks:
            for at, counts in enumerate(COUNTS[:6]):
                desk.give("pages", 1000 * at, counts)
        cut, full = ([one for one in desk.records("pages", "public") if isinstance(one, Release)] for desk in desks)
        assert len(cut) == len(full) > 0
        for one, other in zip(cut, full, strict=True):
            assert isinstance(one, CatalogueRelease | RunningRelease)
            assert one.items == other.items[:1]
            assert one.two_sided_from == other.items[1].count + one.noise_interval_95 + 2
            assert one.extent().startswith("the first 1 of ")


def test_it_has_no_meaning_with_strict_and_with_remember_and_is_not_planned() -> None:
    with pytest.raises(ConfigError, match=r"views\.pages\.rank: has no meaning with strict"):
        tuned(plan(ONLY_PAGES, *ONE_LEVEL), "pages", ["rank=2", "strict={rows: 100}"])
    with pytest.raises(ConfigError, match=r"views\.pages\.rank: all known keys are shown with remember"):
        tuned(plan(ONLY_PAGES), "pages", ["rank=2", "remember={audience: public}"])
    ranked = plan(ONLY_PAGES, RANKED)
    with pytest.raises(ConfigError, match="without strict and rank"):
        check_kind(ranked.views["pages"], ranked.views)


# -- while it runs ----------------------------------------------------------------------------------------------------


def test_a_changed_rank_is_in_effect_for_every_release_from_then_on() -> None:
    desk = Desk(plan(ONLY_PAGES))
    desk.give("pages", 0, COUNTED)
    desk.change(plan(ONLY_PAGES, RANKED))
    desk.give("pages", 1000, COUNTED)
    desk.grant(1, "public", "fine")
    first, second, again, _ = desk.records("pages", "public")
    assert isinstance(first, HistogramRelease)
    assert (first.rank, len(first.items) > 2) == (None, True)
    for record in (again, second):
        assert isinstance(record, HistogramRelease)
        assert (record.rank, len(record.items)) == (2, 2)
    assert (again.window, again.revision) == (first.window, 2)
    desk.auditor.settled()


def test_a_change_of_rank_goes_on_with_the_same_noise_and_says_what_it_discloses() -> None:
    before, after = plan(ONLY_PAGES), build_plan(plan(ONLY_PAGES, RANKED).raw)
    assert before.views["pages"].fingerprint == after.views["pages"].fingerprint
    begun = before.begun({"pages": 0})
    situation = Situation(now_ms=10_000, holding=begun)
    (change,) = propose(before, after, situation).views
    assert change.goes_on
    (former,) = former_editions(situation, after.begun({"pages": 0}))
    assert former.changes == (Disclosed("rank", None, "2"),)


def test_the_newest_rank_holds_for_former_definitions_of_the_same_kind_alone() -> None:
    ranked, whole = plan(ONLY_PAGES, RANKED).views["pages"].kind, plan(ONLY_PAGES).views["pages"].kind
    listed = plan(*CATALOGUE).views["pages"].kind
    assert whole.presented_as(ranked).rank == 2
    assert ranked.presented_as(whole).rank is None
    assert ranked.presented_as(listed).rank == 2
    assert listed.presented_as(ranked).rank is None
    remembering = tuned(plan(ONLY_PAGES), "pages", ["remember={audience: public}"]).views["pages"].kind
    assert remembering.presented_as(ranked).rank is None
    other = ("items_per_user: 1", "items_per_user: 2")
    held = holding((0, plan(ONLY_PAGES)), (3, plan(ONLY_PAGES, RANKED, other))).views
    assert [(view.items_per_user, view.kind.rank) for view in held.values()] == [(1, 2), (2, 2)]
