"""Levels in the simulator when settings change, and events that come directly after a window by watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.transcript.tapes import Placed, accepted, first_settings, lines, predict, shop, tape
from tests.transcript.transcript import Grant, Watermark

ONE_READER = {"public": "coarse"}
EVENT: dict[str, str] = {"clock": "event", "idle": "1h"}


def changed(former: Mapping[str, Any], latter: Mapping[str, Any], **sections: Any) -> list[str]:
    """Settings that change audiences, known at 13, with a new edition of the view from 30 on."""
    control = first_settings(shop(audiences=former))
    control += accepted(2, shop(audiences=latter, **sections), {"pages": 30}, at=13)
    return lines(predict(tape(control, ticks=range(43))))


# Settings


def test_level_that_settings_raise_begins_with_their_edition() -> None:
    assert [line.split()[4] for line in changed({"public": "coarse"}, {"public": "fine"})] == [
        "coarse",
        "coarse",
        "coarse",
        "fine",
    ]


def test_level_that_settings_lower_holds_at_once() -> None:
    assert [line.split()[4] for line in changed({"public": "fine"}, {"public": "coarse"})] == [
        "fine",
        "coarse",
        "coarse",
        "coarse",
    ]


def test_windows_of_former_audiences_go_to_the_present_ones() -> None:
    """Their level is no finer than the finest of the former ones."""
    found = changed({"public": "coarse"}, {"staff": "fine"})
    assert [line.split()[2:5] for line in found] == [
        ["pages/public", "0", "coarse"],
        ["pages/staff", "0", "coarse"],
        ["pages/staff", "10", "coarse"],
        ["pages/staff", "20", "coarse"],
        ["pages/staff", "30", "fine"],
    ]


def test_level_missing_in_a_former_ladder_becomes_the_finest_affordable() -> None:
    """A guest of level medium, epsilon 2, gets coarse, epsilon 1, of windows of the former ladder."""
    names = (("coarse", "1"), ("medium", "2"), ("fine", "3"))
    ladders = {"standard": [{"level": name, "epsilon": at} for name, at in names]}
    found = changed({"public": "fine"}, {"public": "fine", "guest": "medium"}, ladders=ladders)
    assert [line.split()[4] for line in found if "guest" in line] == ["coarse", "coarse", "coarse", "medium"]


def test_removed_view_releases_its_last_windows() -> None:
    views: dict[str, dict[str, Any]] = {"gone": {}, "pages": {}}
    control = first_settings(shop(views=views, audiences=ONE_READER))
    control += accepted(2, shop(audiences=ONE_READER), {}, at=5, gone=20)
    control.append((30, Grant("g", "public", "fine", views=("gone",))))
    assert lines(predict(tape(control, ticks=range(43))), view="gone") == [
        "12.2 release gone/public 0 coarse r1",
        "22.2 release gone/public 10 coarse r1",
    ]


# Grants


def test_grant_below_the_start_stops_unlocks() -> None:
    unlocking = {"public": {"level": "coarse", "unlock": [{"level": "fine", "after": "6s"}]}}
    control = first_settings(shop(audiences=unlocking))
    control.append((13, Grant("stop", "public", "none", scope="retained")))
    assert lines(predict(tape(control, ticks=range(27)))) == [
        "12.2 release pages/public 0 coarse r1",
        "22.2 release pages/public 10 coarse r1",
        "26.3 release pages/public 10 fine r2",
    ]


def test_grant_is_about_its_windows_and_views() -> None:
    views: dict[str, dict[str, Any]] = {"pages": {}, "other": {}}
    control = first_settings(shop(views=views, audiences=ONE_READER))
    control.append((5, Grant("g", "public", "fine", views=("pages",), from_ms=10_000, until_ms=20_000)))
    found = lines(predict(tape(control, ticks=range(33))))
    assert [line for line in found if "fine" in line] == ["22.2 release pages/public 10 fine r1"]


# By watermark


def watermarks(*placed: tuple[int, int]) -> dict[int, list[Placed]]:
    """Watermarks in both partitions: second of the tick after it, and its own."""
    return {number: [(at, Watermark("visits", second * 1000)) for at, second in placed] for number in (0, 1)}


def test_leftovers_by_watermark_follow_the_window_at_their_time() -> None:
    """Windows of 0 and 10 close at one tick; the run of time 10 comes between them."""
    view = {"sharpen": {"audience": "public", "level": "fine", "every": "20s"}, "window": EVENT}
    plan = shop(view=view, audiences=ONE_READER)
    placed = watermarks((40, 12), (41, 32))
    assert lines(predict(tape(first_settings(plan), ticks=range(35, 45), placed=placed))) == [
        "40.2 release pages/public 0 coarse r1",
        "41.2 release pages/public 10 coarse r1",
        "41.2 release pages/public 10 fine r2",
        "41.2 release pages/public 0 fine r2",
        "41.2 release pages/public 20 coarse r1",
    ]


def test_expiry_by_watermark_follows_its_window() -> None:
    view = {"retention": "15s", "window": EVENT}
    plan = shop(view=view, audiences=ONE_READER)
    placed = watermarks((60, 52))
    found = lines(predict(tape(first_settings(plan), ticks=range(55, 65), placed=placed)))
    assert found[3:] == [
        "60.2 release pages/public 30 coarse r1",
        "60.2 tombstone pages/public 0",
        "60.2 release pages/public 40 coarse r1",
        "60.2 tombstone pages/public 10",
    ]


def test_removed_view_by_watermark_expires_by_another_view() -> None:
    views: dict[str, dict[str, Any]] = {"gone": {"retention": "15s", "window": EVENT}, "pages": {"window": EVENT}}
    control = first_settings(shop(views=views, audiences=ONE_READER))
    control += accepted(2, shop(view={"window": EVENT}, audiences=ONE_READER), {}, at=5, gone=20)
    placed = watermarks((40, 22), (45, 32), (50, 42))
    assert lines(predict(tape(control, ticks=range(80), placed=placed)), kind="tombstone") == [
        "50.2 tombstone gone/public 0"
    ]
