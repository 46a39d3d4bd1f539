"""A replay leaves out windows in long stretches without events: every other record and the spending stay the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stream_dp.operations import empty_stretches
from stream_dp.operations.empty_stretches import why_all_windows
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_events import open_past_events
from stream_dp.operations.replay import Replay, Replayed, ReplayNoise, replay
from stream_dp.records.codec import outline
from stream_dp.runtime.key_file import load_keys
from stream_dp.testing import Event, keyed_entropy, plan_from
from stream_dp.windows.durations import parse_time
from tests.pipeline.test_replay import TWO, UNLOCKING, history_of
from tests.support.published import Call
from tests.support.visits import configuration

MINUTE = 60_000
SECOND_VIEW = """views:
  NAME-long:
    kind: histogram
    source: visits
    item: page
    items_per_user: 1
    window: {size: 3m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    delta: "1e-5"
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 2
"""
PERIODS = ("period: 366d", "period: 3m, start: 2024-01-01T00:00:00Z")
TWO_VIEWS = ("views:\n", SECOND_VIEW)
LONGER_GRACE = ("views:\n", SECOND_VIEW.replace("grace: 10s", "grace: 3m"))
"""The windows of the second view close, and are charged, after later ones of the first."""


def budget(epsilon: int) -> tuple[str, str]:
    return 'epsilon: "100"', f'epsilon: "{epsilon}"'


CASES = {
    "two views and a budget that ends": (TWO_VIEWS, budget(32)),
    "one period": (),
    "a budget that ends in a stretch": (budget(18),),
    "several periods": (PERIODS, budget(5)),
    "windows per user": (("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 5"),),
    "windows per user and several periods": (
        PERIODS,
        ("items_per_user: 2", "items_per_user: 2\n    windows_per_user: 2"),
    ),
    "two views": (TWO_VIEWS,),
    "two views and several periods": (TWO_VIEWS, PERIODS, budget(5)),
    "hopping windows": (("size: 1m", "size: 2m, step: 1m"), budget(31)),
    "by the wall clock": (("clock: event", "clock: wall"), budget(31)),
}
"""Changes of the application, by case. Every window costs epsilon 2."""


def visits(*minutes: int) -> list[Event]:
    """Visits of 40 users in some minutes of the year 2024."""
    start = parse_time("2024-01-01T00:00:00Z")
    return [Event(f"u{user}", f"/{user % 3}", start + at * MINUTE + user) for at in minutes for user in range(40)]


async def replayed(
    folder: Path, changes: Sequence[tuple[str, str]], events: Sequence[Event], *, all_windows: bool = False
) -> Replay:
    plan = plan_from(configuration("a", *changes), folder)
    load_keys(plan.key_file)
    until_ms = events[-1].time_ms + 6 * MINUTE
    history = open_past_events(plan, history_of(folder, events), FeedOptions(until_ms=until_ms, unchecked_data=True))
    return await replay(plan, history, ReplayNoise(keyed_entropy(b"5"), plan.key_file), all_windows=all_windows)


def with_events(found: Replayed) -> dict[int, dict[str, Any]]:
    """The records of the windows that both replays have, by start, and the first record of the view.

    The spending of the period is left out: two views may close windows in one step, and their order differs by run.
    """
    windows = {}
    for record in found.records:
        head = outline(record)
        body = json.loads(record)
        if head is not None:
            body["privacy"].pop("period")
        windows[0 if head is None else head.window.start_ms] = body
    return windows


@pytest.mark.parametrize(
    "case", [case if at == 0 else pytest.param(case, marks=pytest.mark.slow) for at, case in enumerate(CASES)]
)
async def test_other_windows_and_the_spending_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The history has a stretch at the start, one in the middle and one at the end."""
    monkeypatch.setattr(empty_stretches, "LONG_STRETCH", 2)
    events = visits(5, 6, 13)
    whole = await replayed(tmp_path, CASES[case], events, all_windows=True)
    (tmp_path / "events.jsonl").unlink()
    short = await replayed(tmp_path, CASES[case], events)

    assert len(short.skipped.stretches) == 3
    for mine, others in zip(short.audiences, whole.audiences, strict=True):
        assert mine.skipped + mine.skipped_refused > 0
        assert mine.released + mine.skipped == others.released
        assert mine.refused + mine.skipped_refused == others.refused
        assert (mine.spent, mine.left) == (others.spent, others.left)
        own = with_events(mine)
        every = with_events(others)
        assert {start: every[start] for start in own} == own
        assert len(own) < len(every)


FAR = """\
name: shop
broker: kafka://127.0.0.1:1
data_dir: state
key_file: shop.key
sources: {orders: {topic: orders, partitions: 2, user: customer, time: {field: at, unit: iso}}}
ledgers: {customers: {population: customers, epsilon: 7, delta: "1e-5", period: 4w, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: standard, epsilon: 1/100}]}
audiences: {public: standard}
views: {products: {source: orders, item: product, kind: histogram, items_per_user: 1, delta: "1e-8", ledger: customers,
  ladder: steps, window: {size: SIZE, clock: event}, retention: 365d}}
"""
HOURS = (parse_time("2024-03-01T12:00:00Z") - parse_time("2001-03-01T12:00:00Z")) // (60 * MINUTE)


@pytest.mark.parametrize(
    ("size", "windows"), [("1h", HOURS + 1), pytest.param("1m", 60 * HOURS + 1, marks=pytest.mark.slow)]
)
def test_two_rows_that_are_23_years_apart(tmp_path: Path, call: Call, size: str, windows: int) -> None:
    """Two windows are released; a period of 4 weeks pays for 672 windows of an hour, or 700 shorter ones."""
    (tmp_path / "shop.yaml").write_text(FAR.replace("SIZE", size), encoding="utf-8")
    rows = "customer,product,at\nc1,tea,2001-03-01T12:00:00Z\nc2,tea,2024-03-01T12:00:00Z\n"
    (tmp_path / "orders.csv").write_text(rows, encoding="utf-8")

    said = call(
        *("replay", tmp_path / "shop.yaml", tmp_path / "orders.csv", "--unchecked-data"),
        *("--until", "2024-03-01T13:05:00Z" if size == "1h" else "2024-03-01T12:06:00Z"),
    )

    assert said.code == 0, said.err
    assert f"{windows:,} windows to release" in said.err
    assert f"{windows - 2:,} windows without events between 2001-03-01T1" in said.err
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("products")]
    if size == "1h":
        assert row[:6] == ["products", "public", "2", "0", f"{windows - 2:,}", "0"]
        assert f"{windows - 2:,} of them are charged, 0 are refused" in said.err
        assert "6.72" in said.out
    else:  # the last period has no budget for its event: every period pays for the first 700 windows
        assert row[:6] == ["products", "public", "1", "1", f"{windows - 2:,}", "0"]


async def test_rows_without_order_are_all_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(empty_stretches, "LONG_STRETCH", 2)
    found = await replayed(tmp_path, (), [*visits(6, 0), *visits(1)])
    assert not found.skipped.stretches
    assert {one.released for one in found.audiences} == {6}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (TWO[0], "the cost of a window depends on its noise"),
        (UNLOCKING, "released windows are sharpened later"),
        (("items_per_user: 2", "items_per_user: 2\n    when_short: coarser"), "windows get coarser levels"),
        (LONGER_GRACE, "windows of views of one ledger have different graces"),
    ],
)
def test_views_whose_windows_depend_on_others_are_replayed_whole(
    tmp_path: Path, change: tuple[str, str], reason: str
) -> None:
    changes = [change, TWO[1]] if change == TWO[0] else [change]
    views = [*plan_from(configuration("a", *changes), tmp_path).views.values()]
    assert reason in why_all_windows(views, ordered=True)
