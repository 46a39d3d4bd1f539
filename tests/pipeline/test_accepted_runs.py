"""What is accepted runs: a worker on the embedded log starts with it, counts an event of every source, and stops.

`tests/unit/runtime/test_construction.py` builds the parts of many more configurations, without a worker.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stream_dp.config.planner import build_plan
from stream_dp.config.yaml_data import escape, write_yaml
from stream_dp.errors import ConfigError
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.construction import construct_file
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.testing import Event, ManualClock, SourceWriter, application
from tests.support.generated import FILE, KEYS, generated

SAMPLES = (
    pytest.param(range(12), id="some"),
    *(pytest.param(range(at, at + 60), id=f"{at}", marks=pytest.mark.slow) for at in range(100, 700, 60)),
    *(pytest.param(range(at, at + 500), id=f"{at}", marks=pytest.mark.nightly) for at in range(10_000, 15_000, 500)),
)
"""Seeds of configurations; about a third of them are accepted."""


def accepted(seeds: range, folder: Path) -> Iterator[tuple[int, str]]:
    """Yield the seed and the text of every configuration that is accepted."""
    for seed in seeds:
        data = generated(random.Random(seed))
        try:
            construct_file(build_plan(data, folder))
        except ConfigError:
            continue
        yield seed, write_yaml({name: escape(value) for name, value in data.items()})


async def count_one_event_of_every_source(text: str, folder: Path) -> None:
    """Start a worker, write an event to every source, wait until all are counted, and stop the worker."""
    async with application(text, folder) as app:
        worker = await app.start(clock_ms=ManualClock(wall_clock_ms()))  # no window closes before the event is there
        for source in sources_of(app.plan).values():
            event = Event("u1", KEYS[0], wall_clock_ms())
            await app.client.publish(SourceWriter(app.plan, source.name).records([event]))

        async def are_counted() -> bool:
            views = sum(worker.counters.total(name) for name in ("events_counted", "events_unknown"))
            return views >= len(app.plan.views)

        await app.eventually(are_counted, within_s=20)
        assert worker.counters.total("events_refused") == 0


@pytest.mark.parametrize("seeds", SAMPLES)
async def test_worker_runs_with_what_is_accepted(seeds: range, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("\n".join(KEYS), encoding="utf-8")
    failed: list[str] = []
    tried = 0
    for seed, text in accepted(seeds, tmp_path):
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / FILE).write_text("\n".join(KEYS), encoding="utf-8")
        tried += 1
        try:
            await count_one_event_of_every_source(text, folder)
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}")
    assert tried
    assert failed == []
