"""The simulator's windows that hop, panes and running totals, against examples that were worked out by hand."""

from __future__ import annotations

from tests.transcript.tapes import SECOND, first_settings, lines, predict, shop, tape
from tests.transcript.transcript import Grant, LossAccepted

ONE_READER = {"public": "coarse"}


def test_hopping_windows_stay_within_a_period() -> None:
    plan = shop(audiences=ONE_READER, view={"window": {"size": "20s", "step": "10s"}}, ledger={"period": "40s"})
    found = predict(tape(first_settings(plan), ticks=range(75)))
    starts = [one.start_ms // SECOND for one in found.records if one.start_ms is not None]
    assert starts == [0, 10, 20, 40, 50]
    assert len(found.entries) == 5


def test_window_of_panes_follows_its_last_pane() -> None:
    """Panes of 10 s are charged one by one; a window of 20 s at every pane has the finest level of both."""
    window = {"size": "20s", "step": "10s", "pane": "10s"}
    plan = shop(audiences=ONE_READER, view={"window": window})
    control = [*first_settings(plan), (33, Grant("g", "public", "fine", until_ms=20_000))]
    found = predict(tape(control, ticks=range(34)))
    assert lines(found) == [
        "22.2 release pages/public 0 coarse r1",
        "32.2 release pages/public 10 coarse r1",
        "33.1 release pages/public 0 fine r2",
    ]
    assert [entry.charge.epsilon for entry in found.entries] == [1, 1, 1, 2, 2]


def test_pane_that_is_refused_refuses_its_windows() -> None:
    window = {"size": "20s", "step": "10s", "pane": "10s"}
    plan = shop(audiences=ONE_READER, view={"window": window})
    placed = {0: [(5, LossAccepted(("pages",), 10_000, 20_000))]}
    assert lines(predict(tape(first_settings(plan), ticks=range(43), placed=placed))) == [
        "22.2 refusal pages/public 0 lost",
        "32.2 refusal pages/public 10 lost",
        "42.2 release pages/public 20 coarse r1",
    ]


def running() -> dict[str, object]:
    return {"kind": "running", "window": {"size": "20s", "pane": "10s"}}


def test_running_totals_are_charged_once_for_the_window() -> None:
    found = predict(tape(first_settings(shop(audiences=ONE_READER, view=running())), ticks=range(43)))
    assert [(one.start_ms, one.end_ms) for one in found.records if one.kind == "release"] == [
        (0, 10_000),
        (0, 20_000),
        (20_000, 30_000),
        (20_000, 40_000),
    ]
    assert [entry.start_ms for entry in found.entries] == [0, 20_000]


def test_grant_covers_a_window_of_running_totals_as_a_whole() -> None:
    """The window has begun at 12, so a grant for windows to come is about the next one."""
    control = first_settings(shop(audiences=ONE_READER, view=running()))
    control.append((15, Grant("g", "public", "fine", scope="future")))
    assert [line.split()[4] for line in lines(predict(tape(control, ticks=range(43))))] == [
        "coarse",
        "coarse",
        "fine",
        "fine",
    ]


def test_totals_of_a_window_use_the_list_of_its_first_pane() -> None:
    plan = shop(audiences=ONE_READER, view={**running(), "catalogue": {"topic": "keys"}})
    transcript = tape(first_settings(plan), ticks=range(43), lists={"keys": [(0, "old"), (15, "new")]})
    found = [one.list_version for one in predict(transcript).records if one.kind == "release"]
    assert found == ["keys=old", "keys=old", "keys=new", "keys=new"]
