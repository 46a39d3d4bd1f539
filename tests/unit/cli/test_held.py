"""Commands about what runs go by the settings that hold, not by the file that they are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from stream_dp.config.planner import load_plan
from stream_dp.control.editions import first_record, next_record
from stream_dp.runtime.embedded import MemoryClient, MemoryLog
from stream_dp.runtime.kafka.control_topic import post_accepted
from stream_dp.runtime.kafka.topics import Topics
from tests.support.published import Said

START = 1_704_067_200_000


def test_a_view_that_was_added_since_is_known_and_one_that_was_removed_is_not(
    call: Callable[..., Said], visits_file: Path, tmp_path: Path, log: MemoryLog
) -> None:
    plan = load_plan(visits_file)
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text(visits_file.read_text().replace("  pages:\n    {source", "  sites:\n    {source"))
    other = load_plan(renamed)
    log.create(Topics.of(plan).control, 1)
    first = first_record(plan, START)
    second = next_record([first], other, {"sites": START + 86_400_000}, {"pages": START + 86_400_000}, 0)
    for posted in (first, second):
        assert asyncio.run(post_accepted(plan, MemoryClient(log), posted))

    gone, there = call("tail", visits_file, "pages", "public"), call("tail", visits_file, "sites", "public")

    otherwise = (
        "note: settings 2 are in effect, and FILE differs in views.pages, views.sites. This uses the settings in "
        "effect. To put FILE into effect: `stream-dp apply FILE`"
    )
    refused = "error: view: no view is named 'pages'; known: searches, sites"
    assert (gone.code, gone.err.splitlines()) == (2, [otherwise, refused])
    assert otherwise not in call("tail", renamed, "sites", "public").err, "the file says what holds"
    assert there.code == 1
    assert "has no topic" in there.err
