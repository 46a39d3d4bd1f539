"""Figures of a view whose list is made of releases are those of enumeration, and those that a replay shows."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path

import pytest

from stream_dp.config.plan import Plan
from stream_dp.config.planner import load_plan
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.needed_epsilon import needed_epsilon
from stream_dp.operations.past_counts import EventColumns
from stream_dp.operations.past_events import PastEvents, open_past_events
from stream_dp.operations.replay import replay
from stream_dp.operations.what_if import Point, Subject, changed_file, points, what_if
from stream_dp.records.codec import parse
from stream_dp.records.models import Release
from stream_dp.testing import Event
from tests.support.oracle import count_script

LIBRARY = """\
# A comment that stays.
name: library
broker: memory://
data_dir: state
key_file: library.key
release: {slot: 1s, offset: 0s}
sources: {loans: {topic: loans, partitions: 2, user: reader, time: {field: at}}}
ledgers: {readers: {population: readers, epsilon: 40, delta: "1e-3", period: 20w, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: coarse, share: "1/2"}, {level: fine, share: "1"}]}
audiences: {public: coarse, staff: fine}
views:
  found:  # rarely
    {source: loans, item: book, kind: histogram, items_per_user: 2, delta: "5e-5", ledger: readers, ladder: steps,
    share: 1/2, window: {size: 2w, start: 2024-01-01T00:00:00Z, clock: event}, retention: 20w}
  counted:
    {source: loans, item: book, kind: catalogue, catalogue: {from: found, audience: public, keep: 2}, share: 1/2,
    items_per_user: 3, ledger: readers, ladder: steps, retention: 20w,
    window: {size: 1w, start: 2024-01-01T00:00:00Z, grace: 1d, clock: event}}
"""
START_MS, DAY_MS = 1_704_067_200_000, 86_400_000
WEEK_MS, WEEKS = 7 * DAY_MS, 10


def loans(seed: int) -> list[Event]:
    """Ten weeks of loans of 12 books by 60 readers in the order of time; popular books more often, some not always."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(WEEKS * WEEK_MS) for _ in range(1500))

    def book(time_ms: int) -> str:
        number = min(chance.randrange(12), chance.randrange(12))
        return f"new {number}" if number % 3 == 0 and time_ms > 5 * WEEK_MS else f"old {number}"

    return [Event(f"r{chance.randrange(60)}", book(time), START_MS + time) for time in times]


def week(event: Event) -> int:
    return (event.time_ms - START_MS) // WEEK_MS


def read(folder: Path, events: Sequence[Event], *changes: tuple[str, str]) -> tuple[Plan, EventColumns, PastEvents]:
    text = LIBRARY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "library.yaml").write_text(text, encoding="utf-8")
    rows = [{"reader": event.user, "book": event.item, "at": event.time_ms} for event in events]
    (folder / "loans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    plan = load_plan(folder / "library.yaml", {})
    columns = EventColumns(plan.views["counted"], [*plan.views])
    options = FeedOptions(until_ms=START_MS + WEEKS * WEEK_MS + DAY_MS)
    return plan, columns, open_past_events(plan, folder / "loans.jsonl", options, None, columns.take)


def figures(found: tuple[Plan, EventColumns, PastEvents], **settings: str) -> Point:
    plan, columns, history = found
    (point,) = what_if(Subject(plan, "counted", "staff", history.until_ms), columns, [settings])
    return point


def listed(plan: Plan, events: Sequence[Event], keep: int) -> Iterator[dict[str, float]]:
    """Of each window, the chance of every book that it is on the list: by a plain loop."""
    finds = plan.views["found"]
    level, least = finds.levels[0], finds.kind.least_shown(0)
    assert least is not None
    ratio = Fraction(level.threshold, 1 << 64)
    rare = count_script(finds, START_MS, events).counts

    def shown(count: int) -> Fraction:
        if count >= least:
            return 1 - ratio ** (count - least + 1) / (1 + ratio)
        return ratio ** (least - count) / (1 + ratio) if count else Fraction(0)

    for start in range(START_MS, START_MS + WEEKS * WEEK_MS, WEEK_MS):
        closes = start + WEEK_MS + DAY_MS
        windows = [at for at in range(START_MS, closes, 2 * WEEK_MS) if at + 2 * WEEK_MS < closes][-keep:]
        books = {book for at in windows for book in rare.get(at, {})}
        missed = {book: prod(1 - shown(rare.get(at, {}).get(book, 0)) for at in windows) for book in books}
        yield {book: float(1 - chance) for book, chance in missed.items()}


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_chance_of_a_key_is_that_of_the_newest_windows_that_were_released_before(tmp_path: Path, keep: int) -> None:
    events = loans(keep)
    found = read(tmp_path, events, ("keep: 2", f"keep: {keep}"))

    point = figures(found)

    order = list(dict.fromkeys(event.item for event in events))
    true = false = 0.0
    recalls = []
    for at, chances in enumerate(listed(found[0], events, keep)):
        had = Counter(book for _, book in {(one.user, one.item) for one in events if week(one) == at})
        true += sum(chances.get(book, 0) for book in had)
        false += sum(chance for book, chance in chances.items() if book not in had)
        best = sorted(had, key=lambda book: (-had[book], order.index(book)))[:10]
        recalls.append(sum(chances.get(book, 0) for book in best) / len(best))
    assert point.windows == WEEKS
    assert 1 < point.true_keys * WEEKS == pytest.approx(true)  # type: ignore[operator]
    assert point.false_keys * WEEKS == pytest.approx(false)  # type: ignore[operator]
    assert 0.01 < point.recall == pytest.approx(sum(recalls) / WEEKS, rel=1e-6)  # type: ignore[operator]
    assert point.shown_from == found[0].views["found"].kind.least_shown(0)
    others = [figures(read(tmp_path, events, ("keep: 2", f"keep: {other}"))) for other in (1, 2, 5) if other != keep]
    assert point.true_keys not in [pytest.approx(other.true_keys, rel=1e-3) for other in others]


SHORT = ("clock: event}, retention: 20w}", "clock: event}, retention: 2w}"), ("keep: 2", "keep: 5")


@pytest.mark.parametrize(
    ("changes", "empty", "gone"),
    [((), 1, 6), ((("grace: 1d", "grace: 5m"),), 2, 7), (SHORT, 1, 6)],
    ids=["a day later", "closed together", "deleted before"],
)
async def test_the_figures_are_those_of_the_releases_of_a_replay(
    tmp_path: Path, changes: Sequence[tuple[str, str]], empty: int, gone: int
) -> None:
    """Nearly without noise: most books have 50 readers a week, one has a single one, and some come and go."""
    books = {"old": range(WEEKS), "new": range(5, WEEKS), "gone": range(3)}
    events = [
        Event(f"r{reader}", book, START_MS + at * WEEK_MS + reader)
        for at in range(WEEKS)
        for book, weeks in books.items()
        if at in weeks
        for reader in range(50)
    ]
    events += [Event(f"r{at}", "rare", START_MS + at * WEEK_MS + 100) for at in range(WEEKS)]
    plan, _, history = found = read(
        tmp_path,
        sorted(events, key=lambda one: one.time_ms),
        ("epsilon: 40", "epsilon: 400"),
        *changes,
    )

    point, (shown,) = (
        figures(found),
        [
            [record for record in map(parse, one.records) if isinstance(record, Release)]
            for one in (await replay(plan, history)).audiences
            if (one.view, one.audience) == ("counted", "staff")
        ],
    )

    had = [{book for book, weeks in {**books, "rare": range(WEEKS)}.items() if at in weeks} for at in range(WEEKS)]
    keys = [{entry.item for entry in one.items} for one in sorted(shown, key=lambda one: one.window.start_ms)]
    assert keys[: empty + 2] == [set()] * empty + [{"gone", "old"}] * 2, "the first window of two weeks is over"
    assert [at for at, one in enumerate(keys) if "gone" in one] == [*range(empty, gone + 1)]
    assert "new" in keys[-1]
    assert point.true_keys == pytest.approx(sum(len(one & had[at]) for at, one in enumerate(keys)) / WEEKS, abs=0.01)
    assert point.false_keys == pytest.approx(sum(len(one - had[at]) for at, one in enumerate(keys)) / WEEKS, abs=0.01)


def test_a_top_k_finds_keys_too(tmp_path: Path) -> None:
    """Nearly without noise: of two books the one with more readers is always found, from the second week on."""
    rows = [(reader, "old" if reader % 3 else "less") for reader in range(60)]
    events = [Event(f"r{one}", book, START_MS + at * WEEK_MS + one) for at in range(WEEKS) for one, book in rows]
    drawn = 'kind: topk, k: 1, kbar: 2, selection: {epsilon: 1, delta: "1e-5"}, items_per_user: 2'
    finds = ('kind: histogram, items_per_user: 2, delta: "5e-5"', drawn)

    point = figures(read(tmp_path, events, ("epsilon: 40", "epsilon: 400"), finds))

    assert point.true_keys == pytest.approx(0.9, abs=1e-3)
    assert point.false_keys == pytest.approx(0, abs=1e-3)
    assert point.recall == pytest.approx(0.45, abs=1e-3)


def test_a_split_moves_both_shares_and_the_delta_and_is_written(tmp_path: Path) -> None:
    found = read(tmp_path, loans(1))
    subject = Subject(found[0], "counted", "staff", found[2].until_ms)

    some = [*what_if(subject, found[1], points({"split": ["1/4", "1/2", "3/4"]}))]
    text = changed_file((tmp_path / "library.yaml").read_text(encoding="utf-8"), subject, {"split": "3/4"})

    assert [point.lasts for point in some] == [True] * 3
    froms = [point.shown_from or 0 for point in some]
    assert froms[0] > froms[1] > froms[2], "more for discovery finds keys of fewer users"
    noises = [point.noise[0] for point in some if point.noise is not None]
    assert noises[0] < noises[1] < noises[2], "and less for counting counts them worse"
    assert replace(some[1], settings={}) == figures(found), "the file has 1/2"
    (tmp_path / "library.yaml").write_text(text, encoding="utf-8")
    assert "# A comment that stays." in text
    views = load_plan(tmp_path / "library.yaml", {}).views
    assert [views[name].share for name in ("found", "counted")] == [Fraction(3, 4), Fraction(1, 4)]
    assert views["found"].keys_at_worst.delta == Fraction("7.5e-5")


def test_a_budget_lasts_as_long_as_that_of_both_views(tmp_path: Path) -> None:
    epsilons = ('share: "1/2"}', 'epsilon: "1/2"}'), ('share: "1"}', 'epsilon: "3/2"}')
    shares = ("    share: 1/2, window", "    share: 1/10, window"), ("keep: 2}, share: 1/2", "keep: 2}, share: 9/10")
    point = figures(read(tmp_path, loans(1), *epsilons, *shares))
    assert (point.lasts_ms, point.period_ms) == (4 * WEEK_MS, 20 * WEEK_MS)


def test_a_needed_epsilon_of_a_pair_suffices_and_a_step_less_does_not(tmp_path: Path) -> None:
    events = loans(2)
    plan, columns, history = read(tmp_path, events)
    needed = needed_epsilon(Subject(plan, "counted", "staff", history.until_ms), columns, {}, (0.3, 1.0))
    assert needed is not None
    recalls = []
    for epsilon in (Fraction(needed), Fraction(needed) * Fraction(95, 100)):
        recalls.append(figures(read(tmp_path, events, ("epsilon: 40", f'epsilon: "{epsilon}"'))).recall or 0)
    assert recalls[0] >= 0.3 > recalls[1]


WHOLE = "kind: catalogue, catalogue: [a], items_per_user: 2"


@pytest.mark.parametrize(
    ("change", "settings", "reason"),
    [
        (("keep: 2", "keep: 2"), {"split": "1"}, "split is the part for found, above 0 and below 1"),
        (("keep: 2", "keep: 2"), {"split": "half"}, "split is the part for found, above 0 and below 1"),
        (("    share: 1/2, window", "    window"), {"split": "1/2"}, "a `share` of one ledger"),
        (
            ("size: 2w", "grace: 1d, size: 10w"),
            {},
            "no window of view found is released before the last of counted closes",
        ),
        (("size: 2w", "size: 20w"), {}, "no window of view found is over at the end of the history"),
        (
            ('kind: histogram, items_per_user: 2, delta: "5e-5"', "kind: catalogue, catalogue: [a], items_per_user: 2"),
            {},
            "use that list here",
        ),
    ],
)
def test_what_cannot_be_computed_has_a_reason(
    tmp_path: Path, change: tuple[str, str], settings: dict[str, str], reason: str
) -> None:
    point = figures(read(tmp_path, loans(3), change), **settings)
    assert reason in point.reason


def test_a_list_of_a_view_whose_events_were_not_read_has_a_reason(tmp_path: Path) -> None:
    other = LIBRARY.partition("found:  # rarely")[2].partition("  counted:")[0]
    changes = ("  found:", f"  other:{other}  found:"), ("share: 1/2", "share: 1/3"), ("5e-5", "3e-5")
    point = figures(read(tmp_path, loans(3), *changes), **{"catalogue.from": "other"})
    assert "the events of view other were not read" in point.reason
