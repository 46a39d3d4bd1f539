"""Keys: a window is read with the one that it was sealed with, for ever, whatever comes, goes and crashes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_dp.errors import ConfigError
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.releases.clearances import ClearanceRow
from stream_dp.releases.keyring import KeyRing, PrfKey
from stream_dp.releases.rows import CLEARANCE, OUTBOX, TABLE, WINDOW
from stream_dp.windows.encoding import decode, text, window_key
from tests.support.releasing import KEY, KEYS, ONLY_PAGES, Desk, plan
from tests.support.sealing import read_window

SECOND, THIRD = bytes(32), b"the third of them, 32 bytes long"
RING = KeyRing.of(KEY, SECOND)
FIRST_ID, SECOND_ID = (key.id for key in RING.keys)
RETIRED = KeyRing((PrfKey(FIRST_ID, None), PrfKey.of(SECOND)))
CROWD = {f"page {n}": 40 + n for n in range(12)}
PAGES = plan(ONLY_PAGES)


def retained(keys: KeyRing = KEYS) -> Desk:
    """A desk with two windows released, and a process that is started again with other keys."""
    desk = Desk(PAGES)
    for start in (0, 1000):
        desk.give("pages", start, CROWD)
    desk.keys = keys
    desk.reader.restart()
    return desk


def revisions(desk: Desk, audience: str) -> list[tuple[int, int, str]]:
    return [(r.window.start_ms, r.revision, r.level.name) for r in desk.records("pages", audience)]


def assert_read_with_their_own_keys(desk: Desk, secrets: KeyRing) -> None:
    """Every record ever published shows its window's table at its level, read with the key of the window's row."""
    view = desk.plan.views["pages"]
    levels = [level.name for level in view.levels]
    for audience in view.audiences:
        for record in desk.records("pages", audience):
            start, level = record.window.start_ms, levels.index(record.level.name)
            row = desk.row("pages", start)
            key = WindowNoise.of(view.noise_name(start), secrets.secrets[row.key_id], row.secret).prf_key
            (reading,) = read_window(view, start, desk.table("pages", start), [level], key)
            assert {name: getattr(record, name) for name in reading.fields} == reading.fields


# -- what a rotation does -------------------------------------------------------------------------------------------


def test_a_window_is_sharpened_after_a_rotation_as_without_one() -> None:
    rotated, alone = retained(RING), retained()
    for desk in (rotated, alone):
        desk.grant(1, "partner", "middle")
        desk.grant(2, "public", "fine")
        assert revisions(desk, "partner")[2:] == [(0, 2, "middle"), (1000, 2, "middle")]
        desk.auditor.settled()
    assert rotated.machine.sent == alone.machine.sent
    assert rotated.machine.rows == alone.machine.rows


def test_windows_behind_a_rotation_are_sealed_with_the_new_key_and_share_nothing_with_those_of_the_former() -> None:
    rotated, alone = retained(RING), retained()
    for desk in (rotated, alone):
        desk.give("pages", 2000, CROWD)
    assert [rotated.row("pages", start).key_id for start in (0, 1000, 2000)] == [FIRST_ID, FIRST_ID, SECOND_ID]
    masked, other = (desk.table("pages", 2000) for desk in (rotated, alone))
    assert masked.excess != other.excess, "its mask is of the new key"
    assert structs.replace(masked, excess=other.excess) == other
    assert_read_with_their_own_keys(rotated, RING)


class ProcessEndedError(Exception):
    """The process ended, and is started again with another file."""


@dataclass
class Rotating(Desk):
    """A desk whose every restart finds one more key in the file."""

    restarts: int = -1

    def engine(self) -> object:  # type: ignore[override]
        self.restarts += 1
        self.keys = KeyRing.of(*(KEY, SECOND, THIRD)[: self.restarts + 1])
        return super().engine()


def play(desk: Desk) -> Desk:
    """Three windows and two grants, and a last restart."""
    desk.give("pages", 0, CROWD)
    desk.grant(1, "partner", "middle")
    desk.give("pages", 1000, CROWD)
    desk.give("pages", 2000, {})
    desk.grant(2, "public", "fine")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rotation_at_a_crash_anywhere_leaves_every_record_one_reading_of_its_table(step: int) -> None:
    points = play(Rotating(PAGES, at_once=1)).machine.points
    sealed_with = set()
    for cut in range(0, points, step):
        desk = play(Rotating(PAGES, cuts=[cut], back=1, at_once=1))
        desk.auditor.settled()
        assert_read_with_their_own_keys(desk, KeyRing.of(KEY, SECOND, THIRD))
        sealed_with.add(tuple(desk.row("pages", start).key_id for start in (0, 1000, 2000)))
    assert len(sealed_with) == 4, "the cuts fall before, between and behind the windows"


@settings(max_examples=25)
@given(st.lists(st.sampled_from(["window", "rotate", "restart", "coarse", "middle", "fine"]), max_size=12))
def test_whatever_follows_each_other_every_record_is_a_reading_with_the_key_of_its_window(acts: list[str]) -> None:
    desk, secrets, start = Desk(PAGES), [KEY], 0
    for number, act in enumerate(acts):
        if act == "window":
            desk.give("pages", start, CROWD)
            assert desk.row("pages", start).key_id in ("", PrfKey.of(secrets[-1]).id)
            start += 1000
        elif act in ("rotate", "restart"):
            if act == "rotate":
                secrets.append(bytes([number]) * 32)
                desk.keys = KeyRing.of(*secrets)
            desk.reader.restart()
        else:
            desk.grant(number + 1, "partner", act)
    desk.auditor.settled()
    if not any(row.refused for row in (desk.row("pages", at) for at in range(0, start, 1000))):
        assert_read_with_their_own_keys(desk, desk.keys)


# -- a key that is not there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [KeyRing.of(SECOND), KeyRing.of(SECOND, THIRD)], ids=["another", "two others"])
def test_a_worker_without_the_key_of_a_retained_window_changes_and_publishes_nothing(other: KeyRing) -> None:
    desk = Desk(PAGES)
    desk.give("pages", 0, CROWD)
    desk.keys, before, sent = other, dict(desk.machine.rows), len(desk.machine.sent)
    with pytest.raises(ConfigError) as caught:
        desk.reader.restart()
    (fault,) = caught.value.faults
    assert fault.path == "key_file"
    assert fault.message.startswith(f"it lacks key {FIRST_ID}, which retained windows of view pages were sealed with;")
    assert KEY.hex() not in str(caught.value)
    assert (desk.machine.rows, len(desk.machine.sent)) == (before, sent)


def test_a_file_from_before_a_rotation_is_refused_once_a_window_was_sealed_with_the_new_key() -> None:
    desk = retained(RING)
    desk.keys = KEYS
    desk.reader.restart()
    desk.keys = RING
    desk.reader.restart()
    desk.give("pages", 2000, CROWD)
    desk.keys = KEYS
    with pytest.raises(ConfigError, match=SECOND_ID):
        desk.reader.restart()


def test_the_key_of_windows_that_are_retained_no_longer_is_not_missed() -> None:
    desk = Desk(plan(ONLY_PAGES, ("retention: 1h", "retention: 1s")), keys=RING)
    for start in (0, 1000):
        desk.keys = KEYS if start == 0 else RING
        desk.reader.restart()
        desk.give("pages", start, CROWD)
    for start in (2000, 3000):
        desk.give("pages", start, CROWD)
    assert window_key(WINDOW, "pages", 0) not in desk.machine.rows
    desk.keys = KeyRing.of(SECOND)
    desk.reader.restart()


# -- a retired key --------------------------------------------------------------------------------------------------


def test_windows_of_a_retired_key_stay_as_they_are_and_others_are_sharpened() -> None:
    desk = retained(RING)
    desk.give("pages", 2000, CROWD)
    before = list(desk.published())
    desk.keys = RETIRED
    desk.reader.restart()
    desk.grant(1, "partner", "fine")
    assert desk.published()[: len(before)] == before
    assert revisions(desk, "partner")[3:] == [(2000, 2, "fine")]
    assert all(record.type == "release" for record in desk.records("pages", "partner"))
    desk.give("pages", 3000, CROWD)
    assert revisions(desk, "partner")[4:] == [(3000, 1, "fine")]
    desk.auditor.settled()


def test_a_grant_that_was_not_carried_out_when_the_key_was_retired_is_over() -> None:
    desk = retained()
    clearance = CLEARANCE + text("partner")

    def end() -> None:
        if clearance in desk.machine.rows:
            raise ProcessEndedError

    desk.machine.watch = end
    with pytest.raises(ProcessEndedError):
        desk.grant(1, "partner", "fine")
    assert [grant.open for grant in decode(ClearanceRow, desk.machine.rows[clearance]).grants] == [True]
    desk.machine.watch, desk.keys = desk.auditor, RETIRED
    desk.reader.restart()
    assert revisions(desk, "partner") == [(0, 1, "coarse"), (1000, 1, "coarse")]
    assert [grant.open for grant in decode(ClearanceRow, desk.machine.rows[clearance]).grants] == [False]
    desk.auditor.settled()


@pytest.mark.parametrize("kind", [TABLE, OUTBOX, WINDOW])
def test_records_that_wait_when_their_key_is_retired_leave_with_the_bytes_they_have(kind: bytes) -> None:
    """The bytes of a record are fixed before its slot, so its key is not needed any more."""
    desk = Desk(PAGES, until_ms=-1)
    desk.give("pages", 0, CROWD)
    assert any(key.startswith(kind) for key in desk.machine.rows)
    desk.keys, desk.until_ms = RETIRED, None
    desk.reader.restart()
    assert revisions(desk, "public") == [(0, 1, "coarse")]
    assert_read_with_their_own_keys(desk, RING)


# -- names ----------------------------------------------------------------------------------------------------------


def test_the_id_of_a_key_names_it_and_is_no_part_of_it() -> None:
    key = PrfKey.of(bytes(range(32)))
    assert key.id == "c08aa03ad1d5dac7"
    assert key.id not in bytes(range(32)).hex()
    assert PrfKey.of(bytes(32)).id != key.id


def test_an_application_is_known_by_its_first_key_even_when_that_is_retired() -> None:
    assert KEYS.application == RING.application == RETIRED.application == FIRST_ID
    assert (KEYS.newest, RING.newest, RETIRED.newest) == (
        (FIRST_ID, KEY),
        (SECOND_ID, SECOND),
        (SECOND_ID, SECOND),
    )


def test_what_is_printed_of_a_key_does_not_tell_it() -> None:
    assert KEY.hex() not in repr(RING)
    assert str(KEY) not in repr(RING)
