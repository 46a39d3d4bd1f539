"""Workers that are killed with SIGKILL, again and again: what is released is what an undisturbed run releases."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stream_dp.records.codec import decode, decode_entry, encode
from stream_dp.runtime.topics import Topics
from stream_dp.testing import Application, Event, Script, Watermark, application, count_script, expected_records
from tests.support.views import only_view, released, start_of

pytestmark = pytest.mark.broker

MINUTE = 60_000
NOISE_KEY = b"crash tests"
DEATHS = [
    "send partials:2",
    "commit merges:2",
    "commit counts:3",
    "send merged:1",
    "commit releases:2",
    "commit releases:3",
    "erase merges 0:2",
    "send release:1",
]
"""Where the process dies by itself, one per life; in between the test kills it at some moment."""


def visits_of(start_ms: int, window: int) -> list[Event]:
    """Visits of one window by 300 users, popular pages more often, some users too often."""
    chance = random.Random(window)
    times = sorted(start_ms + window * MINUTE + chance.randrange(MINUTE) for _ in range(900))
    return [Event(f"u{chance.randrange(300)}", f"/{min(chance.randrange(9), 4)}", time) for time in times]


async def released_and_sharpened(app: Application, windows: int) -> dict[str, list[bytes]]:
    """Wait for the windows and for the sharper revisions of all of them that the partner was granted."""
    view = only_view(app)

    async def complete() -> dict[str, list[bytes]] | None:
        published = await app.published(view.name)
        return (
            published
            if [len(published[name]) for name in sorted(published)] == [windows, 2 * windows, windows]
            else None
        )

    return await app.eventually(complete)


async def undisturbed(text: str, folder: Path, key_file: Path, script: Script, windows: int) -> dict[str, list[bytes]]:
    """What one worker on the embedded log publishes that nothing ever happens to."""
    async with application(text, folder, noise_key=NOISE_KEY) as app:
        shutil.copy2(key_file, app.plan.key_file)
        await app.start()
        await app.publish(script)
        await app.wait_for_releases(only_view(app).name, windows)
        await app.grant("partner", "detailed")
        return await released_and_sharpened(app, windows)


@pytest.mark.parametrize("fresh_folder", [False, True], ids=["same folder", "fresh folder"])
async def test_killed_worker_releases_what_an_undisturbed_run_releases(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any, fresh_folder: bool
) -> None:
    text = visits()
    chance = random.Random(7)
    script: list[Event | Watermark] = []
    windows = len(DEATHS) + 4

    async with application(text, tmp_path / "killed", broker=kafka, noise_key=NOISE_KEY) as app:
        view = only_view(app)
        start = start_of(view)
        worker = spawn(app, "state")

        async def go_on(window: int) -> None:
            """Half of a window's visits, the end of the window before, the rest of the visits."""
            events = visits_of(start, window)
            part: list[Event | Watermark] = [*events[:500], Watermark(start + window * MINUTE + 10_000), *events[500:]]
            await app.publish(part)
            script.extend(part)

        async def dead() -> None:
            assert await asyncio.to_thread(worker.wait, 30) == -signal.SIGKILL, worker.said()
            if fresh_folder:
                shutil.rmtree(worker.data_dir, ignore_errors=True)  # it may have died before it made one

        await go_on(0)
        for number, death in enumerate(DEATHS):
            worker.start("--die-before", death)
            await go_on(number + 1)
            await dead()
        for number in range(3):
            worker.start()
            await go_on(len(DEATHS) + 1 + number)
            await asyncio.sleep(chance.uniform(1.5, 3.5))
            worker.signal(signal.SIGKILL)
            await dead()
        worker.start()
        script.append(Watermark(start + windows * MINUTE + 10_000))
        await app.publish(script[-1:])
        records = await app.wait_for_releases(view.name, windows)
        assert await asyncio.to_thread(worker.terminate) == 0

        worker.start("--die-before", "commit releases:2")  # the first one stores the grant
        await app.grant("partner", "detailed")
        await dead()
        worker.start("--die-before", "send release:1")
        await dead()
        worker.start()
        published = await released_and_sharpened(app, windows)
        ledgers = await app.ledgers()
        counters = worker.counters()
        assert await asyncio.to_thread(worker.terminate) == 0
        entries = [value for _, value in await app.read(Topics.of(app.plan).accounts) if value is not None]
        epsilons_left = [Fraction(decode_entry(value).left.epsilon.exact) for value in dict.fromkeys(entries)]

    counts = count_script(view, start, script).between(view, start, start + windows * MINUTE)
    expected = expected_records(view, counts, prf_key=app.prf_key, entropy=app.entropy)
    for audience, rows in expected.items():
        assert published[audience][:windows] == [encode(row) for row in rows]
    assert published == await undisturbed(text, tmp_path / "undisturbed", app.plan.key_file, script, windows)
    assert [record.told.epsilon.exact for record in records["internal"]] == [
        str(2 * number) for number in range(1, windows + 1)
    ]
    assert epsilons_left == [100 - 2 * number for number in range(1, windows + 1)] + [
        100 - 2 * windows - 4 * number for number in range(1, windows + 1)
    ]
    (ledger,) = ledgers.values()
    assert ledger.spent.epsilon == (2 + 4) * windows
    assert not ledger.reserved
    assert counters["events_replayed"] > 0


DEATHS_OF_A_RELEASE = [
    "commit releases:1",  # nothing of it has happened
    "commit releases:2",
    "commit releases:3",
    "commit releases:4",
    "send release:1",
    "commit releases:5",
    "commit releases:6",
    "send release:2",
]
"""Moments around reserve, draw, commit and publish; which is which depends on what a restart has to finish."""
TOP = """
  NAME-top:
    kind: topk
    source: visits
    item: page
    k: 3
    kbar: 4
    selection: {epsilon: "1/2", delta: "1e-4"}
    items_per_user: 2
    window: {size: 1m, start: 2024-01-01T00:00:00Z, grace: 10s, clock: event, max_ahead: 1h, idle: 1d}
    ledger: visitors
    ladder: standard
    retention: 1d
    buckets: 1
"""


async def test_killed_worker_draws_nothing_twice_and_charges_all_that_it_shows(
    kafka: str, tmp_path: Path, visits: Callable[..., str], spawn: Any
) -> None:
    """With noise from the operating system: a second draw would be another one, and both could be read."""
    text = visits(("views:", "views:" + TOP), ('epsilon: "100"', 'epsilon: "1000"'))
    async with application(text, tmp_path / "killed", broker=kafka) as app:
        names = list(app.plan.views)
        start = start_of(app.plan.views[names[0]])
        worker = spawn(app, "state", "--fresh-noise")

        async def assert_covered() -> None:
            """Each record was only ever published with the same bytes, and the ledger has paid for all of them."""
            shown: dict[tuple[str, bytes | None], set[bytes | None]] = {}
            for name in names:
                for audience in app.plan.views[name].audiences:
                    topic = Topics.release(name, audience)
                    for key, value in await app.read(topic):
                        shown.setdefault((topic, key), set()).add(value)
            assert all(len(values) == 1 for values in shown.values())
            records = released(decode(value) for values in shown.values() for value in values if value is not None)
            told = sum(Fraction(record.held.epsilon.exact) for record in records if record.audience == "internal")
            taken = Fraction(0)
            for ledger in (await app.ledgers()).values():
                taken += ledger.budget.epsilon - ledger.left.epsilon
            assert told <= taken

        for window, death in enumerate(DEATHS_OF_A_RELEASE):
            worker.start("--die-before", death)
            await app.publish([*visits_of(start, window), Watermark(start + (window + 1) * MINUTE + 10_000)])
            assert await asyncio.to_thread(worker.wait, 30) == -signal.SIGKILL, worker.said()
            await assert_covered()
        worker.start()
        windows = len(DEATHS_OF_A_RELEASE)
        found = [await app.wait_for_releases(name, windows) for name in names]
        assert await asyncio.to_thread(worker.terminate) == 0
        await assert_covered()

        (ledger,) = (await app.ledgers()).values()
        records = [record for releases in found for rows in releases.values() for record in released(rows)]
        assert len(records) == 2 * 3 * windows
        assert not ledger.reserved
        told = [Fraction(record.held.epsilon.exact) for record in records if record.audience == "internal"]
        assert ledger.spent.epsilon == sum(told), "the finest readers have all that was paid for"
