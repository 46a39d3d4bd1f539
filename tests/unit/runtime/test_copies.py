"""The local rows of a table are kept for the changelog that they were made from, and no other."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

from stream_dp.runtime.factory import Settled
from stream_dp.runtime.kafka.ownership import Life
from stream_dp.runtime.kafka.topics import COUNTS, MERGES, RELEASES, Topics
from stream_dp.runtime.worker.assembly import discard_former_copies
from tests.support.releasing import plan


def settled(**ids: str) -> Settled:
    topics = Topics.of(plan())
    lives = {topics.changelog(table): Life(ids.get(table, "first"), 1) for table in (COUNTS, MERGES, RELEASES)}
    return Settled(plan(), topics=lives)


def test_copies_of_a_changelog_that_was_made_again_are_discarded_and_all_others_stay(tmp_path: Path) -> None:
    shop, tables = replace(plan(), data_dir=tmp_path), tmp_path / "v1" / "tables"
    discard_former_copies(shop, settled(), tables)
    copies = {f"{table}-{at}.db" for table in (COUNTS, MERGES, RELEASES) for at in range(2)}
    for name in copies:
        (tables / name).mkdir(parents=True)
        (tables / name / "CURRENT").write_text("rows")

    discard_former_copies(shop, settled(), tables)
    assert {path.name for path in tables.iterdir()} == copies

    discard_former_copies(shop, settled(counts="second"), tables)
    assert {path.name for path in tables.iterdir()} == {name for name in copies if not name.startswith(COUNTS)}


def test_copies_that_nobody_knows_the_changelog_of_are_discarded(tmp_path: Path) -> None:
    shop, tables = replace(plan(), data_dir=tmp_path), tmp_path / "v1" / "tables"
    for unreadable in (None, b"", b'{"counts": "fi', b"\x00\xff", b"[]"):
        (tables / "releases-0.db").mkdir(parents=True)
        (tmp_path / "changelogs.json").unlink(missing_ok=True)
        if unreadable is not None:
            (tmp_path / "changelogs.json").write_bytes(unreadable)
        discard_former_copies(shop, settled(), tables)
        assert not list(tables.iterdir())


def test_copies_of_a_standby_that_may_have_missed_deletions_are_discarded(tmp_path: Path) -> None:
    shop, tables = replace(plan(), data_dir=tmp_path, standbys=1), tmp_path / "v1" / "tables"
    discard_former_copies(replace(shop, standbys=0), settled(), tables)
    now = time.time()
    for name, hours in (("counts-0.db", 13), ("counts-1.db", 11)):
        (tables / name).mkdir(parents=True)
        for file, age_s in (("CURRENT", 86_400), ("1.log", hours * 3600)):
            (tables / name / file).write_text("rows")
            os.utime(tables / name / file, (now - age_s, now - age_s))

    discard_former_copies(replace(shop, standbys=0), settled(), tables)
    assert len(list(tables.iterdir())) == 2, "nobody else may have had the partitions"
    discard_former_copies(shop, settled(), tables)
    assert [path.name for path in tables.iterdir()] == ["counts-1.db"]
    discard_former_copies(replace(shop, standbys=0), settled(), tables)
    assert list(tables.iterdir()) == [], "nobody would erase from a copy of another worker's partition"
    discard_former_copies(replace(shop, standbys=0), settled(), tables)
