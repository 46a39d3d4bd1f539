"""A replay publishes what an application publishes that reads the same events, byte for byte, and leaves nothing."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from stream_dp.accounting import Cost
from stream_dp.errors import ConfigError, StateError
from stream_dp.operations.feed import FeedOptions
from stream_dp.operations.past_events import open_past_events
from stream_dp.operations.replay import Replayed, ReplayNoise, replay, write_releases
from stream_dp.records.codec import outline, parse
from stream_dp.records.models import Release
from stream_dp.runtime.key_file import load_keys
from stream_dp.testing import Application, Event, Watermark, keyed_entropy, plan_from
from tests.pipeline.test_releases import MINUTE, crowd
from tests.support.published import Call
from tests.support.views import CHOOSERS, TOPK, start_of
from tests.support.visits import configuration

Launch = Callable[..., Awaitable[Application]]
IN_MEMORY = pytest.mark.parametrize("broker", ["memory"], indirect=True)
TWO = (("views:", "views:" + TOPK.rstrip()), ("ledgers:", CHOOSERS))
UNLOCKING = ("retention: 1d", "retention: 1d\n    unlock: {public: [{after: 1m, level: standard}]}")
WALL = ("clock: event", "clock: wall")


def history_of(folder: Path, events: Sequence[Event]) -> Path:
    """The events as a file that `feed` reads."""
    file = folder / "events.jsonl"
    rows = [{"user": event.user, "page": event.item, "at": event.time_ms} for event in events]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


async def replayed(app: Application, folder: Path, events: Sequence[Event], until_ms: int) -> list[Replayed]:
    history = open_past_events(app.plan, history_of(folder, events), FeedOptions(until_ms=until_ms))
    return [*(await replay(app.plan, history, ReplayNoise(app.entropy, app.plan.key_file))).audiences]


async def assert_alike(
    app: Application, found: Sequence[Replayed], told: Callable[[bytes], object] = lambda record: record
) -> None:
    """What a replay published is what an application did, as far as is told of a record."""
    assert [(one.view, one.audience) for one in found] == [
        (view.name, audience) for view in app.plan.views.values() for audience in view.audiences
    ]
    for one in found:
        values = [told(value) for value in one.records if outline(value)]
        assert Counter(values) == Counter(map(told, (await app.published(one.view))[one.audience]))
        assert [value for value in one.records if not outline(value)] == (await app.described(one.view))[one.audience]


@IN_MEMORY
@pytest.mark.parametrize(
    "changes", [pytest.param(TWO, marks=pytest.mark.slow), (UNLOCKING,)], ids=["two views", "unlocks"]
)
async def test_a_replay_publishes_the_bytes_of_an_application_that_reads_the_same(
    launch: Launch, tmp_path: Path, changes: Sequence[tuple[str, str]]
) -> None:
    app = await launch(*changes)
    start = start_of(next(iter(app.plan.views.values())))
    events, until = crowd(start, 6, seed=4), start + 6 * MINUTE + 10_000
    await app.start()
    await app.publish([*events, Watermark(until)])
    windows = {view.name: 3 if view.kind.name == "topk" else 6 for view in app.plan.views.values()}
    unlocked = 5 if changes == (UNLOCKING,) else 0
    for name, count in windows.items():

        async def is_all(name: str = name, count: int = count) -> bool:
            found = await app.published(name)
            return all(len(rows) == count + unlocked * (who == "public") for who, rows in found.items())

        await app.eventually(is_all)

    found = await replayed(app, tmp_path, events, until)

    await assert_alike(app, found)
    assert {(one.view, one.released, one.refused) for one in found} == {(name, at, 0) for name, at in windows.items()}
    assert all(one.keys for one in found)
    spent = [ledger.spent for ledger in (await app.ledgers()).values()]
    assert max(one.spent.epsilon for one in found) in {cost.epsilon for cost in spent}


@IN_MEMORY
async def test_a_wall_clock_follows_the_events_in_order_and_refusals_are_counted(
    launch: Launch, tmp_path: Path
) -> None:
    """The budget pays for three of four windows; the order of the rows is that of their times or, of windows, none."""
    app = await launch(WALL, ('epsilon: "100"', 'epsilon: "7"'))
    start = start_of(next(iter(app.plan.views.values())))
    events, until = crowd(start, 4, seed=5), start + 4 * MINUTE + 10_000
    await app.start(clock_ms=lambda: until)
    await app.publish(events)
    view = next(iter(app.plan.views))
    await app.wait_for_releases(view, 4)

    found = await replayed(app, tmp_path, events, until)
    later = [event for event in events if event.time_ms >= start + 2 * MINUTE]
    shuffled = await replayed(app, tmp_path, [*later, *events[: len(events) - len(later)]], until)

    await assert_alike(app, found)
    await assert_alike(app, shuffled)
    assert {(one.audience, one.released, one.refused) for one in found} == {
        (audience, 3, 1) for audience in ("public", "partner", "internal")
    }
    assert {one.audience: one.spent.epsilon for one in found} == {"public": 3, "partner": 6, "internal": 6}
    assert {one.left for one in found} == {Cost(found[0].left.epsilon, found[0].left.delta)}
    assert found[0].left.epsilon == 1


@IN_MEMORY
async def test_other_noise_gives_other_releases(launch: Launch, tmp_path: Path) -> None:
    """The power of the tests above: their equality is not that of anything with anything."""
    app = await launch()
    start = start_of(next(iter(app.plan.views.values())))
    events, until = crowd(start, 1, seed=6), start + MINUTE + 10_000
    history = open_past_events(app.plan, history_of(tmp_path, events), FeedOptions(until_ms=until))

    one, other, fresh = [
        [record for found in (await replay(app.plan, history, noise)).audiences for record in found.records]
        for noise in (ReplayNoise(keyed_entropy(b"1")), ReplayNoise(keyed_entropy(b"2")), ReplayNoise())
    ]

    assert len(one) == len(other) == len(fresh)
    assert sum(mine in other for mine in one) == 3 == sum(mine in fresh for mine in one)  # what the view is


@pytest.mark.slow
async def test_a_view_without_a_start_begins_with_the_first_event_whatever_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a slow machine matter: nobody waits for the releases."""
    monkeypatch.setattr("stream_dp.runtime.strict_noise.strict_seconds", lambda *_: 3600.0)
    plan, without = (
        plan_from(configuration("a", *change), tmp_path) for change in ((), (("start: 2024-01-01T00:00:00Z, ", ""),))
    )
    start = start_of(next(iter(plan.views.values())))
    events, until = crowd(start, 4, seed=8), start + 4 * MINUTE + 10_000
    later = [event for event in events if event.time_ms >= start + 2 * MINUTE]
    load_keys(plan.key_file)
    published = []
    for one, rows in ((plan, events), (without, events), (without, [*later, *events[: len(events) - len(later)]])):
        history = open_past_events(one, history_of(tmp_path, rows), FeedOptions(until_ms=until))
        found = await replay(one, history, ReplayNoise(keyed_entropy(b"8"), plan.key_file))
        published.append(found.audiences)

    assert published[0] == published[1] == published[2]
    assert [one.released for one in published[0]] == [4, 4, 4]


@IN_MEMORY
async def test_a_list_in_a_topic_is_refused(launch: Launch, tmp_path: Path) -> None:
    listed = ("kind: histogram", "kind: catalogue\n    catalogue: {topic: pages}")
    app = await launch(listed, ('    delta: "1e-4"\n', ""))
    start = start_of(next(iter(app.plan.views.values())))

    with pytest.raises(ConfigError, match="replay connects to no broker, and a list is in topic pages"):
        await replayed(app, tmp_path, crowd(start, 1, seed=7), start + 2 * MINUTE)


SHOP = """\
name: shop
broker: kafka://127.0.0.1:1
data_dir: state
key_file: shop.key
sources: {orders: {topic: orders, partitions: 2, user: customer, time: {field: at, unit: iso}}}
ledgers: {customers: {population: customers, epsilon: 4, delta: "1e-5", period: 4w, start: 2024-01-01T00:00:00Z}}
ladders: {steps: [{level: standard, epsilon: 1}]}
audiences: {public: standard}
views: {products: {source: orders, item: product, kind: histogram, items_per_user: 2, delta: "1e-6", ledger: customers,
  ladder: steps, window: {size: 1w, start: 2024-01-01T00:00:00Z, clock: event}, retention: 36500d}}
"""


def test_the_command_writes_files_and_a_table_and_nothing_else(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker is at the address of the file."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.delenv("STREAM_DP_BROKER", raising=False)
    (tmp_path / "shop.yaml").write_text(SHOP, encoding="utf-8")
    rows = [f"c{number},tea,2024-01-{day:02}T12:00:00Z" for day in range(1, 29) for number in range(200)]
    (tmp_path / "orders.csv").write_text("\n".join(["customer,product,at", *rows]) + "\n", encoding="utf-8")

    said = call(
        "replay", tmp_path / "shop.yaml", tmp_path / "orders.csv", "--until", "2024-02-01", "--out", tmp_path / "out"
    )

    assert said.code == 0, said.err
    assert "no ledger of an application counts that" in said.err
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("products")]
    assert row[:7] == ["products", "public", "4", "0", "1", "epsilon", "4,"]
    lines = (tmp_path / "out" / "products.public.jsonl").read_bytes().splitlines()
    releases = [one for line in lines if isinstance(one := parse(line), Release)]
    assert [abs(one.items[0].count - 200) < 40 for one in releases] == [True] * 4  # noise of scale 2: e^-20 for one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders.csv", "out", "shop.yaml", "temporary"]
    assert [*temporary.iterdir()] == []
    with pytest.raises(StateError, match="cannot be written: File exists"):
        write_releases([Replayed("products", "public", (), 0, 0, 0, 0, None, Cost.ZERO, Cost.ZERO)], tmp_path / "out")
    assert call("replay", tmp_path / "shop.yaml", tmp_path / "orders.csv", "--views", "tea").code == 2
