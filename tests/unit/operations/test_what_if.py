"""Counts of `stream-dp plan` are those of a plain loop, and its expectations those of enumeration."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, reduce
from itertools import permutations
from math import exp
from pathlib import Path

import numpy as np
import pytest

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError, StateError
from stream_dp.operations import shown_keys
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_counts import EventColumns, count_windows
from stream_dp.operations.past_events import open_past_events
from stream_dp.operations.shown_keys import chances_of_top_k, shown_at_least
from stream_dp.operations.what_if import Point, Subject, best, changed_file, check_kind, points, what_if
from stream_dp.testing import Event, SourceWriter, plan_from
from tests.support.oracle import count_script
from tests.support.visits import configuration

MINUTE = 60_000
LISTS = ("item: page", "items: page")
HOPS = ("size: 1m", "size: 4m, step: 1m")
MONTHS = ("size: 1m", "size: 1mo, zone: Europe/Berlin"), ("period: 366d", "period: 1y, zone: Europe/Berlin")
FEW = ("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 2")
FEW_HOPS = ("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 8")
SHIFTED = ("start: 2024-01-01T00:00:00Z", "start: 2024-01-01T00:02:00Z")
LISTED = ("kind: histogram", "kind: catalogue\n    catalogue: [/2, /3, /5, /9, /x]"), ('    delta: "1e-4"\n', "")


def plan_of(folder: Path, *changes: tuple[str, str]) -> Plan:
    return plan_from(configuration("a", *changes), folder)


def columns_of(plan: Plan, folder: Path, events: Sequence[Event], until_ms: int) -> tuple[EventColumns, int]:
    """The columns of events, read from a file of JSON lines, and the end of the history."""
    (view,) = plan.views.values()
    writer, file = SourceWriter(plan), folder / "events.jsonl"
    file.write_text("".join(json.dumps(writer.value(event)) + "\n" for event in events), encoding="utf-8")
    columns = EventColumns(view, [view.name])
    options = FeedOptions(until_ms=until_ms, unchecked_data=True)
    return columns, open_past_events(plan, file, options, None, columns.take).until_ms


def crowd(seed: int, start_ms: int, end_ms: int, *, more: int = 0) -> list[Event]:
    """Visits of 20 users at any time and in no order, popular pages more often."""
    chance = random.Random(seed)

    def page() -> str:
        return f"/{min(chance.randrange(12), chance.randrange(12))}"

    def event() -> Event:
        others = tuple(page() for _ in range(chance.randrange(more + 1)))
        return Event(f"u{chance.randrange(20)}", page(), chance.randrange(start_ms, end_ms), others)

    return [event() for _ in range(600)]


@pytest.mark.parametrize("bound", [1, 2, 5, 50])
@pytest.mark.parametrize(
    ("changes", "minutes"),
    [
        ((), 6),
        ((HOPS,), 9),
        ((LISTS,), 6),
        ((SHIFTED,), 6),
        (MONTHS, 200_000),
        ((FEW,), 9),
        ((HOPS, FEW_HOPS), 9),
        ((*LISTED, HOPS), 9),
        ((*LISTED, FEW), 9),
    ],
    ids=[
        *("tumbling", "hopping", "lists", "later start", "months", "few windows", "few windows that hop"),
        *("off a list, hopping", "off a list, few windows"),
    ],
)
def test_counts_are_those_of_a_plain_loop(
    tmp_path: Path, changes: Sequence[tuple[str, str]], minutes: int, bound: int
) -> None:
    if changes == MONTHS:
        changes = (*MONTHS, ("start: 2024-01-01T00:00:00Z, ", ""))
    plan = plan_of(tmp_path, *changes, ("items_per_user: 2", f"items_per_user: {bound}"))
    (view,) = plan.views.values()
    start = view.window.first_ms
    events = crowd(bound, 1704067200000, 1704067200000 + minutes * MINUTE, more=3 if LISTS in changes else 0)
    until = 1704067200000 + (minutes - 1) * MINUTE
    columns, _ = columns_of(plan, tmp_path, events, 1704067200000 + minutes * MINUTE)

    found = count_windows(columns, view, until)

    first = view.window.shape.start_of(min(event.time_ms for event in events)) if start is None else start
    expected = count_script(view, first, events)
    shape, items = view.window.shape, columns.items
    over = [at for at in shape.starts(first, until) if shape.end(at) + view.window.grace_ms <= until]
    assert found.windows == len(over) > 1
    starts = [
        at
        for tiling in shape.tilings
        for at in tiling.starts(tiling.first_from(first), shape.first_open(until - view.window.grace_ms))
    ]
    counts: dict[int, dict[str, int]] = {}
    for window, item, count in zip(found.window, found.item, found.bounded(view), strict=True):
        if count:
            counts.setdefault(starts[window], {})[items[item]] = int(count)
    assert counts == {at: expected.counts[at] for at in over if expected.counts.get(at)}
    unbounded = found.bounded(replace(view, items_per_user=10**6, windows_per_user=None))
    domain = view.kind.domain({})
    on_list = [domain is None or items[item] in domain for item in found.item]
    assert (np.where(on_list, found.users, 0) == unbounded).all()


def test_another_bound_gives_other_counts(tmp_path: Path) -> None:
    """The power of the test above."""
    plan = plan_of(tmp_path)
    (view,) = plan.views.values()
    start = view.window.first_ms or 0
    columns, until = columns_of(plan, tmp_path, crowd(1, start, start + 5 * MINUTE), start + 6 * MINUTE)
    found = count_windows(columns, view, until)

    two, three = (found.bounded(replace(view, items_per_user=bound)).sum() for bound in (2, 3))
    assert two < three < found.users.sum()
    assert found.bounded(replace(view, windows_per_user=1)).sum() < two


def test_windows_of_panes_are_refused(tmp_path: Path) -> None:
    listed = ("kind: histogram", "kind: catalogue\n    catalogue: [/1, /2]"), ('    delta: "1e-4"\n', "")
    plan = plan_of(tmp_path, *listed, ("size: 1m", "size: 4m, step: 2m, pane: 1m"))
    (view,) = plan.views.values()
    columns, until = columns_of(plan, tmp_path, [Event("u", "/1", view.window.first_ms or 0)], 1704067200000 + MINUTE)

    with pytest.raises(ConfigError, match="windows of panes cannot be planned"):
        count_windows(columns, view, until)


EXACT = Context(prec=600, Emax=10**6, Emin=-(10**6))


def enumerated(counts: Sequence[int], epsilon: float, bottom: float, k: int) -> list[float]:
    """The chance that each item is drawn, by every order of draws: each takes an item, or bottom, by its weight."""
    weights = [EXACT.exp(Decimal(epsilon) * count) for count in counts]
    rival, found = EXACT.exp(Decimal(epsilon) * Decimal(bottom)), [0.0] * len(counts)
    for length in range(1, min(k, len(counts)) + 1):
        for order in permutations(range(len(counts)), length):
            chance, left = Decimal(1), reduce(EXACT.add, weights, rival)
            for item in order:
                chance, left = (
                    EXACT.divide(EXACT.multiply(chance, weights[item]), left),
                    EXACT.subtract(left, weights[item]),
                )
            found[order[-1]] += float(chance)
    return found


CASES = [
    ([30, 25, 24, 24, 10, 3], 0.1, 20.5, 3),
    ([300, 290, 200, 100, 99, 98, 97], 0.5, 98.3, 4),
    ([900, 500, 400, 7, 6, 5], 1.0, 6.5, 2),
    ([5, 5, 5, 5, 5], 0.3, 5.0, 1),
    ([8, 7, 2], 0.4, 6.0, 3),
]


@pytest.mark.parametrize(("counts", "epsilon", "bottom", "k"), CASES)
def test_chances_of_a_top_k_are_those_of_every_order_of_draws(
    counts: list[int], epsilon: float, bottom: float, k: int
) -> None:
    found = chances_of_top_k(np.array(counts), epsilon, bottom, k)

    assert found == pytest.approx(enumerated(counts, epsilon, bottom, k), abs=1e-8)


@pytest.mark.parametrize(
    ("items", "k", "epsilon"),
    [(60, 10, 0.1), (150, 50, 0.1), (200, 100, 0.01), pytest.param(300, 100, 0.5, marks=pytest.mark.slow)],
)
def test_a_finer_integral_gives_the_same_chances(
    items: int, k: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = np.sort(np.array([random.Random(at).randrange(50, 120) for at in range(items)]))[::-1]
    found = chances_of_top_k(counts, epsilon, 55, k)
    monkeypatch.setattr(shown_keys, "_CROWDED_STEP", shown_keys._CROWDED_STEP / 2)
    monkeypatch.setattr(shown_keys, "_STEP", shown_keys._STEP / 2)

    assert found == pytest.approx(chances_of_top_k(counts, epsilon, 55, k), abs=1e-6)
    assert 0 < found.sum() <= k + 1e-6
    assert (np.diff(found) <= 1e-6).all()


MUTANTS: dict[str, Callable[[list[int], float, float, int], Sequence[float]]] = {
    "no rivals": lambda counts, epsilon, bottom, k: [1 / (1 + exp(-epsilon * (count - bottom))) for count in counts],
    "one draw more": lambda counts, epsilon, bottom, k: enumerated(counts, epsilon, bottom, k + 1),
    "no bottom": lambda counts, epsilon, bottom, k: enumerated(counts, epsilon, -1e3, k),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_law_of_draws_is_found(mutant: str) -> None:
    counts, epsilon, bottom, k = CASES[0]

    wrong = MUTANTS[mutant](counts, epsilon, bottom, k)

    assert chances_of_top_k(np.array(counts), epsilon, bottom, k) != pytest.approx(wrong, abs=1e-3)


@cache
def mass(ratio: Fraction, noise: int) -> Fraction:
    return (1 - ratio) / (1 + ratio) * ratio ** abs(noise)


REACH = 150


def test_the_chance_of_being_shown_is_that_of_the_noise() -> None:
    ratio = Fraction(2, 3)
    counts = [1, 5, 9, 10, 11, 30]

    found = shown_at_least(np.array(counts), lambda t: float(ratio) ** t / (1 + float(ratio)), 10)

    tail = [sum(mass(ratio, noise) for noise in range(10 - count, REACH)) for count in counts]
    assert found == pytest.approx([float(one) for one in tail], rel=1e-9)
    off_by_one = [float(one - mass(ratio, 10 - count)) for one, count in zip(tail, counts, strict=True)]
    assert found != pytest.approx(off_by_one, rel=1e-3)


SHOP = """\
# A comment that stays.
name: shop
broker: memory://
data_dir: state
key_file: shop.key
sources: {orders: {topic: orders, partitions: 2, user: customer, time: {field: at}}}
ledgers: {customers: {population: customers, epsilon: 4, delta: "1e-3", period: 4w, start: 2024-01-01T00:00:00Z}}
ladders:
  steps:
    - {level: coarse, epsilon: "1/8"}  # of everybody
    - {level: fine, epsilon: 1}
audiences: {public: coarse, staff: fine}
views:
  products:  # the only view
    source: orders
    item: product
    KIND
    items_per_user: 2
    ledger: customers
    ladder: steps
    window: {size: 1w, start: 2024-01-01T00:00:00Z, grace: 0s, clock: event}
"""
HISTOGRAM = 'kind: histogram\n    delta: "1e-4"'
TOPK = 'kind: topk\n    k: 2\n    kbar: 4\n    selection: {epsilon: "1/8", delta: "1e-4"}'
CATALOGUE = "kind: catalogue\n    catalogue: [tea, mate, water]"
COUNTS = {"tea": 90, "coffee": 60, "cocoa": 30, "mate": 12, "juice": 5, "milk": 1}
WEEK_MS = 7 * 86_400_000


def shop(folder: Path, kind: str, *changes: tuple[str, str]) -> tuple[Path, Subject, EventColumns]:
    """A shop with a week in which users had one product each, and five more bought all."""
    file = folder / "shop.yaml"
    text = SHOP.replace("KIND", kind)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    plan = load_plan(file, {})
    start = 1704067200000
    events = [
        Event(f"{name}{number}", name, start + number) for name, users in COUNTS.items() for number in range(users)
    ]
    events += [Event(f"all{number}", name, start + 1000) for number in range(5) for name in reversed(COUNTS)]
    columns, until = columns_of(plan, folder, events, start + WEEK_MS)
    return file, Subject(plan, "products", "staff", until), columns


def quantile(chances: dict[float, Fraction], share: Fraction) -> float:
    total, reached = sum(chances.values()), Fraction(0)
    for error in sorted(chances):
        reached += chances[error]
        if reached >= share * total:
            return error
    raise AssertionError


def expected_errors(rows: Sequence[tuple[int, int, float]], ratio: Fraction, least: int) -> list[tuple[float, float]]:
    """Quantiles of the errors in all, of the noise and of the bias, of keys with (users, count, chance to be drawn)."""
    found: list[dict[float, Fraction]] = [{}, {}, {}]
    for users, count, drawn in rows:
        for noise in range(max(least - count, -REACH), REACH):
            chance = mass(ratio, noise) * Fraction(drawn)
            errors = (
                Fraction(abs(count + noise - users), users),
                Fraction(abs(noise), users),
                Fraction(users - count, users),
            )
            for one, error in zip(found, errors, strict=True):
                one[float(error)] = one.get(float(error), Fraction(0)) + chance
    return [(quantile(one, Fraction(1, 2)), quantile(one, Fraction(19, 20))) for one in found]


USERS = {name: users + 5 for name, users in COUNTS.items()}
BOUNDED = {name: users + 5 * (name in ("milk", "juice")) for name, users in COUNTS.items()}


def of_noise(subject: Subject) -> Fraction:
    return Fraction(subject.plan.views["products"].levels[1].threshold, 1 << 64)


def assert_errors(point: Point, rows: Sequence[tuple[int, int, float]], ratio: Fraction, least: int) -> None:
    found = [point.error, point.noise, point.bias]
    for one, other in zip(found, expected_errors(rows, ratio, least), strict=True):
        assert one == pytest.approx(other, abs=2e-4)


def test_a_histogram_is_what_enumeration_says(tmp_path: Path) -> None:
    _, subject, columns = shop(tmp_path, HISTOGRAM)

    (point,) = what_if(subject, columns, points({}))

    least, ratio = subject.plan.views["products"].kind.least_shown(1), of_noise(subject)
    assert least is not None
    chance = {
        name: float(sum(mass(ratio, noise) for noise in range(max(least - count, -REACH), REACH)))
        for name, count in BOUNDED.items()
    }
    assert (point.windows, point.k, point.shown_from, point.false_keys) == (1, 10, least, 0)
    assert point.true_keys == pytest.approx(sum(chance.values()))
    assert point.recall == pytest.approx(sum(chance.values()) / 6)
    useful = [
        mass(ratio, noise)
        for name, count in BOUNDED.items()
        for noise in range(max(least - count, -REACH), REACH)
        if 2 * abs(count + noise - USERS[name]) <= USERS[name]
    ]
    assert point.useful == pytest.approx(float(sum(useful)))
    assert_errors(point, [(USERS[name], BOUNDED[name], 1) for name in COUNTS], ratio, least)
    assert point.lasts


def test_a_catalogue_is_what_enumeration_says(tmp_path: Path) -> None:
    _, subject, columns = shop(tmp_path, CATALOGUE)

    (point,) = what_if(subject, columns, points({}))

    assert (point.true_keys, point.false_keys, point.shown_from) == (2, 1, None)
    assert point.recall == pytest.approx(2 / 6)
    # Those who have everything come to both keys of the list, however late: no key off it is in the way.
    assert_errors(point, [(USERS[name], USERS[name], 1) for name in ("tea", "mate")], of_noise(subject), -REACH)


def test_a_top_k_is_what_enumeration_says(tmp_path: Path) -> None:
    _, subject, columns = shop(tmp_path, TOPK)

    (point,) = what_if(subject, columns, points({}))

    names = ["tea", "coffee", "cocoa", "mate"]
    margin = subject.plan.views["products"].kind.selection.margin  # type: ignore[attr-defined]
    chances = enumerated([BOUNDED[name] for name in names], 1 / 8, BOUNDED["juice"] + float(margin), 2)
    assert point.shown_from == -(-(BOUNDED["juice"] + margin) // 1)
    assert point.true_keys == pytest.approx(chances[0] + chances[1], abs=1e-6)
    assert point.false_keys == pytest.approx(chances[2] + chances[3], abs=1e-6)
    assert point.recall == pytest.approx((chances[0] + chances[1]) / 2, abs=1e-6)
    rows = [(USERS[name], BOUNDED[name], chance) for name, chance in zip(names, chances, strict=True)]
    assert_errors(point, rows, of_noise(subject), -REACH)


def test_a_grid_has_plans_of_the_product_and_reasons(tmp_path: Path) -> None:
    _, subject, columns = shop(tmp_path, HISTOGRAM)
    grid = points({"epsilon": ["1/16", "1", "4", "8"], "window": ["1d", "1w"], "items_per_user": ["1", "2"]})

    found = {tuple(one.settings.values()): one for one in what_if(subject, columns, grid)}

    assert len(found) == 16
    assert "must rise" in found["1/16", "1d", "1"].reason or "above" in found["1/16", "1d", "1"].reason
    assert "affords no window" in found["8", "1w", "2"].reason
    lasting = {key: one for key, one in found.items() if not one.reason}
    assert {key[:2]: one.lasts_ms for key, one in lasting.items()} == {
        ("1", "1d"): WEEK_MS * 4 // 7,
        ("1", "1w"): 4 * WEEK_MS,
        ("4", "1d"): WEEK_MS // 7,
        ("4", "1w"): WEEK_MS,
    }
    chosen = best([*found.values()], "true-keys", 0.5)
    assert chosen is not None
    assert chosen.settings == {"epsilon": "1", "window": "1w", "items_per_user": "1"}
    assert best([*found.values()], "true-keys", 0) is None
    useful = best([*found.values()], "useful", 0)
    assert useful is not None
    assert useful.useful == max(one.useful or 0 for one in found.values() if one.lasts)
    least = best([*found.values()], "error", 0)
    assert least is not None
    assert least.lasts
    with pytest.raises(ConfigError, match=r"the grid has 1,001 points; at most 1,000 are computed"):
        points({"k": [str(one) for one in range(1001)]})


@pytest.mark.parametrize("kind", [HISTOGRAM, TOPK, CATALOGUE])
def test_a_history_without_a_whole_window_has_a_reason(tmp_path: Path, kind: str) -> None:
    _, subject, columns = shop(tmp_path, kind)

    (point,) = what_if(subject, columns, points({"window": ["4w"]}))

    assert "no window of view products is over at the end of the history" in point.reason
    assert best([point], "true-keys", 1) is None


def test_the_written_file_has_the_settings_and_all_comments(tmp_path: Path) -> None:
    file, subject, _ = shop(tmp_path, TOPK)
    settings = {
        "epsilon": "1/2",
        "window": "2w",
        "items_per_user": "3",
        "k": "1",
        "retention": "60d",
        "window.idle": "3d",
    }
    text = file.read_text(encoding="utf-8")

    changed = changed_file(text, subject, settings)

    gone, come = (set(one.splitlines()) - set(other.splitlines()) for one, other in ((text, changed), (changed, text)))
    assert come == {
        '    - {level: fine, epsilon: "1/2"}',
        '    retention: "60d"',
        "    k: 1",
        "    items_per_user: 3",
        '    window: {idle: "3d", size: "2w", start: 2024-01-01T00:00:00Z, grace: 0s, clock: event}',
    }
    assert len(gone) == len(come) - 1
    file.write_text(changed, encoding="utf-8")
    view = load_plan(file, {}).views["products"]
    assert (view.items_per_user, view.levels[1].epsilon) == (3, Fraction(1, 2))


def test_an_alias_is_not_changed_in_place(tmp_path: Path) -> None:
    two = ('    - {level: coarse, epsilon: "1/8"}', '    - {level: coarse, epsilon: &small "1/8"}')
    file, subject, _ = shop(tmp_path, TOPK, two, ('selection: {epsilon: "1/8"', "selection: {epsilon: *small"))

    with pytest.raises(StateError, match="change it by hand"):
        changed_file(file.read_text(encoding="utf-8"), subject, {"selection.epsilon": "1/4"})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (HISTOGRAM + "\n    strict: {rows: 100}", "kind histogram with these settings cannot be planned"),
        ("kind: catalogue\n    catalogue: {topic: products}", "kind catalogue with these settings cannot be planned"),
        (TOPK.replace("{epsilon", "{mechanism: strict, epsilon"), "kind topk with these settings cannot be planned"),
        (
            "kind: gap\n    catalogue: [tea, mate, water]\n    k: 1\n    selection: {epsilon: 1}",
            "kind gap with these settings cannot be planned.",
        ),
    ],
)
def test_other_kinds_are_refused(tmp_path: Path, kind: str, message: str) -> None:
    one = ('    - {level: coarse, epsilon: "1/8"}  # of everybody\n', ""), ("public: coarse, ", "")
    text = SHOP.replace("KIND", kind)
    for old, new in one:
        text = text.replace(old, new)
    (tmp_path / "shop.yaml").write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=message):
        check_kind((views := load_plan(tmp_path / "shop.yaml", {}).views)["products"], views)
