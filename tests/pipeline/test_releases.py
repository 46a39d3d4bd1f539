"""What an application publishes equals what a plain-Python oracle says: in memory and on a real Kafka."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from fractions import Fraction

from stream_dp.records.codec import AnyRecord, encode
from stream_dp.releases.accounts import ledger_key
from stream_dp.testing import Application, Event, ManualClock, Watermark
from tests.support.oracle import count_script, expected_records
from tests.support.sealing import read_window, seal_window, window_key_of
from tests.support.views import CHOOSERS, TOPK, only_view, released, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


def crowd(start_ms: int, minutes: int, seed: int) -> list[Event]:
    """Visits of 300 users at random moments of some minutes, popular pages more often."""
    chance = random.Random(seed)
    pages = [f"/page/{number}" for number in range(12)]
    weights = [1 / (1 + number) for number in range(12)]
    times = sorted(start_ms + chance.randrange(MINUTE * minutes) for _ in range(1500 * minutes))
    return [Event(f"u{chance.randrange(300)}", chance.choices(pages, weights)[0], time) for time in times]


def encoded(records: dict[str, list[AnyRecord]]) -> dict[str, list[bytes]]:
    return {audience: [encode(record) for record in rows] for audience, rows in records.items()}


async def test_releases_equal_the_oracle_and_each_window_is_charged_once(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    script: list[Event | Watermark] = [*crowd(start, 3, seed=1), Watermark(start + 10 * MINUTE)]
    await app.start()
    await app.publish(script)

    await app.wait_for_releases(view.name, 9)

    windows = count_script(view, start, script).between(view, start, start + 9 * MINUTE)
    assert [bool(counts) for counts in windows.values()] == [True] * 3 + [False] * 6
    expected = expected_records(view, windows, prf_key=app.prf_key, entropy=app.entropy)
    assert await app.published(view.name) == encoded(expected)
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 9 * 2
    assert not ledger.reserved


async def test_bounds_and_refusals_are_counted_as_the_oracle_counts_them(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    now = start + 24 * 60 * MINUTE
    events = crowd(start, 2, seed=2)
    script: list[Event | Watermark] = [
        *events[:2000],
        Watermark(start + MINUTE + 9_999),  # the first window has one millisecond of grace left
        Event("tardy", "/in-grace", start + MINUTE - 1),
        Event("early", "/before", start - 1),
        Event("ahead", "/future", now + 60 * MINUTE + 1),
        Event("soon", "/future", now + 60 * MINUTE),
        Watermark(start + MINUTE + 10_000),
        Event("tardier", "/late", start + MINUTE - 1),
        *events[2000:],
        *events[2500:],  # every event once more
        Watermark(start + 3 * MINUTE),
    ]
    worker = await app.start(clock_ms=ManualClock(now))
    await app.publish(script)

    await app.wait_for_releases(view.name, 2)

    expected = count_script(view, start, script, now_ms=now)
    found = {reason: worker.counters.total("events_refused", reason=reason) for reason in expected.refused}
    assert found == expected.refused
    assert expected.refused["late"] == 1
    assert expected.refused["before_start"] == 1
    assert expected.refused["future"] == 1
    assert expected.refused["duplicate"] > 500
    assert expected.refused["clipped"] > 100
    assert expected.counts[start]["/in-grace"] == 1
    assert expected.counts[now + 60 * MINUTE] == {"/future": 1}
    records = expected_records(
        view, expected.between(view, start, start + 2 * MINUTE), prf_key=app.prf_key, entropy=app.entropy
    )
    assert await app.published(view.name) == encoded(records)


async def test_top_k_and_histogram_of_one_source_equal_the_oracle(launch: Launch) -> None:
    app = await launch(("views:", "views:" + TOPK.rstrip()), ("ledgers:", CHOOSERS))
    views = list(app.plan.views.values())
    start = start_of(views[0])
    script: list[Event | Watermark] = [*crowd(start, 4, seed=3), Watermark(start + 5 * MINUTE)]
    await app.start()
    await app.publish(script)

    for view, windows in zip(views, (2, 4), strict=True):
        found = await app.wait_for_releases(view.name, windows)
        assert set(found) == set(view.audiences)
        counts = count_script(view, start, script).between(view, start, start + 4 * MINUTE)
        expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
        assert await app.published(view.name) == encoded(expected)


MECHANISMS = {
    "laplace": 'kbar: 5\n    selection: {mechanism: laplace, epsilon: "1", delta: "1e-4"}',
    "chosen": 'kbar: 9\n    selection: {mechanism: chosen-kbar, epsilon: "1", delta: "1e-4"}',
    "listed": 'catalogue: [/page/1, /page/3, /page/0, /no]\n    selection: {mechanism: known-domain, epsilon: "1"}',
}


async def test_other_selections_on_one_ledger_equal_the_oracle(launch: Launch) -> None:
    """Only the kbar + 1 largest of each bucket travel, of a catalogue all that was counted."""
    plain = 'kbar: 5\n    selection: {epsilon: "1", delta: "1e-4"}'
    assert plain in TOPK
    views = "".join(
        TOPK.replace(plain, given).replace("NAME-top", f"NAME-{name}").rstrip() for name, given in MECHANISMS.items()
    )
    app = await launch(("views:", "views:" + views), ("ledgers:", CHOOSERS))
    plans = [view for view in app.plan.views.values() if view.kind.name == "topk"]
    start = start_of(plans[0])
    script: list[Event | Watermark] = [*crowd(start, 4, seed=5), Watermark(start + 5 * MINUTE)]
    await app.start()
    await app.publish(script)

    spent = Fraction(0)
    for view in plans:
        found = await app.wait_for_releases(view.name, 2)
        counts = count_script(view, start, script).between(view, start, start + 4 * MINUTE)
        expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
        for audience, records in found.items():
            # What an audience was told so far depends on which of the views was released first.
            assert [record.model_dump(exclude={"privacy": {"period"}}) for record in records] == [
                record.model_dump(exclude={"privacy": {"period"}}) for record in expected[audience]
            ]
        releases = [record for records in found.values() for record in released(records)]
        assert all(record.items for record in releases)
        spent += sum(Fraction(record.privacy.window.epsilon.exact) for record in released(found["internal"]))
    choosers = ledger_key(plans[0], start)
    ledgers = [ledger for key, ledger in (await app.ledgers()).items() if key == choosers]
    assert [ledger.spent.epsilon for ledger in ledgers] == [spent]


async def test_grant_publishes_every_window_sharper_for_the_difference(launch: Launch) -> None:
    app = await launch()
    view = only_view(app)
    start = start_of(view)
    script: list[Event | Watermark] = [*crowd(start, 3, seed=4), Watermark(start + 4 * MINUTE)]
    await app.start()
    await app.publish(script)
    before = await app.wait_for_releases(view.name, 3)

    await app.grant("partner", "detailed")
    await app.grant("nobody", "detailed")
    await app.grant("partner", "standard-issue")

    async def sharpened() -> list[AnyRecord] | None:
        partner = (await app.releases(view.name))["partner"]
        return partner if len(partner) >= 6 else None

    partner = await app.eventually(sharpened)
    assert partner[:3] == before["partner"]
    counts = count_script(view, start, script).counts
    for index, record in enumerate(partner[3:]):
        at = start + index * MINUTE
        key = window_key_of(view, at, app.prf_key, app.entropy)
        table = seal_window(view, at, counts[at], prf_key=key, entropy=app.entropy)
        (reading,) = read_window(view, at, table, [2], key)
        assert record.type == "release"
        assert (record.window.start_ms, record.revision, record.level.name) == (at, 2, "detailed")
        assert {row.item: row.count for row in record.items} == dict(reading.items)
        assert record.privacy.window.epsilon.exact == "6"

    await app.grant("partner", "detailed")  # what it has already
    await app.publish([Watermark(start + 5 * MINUTE)])
    after = await app.wait_for_releases(view.name, 4)
    assert [(record.revision, record.level.name) for record in after["partner"][6:]] == [(1, "detailed")]
    assert after["internal"][:3] == before["internal"]
    assert [record.level.name for record in after["public"]] == ["overview"] * 4
    (ledger,) = (await app.ledgers()).values()
    assert ledger.spent.epsilon == 4 * 6
    assert ledger.spent.delta == 4 * view.keys_at_worst.delta
    assert ledger.readers["public"].epsilon == 4 * 1
    assert ledger.readers["internal"].epsilon == 4 * 2
    assert ledger.readers["partner"].epsilon == 4 * 6


async def test_spent_budget_publishes_refusals_in_place_of_windows_and_of_sharper_revisions(launch: Launch) -> None:
    app = await launch(('epsilon: "100"', 'epsilon: "9"'))
    view = only_view(app)
    start = start_of(view)
    script: list[Event | Watermark] = [*crowd(start, 5, seed=5), Watermark(start + 6 * MINUTE)]
    worker = await app.start()
    await app.publish(script)

    records = await app.wait_for_releases(view.name, 5)

    counts = count_script(view, start, script).between(view, start, start + 5 * MINUTE)
    expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
    assert await app.published(view.name) == encoded(expected)
    assert [record.type for record in records["public"]] == ["release"] * 4 + ["refusal"]

    async def counted(name: str, number: int) -> bool:  # a record may leave before its step counts it
        return worker.counters.total(name) == number

    await app.eventually(lambda: counted("windows_refused", 1))

    await app.grant("internal", "detailed")

    async def refused() -> list[AnyRecord] | None:
        internal = (await app.releases(view.name))["internal"]
        return internal[5:] if len(internal) >= 9 else None

    refusals = await app.eventually(refused)
    assert [(record.type, record.revision, record.window.start_ms) for record in refusals] == [
        ("refusal", 2, start + index * MINUTE) for index in range(4)
    ]
    (ledger,) = (await app.ledgers()).values()
    assert ledger.left.epsilon == 1
    await app.eventually(lambda: counted("sharpenings_refused", 4))
