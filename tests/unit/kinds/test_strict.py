"""Strict catalogues and histograms: their exact laws, what they cost with the cap binding, bits, words, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.loading import read_config
from stream_dp.config.planner import build_plan
from stream_dp.errors import ConfigError
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.exact.reals import exp_neg
from stream_dp.histograms.basic import basic_histogram
from stream_dp.histograms.compact import truncated
from stream_dp.histograms.counting_queries import Base, CountingQuery, ExactGeometric, GeometricTable, RawBits
from stream_dp.kinds.catalogue import CatalogueSettings, StrictCataloguePlan, plan_catalogue
from stream_dp.kinds.histogram import (
    ORDER_BITS,
    HistogramSettings,
    StrictHistogramPlan,
    plan_histogram,
)
from stream_dp.kinds.kind import ViewBasis
from stream_dp.kinds.sealing import SealedTable, Sealing
from stream_dp.lossless.sealed import KEY_BYTES, SALT_BYTES, WindowNoise
from stream_dp.records.by_kind import HistogramRelease
from stream_dp.records.models import ItemCount
from tests.kinds.cases import VIEW
from tests.kinds.one_level import ONE_LEVEL
from tests.support.chosen import ordinarily
from tests.support.query_laws import excess, law
from tests.support.releasing import Desk, plan_of

ENOUGH = Fraction(95, 100)
NOISE = WindowNoise(b"window", bytes(KEY_BYTES))


def basis(epsilon: str, items: int = 1) -> ViewBasis:
    return ViewBasis([("only", Fraction(epsilon))], items, Path())


def catalogue(keys: Sequence[str] = ("cart", "home"), epsilon: str = "2", items: int = 1) -> StrictCataloguePlan:
    settings = CatalogueSettings.model_validate({"kind": "catalogue", "catalogue": list(keys), "strict": {}})
    found = plan_catalogue(settings, basis(epsilon, items))
    assert isinstance(found, StrictCataloguePlan)
    return found


def histogram(
    epsilon: str = "2", delta: str = "1/100", items: int = 1, rows: int = 8, largest_count: int = 1000
) -> StrictHistogramPlan:
    strict = {"rows": rows, "largest_count": largest_count}
    settings = HistogramSettings.model_validate({"kind": "histogram", "delta": delta, "strict": strict})
    found = plan_histogram(settings, basis(epsilon, items))
    assert isinstance(found, StrictHistogramPlan)
    return found


@dataclass
class Entropies:
    """Bits for every purpose, some of them chosen, and how many were asked for."""

    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)

    def __call__(self, context: bytes) -> BitSource:
        purpose = context.removesuffix(NOISE.name).decode()
        assert purpose not in self.asked, "two draws share a context"
        asked = self.asked[purpose] = []
        chosen, keyed = iter(self.chosen.get(purpose, ())), KeyedBits(b"strict", context)

        class Source:
            def bits(self, n: int) -> int:
                asked.append(n)
                value = next(chosen, None)
                return keyed.bits(n) if value is None else value

        return Source()


Plan = StrictCataloguePlan | StrictHistogramPlan


def sealed(plan: Plan, counts: Mapping[str, int], entropies: Entropies) -> SealedTable:
    return plan.seal(counts, Sealing(NOISE, entropies, {}))


def tiny(n: int = 2) -> RawBits:
    """Noise whose draws can be enumerated: 5 bits for n = 2, 4 for n = 1."""
    return RawBits(ExactGeometric(n, Base(1, 2)), 2 * n + 1 + (n == 1))


def with_query(plan: Any, query: Any, **changes: Any) -> Any:
    return replace(plan, table=query, **changes)


Counts = tuple[int, ...]
KEYS = "abc"


def named(counts: Counts) -> dict[str, int]:
    return {key: count for key, count in zip(KEYS, counts, strict=False) if count}


# -- the law of a catalogue -------------------------------------------------------------------------------------------


def test_a_strict_catalogue_noises_every_key_of_the_list_alone() -> None:
    query = tiny()
    plan = with_query(catalogue(KEYS[:2]), query)
    for counts in ((0, 0), (1, 0), (2, 1), (0, 7)):
        found = Counter(
            tuple(sealed(plan, named(counts) | {"not listed": 9}, Entropies({"noise": values})).values)
            for values in product(range(query.draws), repeat=2)
        )
        one, other = (law(query, min(count, 2)) for count in counts)
        assert {output: Fraction(times, query.draws**2) for output, times in found.items()} == {
            (x, y): p * q for x, p in enumerate(one) for y, q in enumerate(other)
        }


def test_a_strict_catalogue_costs_its_epsilon_and_no_less() -> None:
    for epsilon, items in (("2", 1), ("3", 2), ("1/2", 5)):
        plan = catalogue(["a", "b", "c"], epsilon, items)
        assert plan.sensitivity == min(items, 3)
        price = plan.table.ratio**plan.sensitivity
        least, most = (Fraction(end, 1 << 200) for end in exp_neg(Fraction(epsilon), 200))
        assert least * price <= 1 < most * price * (1 + Fraction(1, 10**9))


# -- the law of a histogram -------------------------------------------------------------------------------------------

Shown = dict[Counts, Fraction]
"""The law of a release: what it shows of every key, 0 for nothing."""


def kept(counts: Counts, rows: int, order: Sequence[int] = range(len(KEYS))) -> Counts:
    """The counts of the first rows, in an order of the keys."""
    left, found = rows, [0] * len(counts)
    for key in order:
        found[key] = min(counts[key], left)
        left -= found[key]
    return tuple(found)


def shown(query: CountingQuery, counts: Counts, least: int) -> Shown:
    """The law of a release of kept counts: a key without one is never shown, others from the minimum count on."""
    found: Shown = {(): Fraction(1)}
    for count in counts:
        of = law(query, min(count, query.bound))
        cells = {z: of[z] for z in range(least, query.bound + 1)} if count else {}
        cells[0] = 1 - sum(cells.values(), Fraction(0))
        found = {(*before, z): p * q for before, p in found.items() for z, q in cells.items()}
    return found


@pytest.mark.parametrize("order", ordinarily(1, [5, 3]))
def test_a_strict_histogram_shows_what_reaches_the_minimum_of_the_rows_that_it_keeps(order: int) -> None:
    """Every draw of two rows, for tables with fewer rows, as many, more, and a count above the largest."""
    query = tiny()
    plan = with_query(histogram(rows=2), query, minimum_counts=(2,))
    salt = order.to_bytes(ORDER_BITS // 8)
    places = sorted(range(3), key=lambda at: list(truncated(dict.fromkeys(numbers, 1), 3, salt)).index(numbers[at]))
    for counts in ((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1), (2, 0, 1), (0, 9, 1)):
        found: Counter[Counts] = Counter()
        for values in product(range(query.draws), repeat=2):
            table = sealed(plan, named(counts), Entropies({"noise": values, "order": [order]}))
            released = dict(zip(table.items, table.values, strict=True))
            assert released.keys() <= named(counts).keys()
            found[tuple(released.get(key, 0) for key in KEYS)] += 1
        clamped = tuple(min(count, 2) for count in counts)
        expected = shown(query, kept(clamped, 2, places), 2)
        assert {output: Fraction(times, query.draws**2) for output, times in found.items()} == {
            output: p for output, p in expected.items() if p
        }


numbers = [1 + 1 + ord(key) for key in KEYS]
"""The keys of one byte in shortlex order; the first of all is the empty one."""


def users(items: int, most: int) -> Iterator[tuple[Counts, Counts]]:
    """Windows without a user and with one who has some of the keys, each once."""
    for counts in product(range(most + 1), repeat=len(KEYS)):
        for added in combinations(range(len(KEYS)), items):
            yield counts, tuple(count + (key in added) for key, count in enumerate(counts))


def worst(query: CountingQuery, least: int, items: int, power: int) -> Fraction:
    """The largest delta of a user of so many items, for every cap, at an epsilon of ln r^power."""
    return max(
        excess(shown(query, kept(one, rows), least), shown(query, kept(other, rows), least), query.ratio**power)
        for pair in users(items, 2)
        for one, other in (pair, pair[::-1])
        for rows in range(1, 5)
    )


def lone(query: CountingQuery, least: int) -> Fraction:
    """p: the chance that a key with one contribution is shown."""
    return 1 - Fraction(query.cdf(1, least - 1), query.draws)


QUERIES = [ExactGeometric(2, Base(1, 2)), ExactGeometric(3, Base(3, 4)), ExactGeometric(2, Base(1, 5))]


def price(query: CountingQuery, least: int, items: int) -> Fraction:
    """The delta of a user in closed form: all keys of their own are new, or one key that they push out goes."""
    return max(1 - (1 - lone(query, least)) ** items, sum(law(query, items)[least:], Fraction(0)))


def stated(query: CountingQuery, least: int, items: int) -> Fraction:
    """The delta that a minimum count is made for, in powers of r alone."""
    return lone(query, least) * max(Fraction(items), query.ratio ** (items - 1))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.base))
@pytest.mark.parametrize("items", ordinarily(1, [2, 1]))
def test_the_delta_of_a_user_is_what_the_minimum_count_was_made_for(query: ExactGeometric, items: int) -> None:
    """With the cap binding, and not; whether p is small or not. It is attained, so a smaller minimum is too small."""
    for least in range(1, query.bound + 1):
        assert worst(query, least, items, 2 * items) == price(query, least, items) <= stated(query, least, items)


@pytest.mark.parametrize("items", ordinarily(1, [1, 2]))
def test_counts_that_reach_b_instead_of_exceeding_it_cost_more(items: int) -> None:
    for query in QUERIES:
        for b in range(1, query.bound):
            assert worst(query, b, items, 2 * items) > price(query, b + 1, items)


@pytest.mark.parametrize(
    ("items", "without", "rows"),
    [(1, (7, 9, 0), 16), (2, (7, 7, 10), 24)],
)
def test_a_user_who_pushes_out_others_costs_more_than_the_counts_that_are_theirs(
    items: int, without: Counts, rows: int
) -> None:
    """The mutant with a sensitivity of L: every count of the user, and of those that they push out, is likely shown."""
    query, least = ExactGeometric(12, Base(1, 2)), 8
    added = tuple(count + (key < items) for key, count in enumerate(without))
    one, other = (shown(query, kept(counts, rows), least) for counts in (without, added))
    assert kept(added, rows) != added
    assert excess(one, other, query.ratio**items) > 5 * stated(query, least, items)
    assert excess(one, other, query.ratio ** (2 * items)) <= stated(query, least, items)


def test_without_a_binding_cap_a_user_costs_the_half() -> None:
    """So the check above is about the cap: rows for all."""
    query = QUERIES[0]
    for items in (1, 2):
        for pair in users(items, 2):
            for one, other in (pair, pair[::-1]):
                p = excess(shown(query, one, 2), shown(query, other, 2), query.ratio**items)
                assert p <= items * lone(query, 2)


PARAMETERS = [("2", "1/100", 1), ("2", "1e-6", 5), ("12", "1e-9", 3), ("1/2", "1e-6", 1), ("3", "1/2", 2)]


@pytest.mark.parametrize(("epsilon", "delta", "items"), PARAMETERS)
def test_the_minimum_count_is_the_least_that_the_price_allows(epsilon: str, delta: str, items: int) -> None:
    plan = histogram(epsilon, delta, items)
    table, (least,) = plan.table, plan.minimum_counts
    assert plan.sensitivity == 2 * items
    below = exp_neg(Fraction(epsilon), 200)[0]
    assert table.ratio**plan.sensitivity * below <= 1 << 200
    assert stated(table, least, items) <= Fraction(delta)
    assert least == 1 or stated(table, least - 1, items) > Fraction(delta)
    uniform = Fraction(1 << 20, 1 << table.g)
    assert uniform * table.ratio * max(Fraction(items), table.ratio ** (items - 1)) <= Fraction(delta)


@pytest.mark.parametrize(("epsilon", "delta", "items"), [("2", "1e-6", 5), ("20", "1e-6", 5)])
def test_the_minimum_count_is_below_that_of_group_privacy(epsilon: str, delta: str, items: int) -> None:
    plan = histogram(epsilon, delta, items)
    (least,), table = plan.minimum_counts, plan.table
    by_group = sum(table.ratio ** (2 * power) for power in range(items))
    assert lone(table, least + 1) * by_group > Fraction(delta), "not even the next one would do"


def test_the_uniform_part_follows_the_smallest_delta_and_the_largest_epsilon() -> None:
    """Where noise is small, uniform outputs would be most of what is shown of rare keys."""
    plan = histogram("80", "1/2")
    assert plan.minimum_counts == (2,)
    assert lone(plan.table, 2) > Fraction(1000, 1 << plan.table.g)


# -- how a shown count is read ----------------------------------------------------------------------------------------


def covered(plan: StrictHistogramPlan, count: int, sure: int) -> Fraction:
    """The chance, given that a key of a true count is shown, that the interval of its noisy count holds that."""
    table, t, b = plan.table, plan.levels[0].noise_interval, plan.minimum_counts[0] - 1
    most = max(count + t, sure - 1)
    held = table.cdf(count, most) - table.cdf(count, max(b, count - t - 1))
    return Fraction(held, table.draws - table.cdf(count, b))


@pytest.mark.parametrize(("epsilon", "delta", "items"), [*PARAMETERS, ("80", "1/2", 1), ("3", "9/10", 2)])
def test_every_true_count_lies_in_the_interval_of_a_shown_key(epsilon: str, delta: str, items: int) -> None:
    plan = histogram(epsilon, delta, items)
    sure, t = plan.two_sided_from[0], plan.levels[0].noise_interval
    assert all(covered(plan, count, sure) >= ENOUGH for count in range(1, plan.table.bound + 1))
    if sure > t + 2:
        assert covered(plan, 1, sure - 1) < ENOUGH, "no smaller one would do"


@pytest.mark.parametrize("delta", ["1/100", "1/3"])
def test_an_interval_holds_where_the_largest_count_is_the_least_that_is_not_refused(delta: str) -> None:
    largest = 1
    while not (plan := planned(delta, largest)):
        largest *= 2
    assert largest > 4, "some were refused"
    assert all(covered(plan, count, plan.two_sided_from[0]) >= ENOUGH for count in range(1, plan.table.bound + 1))


def planned(delta: str, largest_count: int) -> StrictHistogramPlan | None:
    try:
        return histogram("2", delta, 2, largest_count=largest_count)
    except ConfigError:
        return None


def test_the_interval_of_a_record_is_the_one_computed_here() -> None:
    desk = Desk(ONE_LEVEL["histogram strict"].plan())
    desk.give(VIEW, 0, {"home": 400})
    plan, record = desk.plan.views[VIEW].kind, desk.record(VIEW, "public", 0)
    assert isinstance(plan, StrictHistogramPlan)
    assert isinstance(record, HistogramRelease)
    assert (record.minimum_count, record.two_sided_from) == (plan.minimum_counts[0], plan.two_sided_from[0])
    for count in (1, 5, 30):
        of = law(plan.table, count)
        held = Fraction(0)
        for noisy in range(record.minimum_count, plan.table.bound + 1):
            least, most = record.interval(ItemCount(item="home", count=noisy))
            held += of[noisy] if least <= count <= most else 0
        assert held / sum(of[record.minimum_count :]) == covered(plan, count, record.two_sided_from)


# -- bits -------------------------------------------------------------------------------------------------------------

WINDOWS: Sequence[Mapping[str, int]] = (
    {},
    {"home": 1},
    {"home": 10**7, "cart": 3},
    {f"page {n}": n % 5 for n in range(2000)},
    {"x" * 1024: 4, "é": 2},
)


def bits(plan: Plan, counts: Mapping[str, int]) -> dict[str, list[int]]:
    entropies = Entropies()
    sealed(plan, counts, entropies)
    return entropies.asked


def test_a_strict_window_takes_the_same_bits_whatever_its_counts_are() -> None:
    listed, found = catalogue(["home", "cart", "x"]), histogram(rows=5)
    for counts in WINDOWS:
        assert bits(listed, counts) == {"salt": [8 * SALT_BYTES], "noise": [3 * listed.table.bits]}
        assert bits(found, counts) == {
            "order": [ORDER_BITS],
            "noise": [5 * found.table.bits],
            "salt": [8 * SALT_BYTES],
        }


@dataclass(frozen=True, kw_only=True)
class Unpadded(StrictHistogramPlan):
    """The mutant that draws noise for the keys that there are."""

    def seal(self, counts: Mapping[str, int], sealing: Sealing) -> SealedTable:
        kept = truncated(dict(enumerate(counts.values())), self.rows, b"")
        basic_histogram(self.table, kept.values(), sealing.bits(b"noise"))
        return SealedTable(b"", [], [])


def test_a_histogram_without_padding_is_found_by_its_bits() -> None:
    mutant = Unpadded(**vars(histogram(rows=5)))
    assert len({str(bits(mutant, counts)) for counts in WINDOWS}) > 1


def test_no_window_keeps_more_rows_than_the_cap() -> None:
    plan = with_query(histogram(rows=7), GeometricTable(12, Base(1, 1 << 40), 64), minimum_counts=(1,))
    for counts in WINDOWS:
        table = sealed(plan, counts, Entropies())
        assert sum(table.values) == min(7, sum(counts.values())), "the noise of this table is 0"
    huge = {"a": 10**6, "b": 2}
    table = sealed(replace(plan, rows=10**5), huge, Entropies())
    assert dict(zip(table.items, table.values, strict=True)) == {"a": 4095, "b": 2}, "clamped before it is cut"


# -- words ------------------------------------------------------------------------------------------------------------


def test_the_explanations_say_what_strict_means() -> None:
    listed, found = catalogue(), histogram(items=3, rows=1234)
    random_bits = ORDER_BITS + 1234 * found.table.bits
    for plan, words in (
        (listed, (f"draws {listed.table.bits} random bits for each key", "do not add up the counts of many keys")),
        (found, (f"draws {random_bits:,} random bits", "keeps 1,234 contributions", "a count has twice the noise")),
    ):
        explained = plan.explain("")
        for part in (*words, "about the same time", "Later releases cannot be sharper"):
            assert part in explained.keys
        assert "Strict" not in explained.shows
    details = found.explain("").details
    assert (details["rows"], details["largest_count"], details["random_bits"]) == (1234, 1023, random_bits)
    assert details["minimum_counts"] == {"only": found.minimum_counts[0]}


def test_another_number_of_rows_is_another_view() -> None:
    text = ONE_LEVEL["histogram strict"].text()
    plans = [plan_of(text.replace("rows: 101", f"rows: {rows}")).views[VIEW] for rows in (101, 102)]
    plans.append(plan_of(text.replace("    strict: {rows: 101, largest_count: 5000}\n", "")).views[VIEW])
    assert len({view.fingerprint for view in plans}) == 3


# -- refusals ---------------------------------------------------------------------------------------------------------

TWO = ("three: [", 'three: [{level: coarse, epsilon: "1"}, ')
PANES = ("{size: 1s", "{size: 2s, step: 1s, pane: 1s")
STRICT = "    strict: {largest_count: 5000}\n"
ROWS = "    strict: {rows: 101, largest_count: 5000}\n"


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("catalogue strict", [TWO], "views.asked.ladder: must have one level, not 2"),
        ("histogram strict", [TWO], "views.asked.ladder: must have one level, not 2"),
        (
            "catalogue strict",
            [PANES],
            "views.asked.window.pane: windows of a catalogue are not made of panes: strict counts are never below 0",
        ),
        ("histogram strict", [PANES], "views.asked.window.pane: windows of a histogram are not made of panes: which"),
        (
            "catalogue strict",
            [("kind: catalogue", "kind: running"), ("{size: 1s", "{size: 2s, pane: 1s")],
            "views.asked.strict: unknown key",
        ),
        ("histogram strict", [(ROWS, "    strict: {}\n")], "views.asked.strict.rows: "),
        ("histogram strict", [(ROWS, "    strict:\n")], "views.asked.strict.rows: "),
        ("histogram strict", [("rows: 101", "rows: 0")], "views.asked.strict.rows: "),
        ("catalogue strict", [("largest_count: 5000", "largest_count: 0")], "views.asked.strict.largest_count: "),
        ("catalogue strict", [("largest_count: 5000", "rows: 5")], "views.asked.strict.rows: unknown key"),
        (
            "histogram strict",
            [("largest_count: 5000", "largest_count: 4")],
            "views.asked.strict.largest_count: no count up to 7 stands out of the noise",
        ),
        (
            "histogram strict",
            [('epsilon: "2"', 'epsilon: "1/600"')],
            "views.asked.ladder: level 'only' has epsilon 1/600 for the 2 counts that one user moves",
        ),
    ],
)
def test_what_cannot_be_strict_is_a_fault(name: str, changes: list[tuple[str, str]], fault: str) -> None:
    text = ONE_LEVEL[name].text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(ConfigError) as caught:
        build_plan(read_config(text, {})[0].raw)
    assert [str(one)[: len(fault)] for one in caught.value.faults] == [fault]


def test_strict_alone_means_the_defaults_and_no_section_none_at_all() -> None:
    text = ONE_LEVEL["catalogue strict"].text()
    plans = [plan_of(text.replace(STRICT, written)).views[VIEW].kind for written in ("    strict:\n", "")]
    assert [isinstance(plan, StrictCataloguePlan) for plan in plans] == [True, False]
    assert plans[0].explain("").details["largest_count"] == (1 << 20) - 1


def test_windows_that_overlap_may_be_strict_where_each_is_noised_by_itself() -> None:
    for name in ("catalogue strict", "histogram strict"):
        plan_of(ONE_LEVEL[name].text().replace("{size: 1s", "{size: 2s, step: 1s"))
