"""Windows past their retention: their records, their tables and their secrets go together, whatever crashes cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.config.forecast import withdrawn
from stream_dp.config.plan import Plan
from stream_dp.exact.bits import BitSource, KeyedBits
from stream_dp.kinds import sealing
from stream_dp.records.models import Refusal
from stream_dp.releases import expiry, outboxes, releasing
from stream_dp.releases.expiry import EXPIRED_AT_ONCE
from stream_dp.releases.rows import WINDOW
from stream_dp.windows.effects import Commit, Erase, Publish, Step
from stream_dp.windows.encoding import text, window_key
from tests.support.chosen import every, ordinarily
from tests.support.expiring import assert_rows_expired, rows_of, secrets_of, standing
from tests.support.machine import newest
from tests.support.releasing import ONLY_PAGES, Desk, plan, release_topic

HOME = {"home": 40, "cart": 12}
RETENTION = "retention: 1h\n    buckets: 2"


def retained(time: str, *changes: tuple[str, str]) -> Plan:
    return plan(ONLY_PAGES, (RETENTION, f"retention: {time}\n    buckets: 2"), *changes)


SHORT = retained("2s", ('epsilon: "40"', 'epsilon: "11"'))
"""Windows are kept until a third one behind them is released. A period pays for three windows and one grant."""


class FreshEntropy:
    """Entropy that never repeats: what is drawn twice differs."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, context: bytes) -> BitSource:
        self.calls += 1
        return KeyedBits(b"fresh %d" % self.calls, context)


def play(desk: Desk) -> Desk:
    """Ten windows, an empty one and refused ones among them; grants that are paid for and refused; a last restart."""
    for start in range(0, 10_000, 1000):
        desk.give("pages", start, {} if start == 3000 else HOME)
        if start in (1000, 5000, 6000):
            desk.grant(start, "public", "fine" if start == 6000 else "middle")
    desk.machine.cut_after = None
    desk.reader.restart()
    return desk


def windows_of(keys: set[bytes]) -> set[int]:
    return {int(key.split(b"/")[2]) for key in keys}


def assert_expired_whole(desk: Desk, kept: set[int]) -> None:
    """Of expired windows nothing is left in rows, topics and files; of others all."""
    desk.auditor.settled()
    assert windows_of(standing(desk)) == kept
    assert_rows_expired(desk, kept)


WHOLE = play(Desk(SHORT))
KEPT = {7000, 8000, 9000}


# -- what expires ---------------------------------------------------------------------------------------------------


def test_of_a_window_past_its_retention_no_record_no_table_and_no_secret_stays() -> None:
    assert_expired_whole(WHOLE, KEPT)
    kinds = {(type(record) is Refusal, record.revision) for record in WHOLE.records("pages", "public")}
    assert kinds >= {(False, 1), (False, 2), (True, 1), (True, 2)}, "releases and refusals of all sorts were published"


def test_as_many_windows_are_withdrawn_as_a_start_on_history_says() -> None:
    view = SHORT.views["pages"]
    view = replace(view, window=replace(view.window, first_ms=0))
    assert withdrawn(view, 10_000 + view.window.grace_ms) == 10 - len(KEPT)


def test_every_part_of_a_large_release_is_taken_back_from_who_has_it_and_nothing_from_others() -> None:
    desk = Desk(retained("1s", ('middle, epsilon: "2"', 'middle, epsilon: "3"'), ('epsilon: "40"', 'epsilon: "90"')))
    desk.give("pages", 0, {f"{'page' * 200} {number}": 40 for number in range(1500)})
    desk.grant(1, "partner", "fine")
    parts = {
        audience: {key for key in standing(desk) if b"/%s/" % audience.encode() in key}
        for audience in desk.plan.audiences
    }
    assert min(map(len, parts.values())) > 1
    for start in (1000, 2000):
        desk.give("pages", start, HOME)
    for audience, keys in parts.items():
        topic = release_topic("pages", audience)
        assert {one.key for one in desk.published() if one.topic == topic and one.value is None} == keys
    assert windows_of(standing(desk)) == {1000, 2000}


@pytest.mark.parametrize("restarts", [False, True])
def test_windows_that_expired_one_by_one_are_erased_together(restarts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then their rows stand, marked; where the process ends before, their tombstones leave again."""
    with monkeypatch.context() as patch:
        patch.setattr(outboxes.Outboxes, "erase", lambda *_: iter(()))
        desk = play(Desk(SHORT))
    assert windows_of(standing(desk)) == KEPT
    assert {start for _, start in rows_of(desk, WINDOW)} == set(range(0, 10_000, 1000))
    if restarts:
        desk.reader.restart()
    else:
        effects: list[object] = []
        desk.reader.run(lambda engine: noted(engine.outboxes.erase(desk.machine), effects))
        assert [type(effect) for effect in effects] == [Commit, Erase, Erase, Erase, Commit]
    assert_expired_whole(desk, KEPT)


def noted(step: Step, effects: list[object]) -> Step:
    for effect in step:
        effects.append(effect)
        yield effect


def test_refusals_expire_and_let_expire() -> None:
    desk = Desk(retained("2s", ('epsilon: "40"', 'epsilon: "2"'), ("period: 4s", "period: 1h")))
    for start in range(0, 6000, 1000):
        desk.give("pages", start, HOME)
    assert [record.type for record in desk.records("pages", "staff")] == ["release", *["refusal"] * 5]
    assert_expired_whole(desk, {3000, 4000, 5000})


def test_a_shortened_retention_takes_back_at_the_next_window_in_bounded_steps() -> None:
    desk = Desk(retained("1h", ('"40"', '"400"'), ('"1/5"', '"9/10"'), ("4s", "1h"), ('"1/100"', '"1/10000"')))
    for start in range(0, 30_000, 1000):
        desk.give("pages", start, HOME)
    desk.change(retained("2s", ('"40"', '"400"'), ('"1/5"', '"9/10"'), ("4s", "1h"), ('"1/100"', '"1/10000"')))
    assert len(windows_of(standing(desk))) == 30
    commits: list[int] = []
    real, publisher = expiry.Retention.expire, pytest.MonkeyPatch()

    def watched(self: Any, view: Any, slot_ms: int) -> Step:
        for effect in real(self, view, slot_ms):
            if isinstance(effect, Commit):
                commits.append(sum(key.startswith(WINDOW) for key, _ in effect.rows))
            yield effect

    with publisher.context() as patch:
        patch.setattr(expiry.Retention, "expire", watched)
        desk.give("pages", 30_000, HOME)
    assert_expired_whole(desk, {28_000, 29_000, 30_000})
    assert commits == [EXPIRED_AT_ONCE] * 3 + [4]


def test_a_window_that_expires_is_not_sharpened_and_needs_no_key_any_more() -> None:
    """Between the mark and the slot of the tombstones the row stands."""
    desk = Desk(SHORT)
    for start in (0, 1000, 2000):
        desk.give("pages", start, HOME)
    desk.until_ms = 0
    desk.reader.restart()
    desk.give("pages", 3000, HOME)
    assert desk.row("pages", 0).expires
    desk.grant(1, "public", "middle")
    assert desk.row("pages", 0).states["public"].revision == 1
    assert desk.row("pages", 1000).states["public"].revision == 2


def test_an_audience_that_was_taken_out_keeps_what_it_has() -> None:
    desk = Desk(SHORT)
    for start in (0, 1000, 2000):
        desk.give("pages", start, HOME)
    audiences = f"{RETENTION.replace('1h', '2s')}\n    audiences: [public, staff]"
    desk.change(plan(ONLY_PAGES, (RETENTION, audiences), ('epsilon: "40"', 'epsilon: "11"')))
    for start in (3000, 4000, 5000):
        desk.give("pages", start, HOME)
    assert {key for key in standing(desk) if windows_of({key}) == {0}} == {b"pages/partner/0"}


# -- in which order -------------------------------------------------------------------------------------------------


def test_tombstones_leave_at_a_slot_behind_the_newest_release() -> None:
    desk = Desk(SHORT, until_ms=0)
    for start in (0, 1000, 2000, 3000):
        desk.give("pages", start, HOME, closed_ms=10_000 + start)
    desk.slot(15_000)  # of the window that starts at 3000
    assert windows_of(standing(desk)) == {0, 1000, 2000, 3000}
    desk.slot(17_000)
    assert windows_of(standing(desk)) == {0, 1000, 2000, 3000}
    desk.slot(18_000)
    assert windows_of(standing(desk)) == {1000, 2000, 3000}


def test_when_both_are_late_the_newest_release_leaves_in_front_of_the_tombstones() -> None:
    desk = late()
    sent = [(one.key, one.value is None) for one in desk.published() if one.topic == release_topic("pages", "staff")]
    assert sent == [(b"pages/staff/0", False), (b"pages/staff/1000", False), (b"pages/staff/0", True)]


def late() -> Desk:
    """A window of a view that keeps none but its newest has left; what the next one brings all misses its slot."""
    desk = Desk(retained("1ms"))
    desk.give("pages", 0, HOME)
    desk.until_ms = 0
    desk.reader.restart()
    desk.give("pages", 1000, HOME)
    desk.slot(60_000)
    return desk


# -- wherever a crash cuts ------------------------------------------------------------------------------------------


def cut_runs(step: int, first: int = 0) -> None:
    for cut in range(first, WHOLE.machine.points, step):
        desk = play(Desk(SHORT, cuts=[cut, *([cut % 7] if cut % 3 else [])], back=cut % 4, compacts=cut % 8 > 3))
        assert_expired_whole(desk, KEPT)
        assert desk.machine.rows == WHOLE.machine.rows
        assert newest(desk.published()) == newest(WHOLE.published())


def test_a_run_cut_anywhere_expires_the_same_and_leaves_nothing_over() -> None:
    cut_runs(71)


@pytest.mark.slow
def test_a_run_cut_at_every_point_expires_the_same_and_leaves_nothing_over() -> None:
    cut_runs(1)


@every(5)
def test_a_window_lets_an_older_one_expire_when_it_is_stored_whatever_a_crash_left_out_behind_it(
    step: int,
) -> None:
    """A third window behind one lets it expire; a fourth, which would do so, too, does not come."""

    def given(until: int, *cuts: int) -> Desk:
        desk = Desk(SHORT, cuts=cuts)
        for start in range(0, until, 1000):
            desk.give("pages", start, HOME)
        return desk

    for cut in range(given(3000).machine.points, given(4000).machine.points, step):
        assert_expired_whole(given(4000, cut), {1000, 2000, 3000})


@pytest.mark.parametrize("step", [97, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_cut_anywhere_has_one_secret_for_a_window_and_no_secret_for_two(step: int) -> None:
    """A window that was stored keeps its secret; one whose draw was cut may be drawn anew, with another."""
    for cut in range(0, WHOLE.machine.points, step):
        desk = play(Desk(SHORT, FreshEntropy(), cuts=[cut], back=cut % 3))
        assert_own_secrets(desk)


def assert_own_secrets(desk: Desk) -> None:
    """Every window has had one secret of 32 bytes, and no two have had the same."""
    secrets = secrets_of(desk)
    assert {len(found) for found in secrets.values()} == {1}
    assert len(set().union(*secrets.values())) == len(secrets)
    assert {len(secret) for found in secrets.values() for secret in found} == {32}


# -- mutants --------------------------------------------------------------------------------------------------------


def keeps_the_secret(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expiry, "replace", lambda row, **_: row)


def keeps_the_files(patch: pytest.MonkeyPatch) -> None:
    real = expiry.finished
    patch.setattr(
        outboxes, "finished", lambda windows, rows: (one for one in real(windows, rows) if not isinstance(one, Erase))
    )


def keeps_the_table(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expiry, "forgotten_table", lambda *_: [])


def forgets_the_row_first(patch: pytest.MonkeyPatch) -> None:
    """The row goes when its tombstones are stored, not when they have left."""
    real = expiry.Retention.expire

    def hasty(self: Any, view: Any, slot_ms: int) -> Step:
        for effect in real(self, view, slot_ms):
            if isinstance(effect, Commit):
                yield Commit([(key, None if key.startswith(WINDOW) else value) for key, value in effect.rows])
            else:
                yield effect

    patch.setattr(expiry.Retention, "expire", hasty)


def takes_back_at_once(patch: pytest.MonkeyPatch) -> None:
    """Tombstones leave in front of the release that lets the window expire."""
    real = expiry.Retention.expire
    patch.setattr(expiry.Retention, "expire", lambda self, view, slot_ms: real(self, view, slot_ms - 3001))
    patch.setattr(outboxes.Outboxes, "_knows", lambda *_: True)


def forgets_refusals(patch: pytest.MonkeyPatch) -> None:
    real = expiry.Retention._tombstones

    def some(*arguments: Any) -> Any:
        return [one for one in real(*arguments) if not one[1].endswith(b"/refusal")]

    patch.setattr(expiry.Retention, "_tombstones", some)


def one_secret_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(releasing, "own_secret", lambda _, entropy: sealing.own_secret(b"", entropy))


def expires_the_newest(patch: pytest.MonkeyPatch) -> None:
    real = expiry.Retention._horizon
    patch.setattr(expiry.Retention, "_horizon", lambda self, view: real(self, view) + 3001)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    keeps_the_secret,
    keeps_the_files,
    keeps_the_table,
    forgets_the_row_first,
    takes_back_at_once,
    forgets_refusals,
    one_secret_for_all,
    expires_the_newest,
]


@pytest.mark.parametrize("mutant", ordinarily(2, MUTANTS), ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_found(mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def tests() -> None:
        desk = play(Desk(SHORT))
        assert_expired_whole(desk, KEPT)
        assert_own_secrets(desk)
        late()

    tests()
    mutant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        tests()


def test_a_row_that_expires_is_known_by_its_mark_and_names_no_key() -> None:
    """What is not marked keeps its key; nobody reads a window whose row names none."""
    desk = Desk(SHORT, until_ms=0)
    for start in (0, 1000, 2000, 3000):
        desk.give("pages", start, HOME)
    marked = [(row.expires, bool(row.key_id), bool(row.secret)) for row in (desk.row("pages", s) for s in (0, 1000))]
    assert marked == [(True, False, True), (False, True, True)]
    assert window_key(WINDOW, "pages", 0).startswith(WINDOW + text("pages"))
    assert not any(isinstance(one, Publish) for one in desk.machine.sent)
