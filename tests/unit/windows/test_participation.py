"""Bound on the windows of a period that a user is counted in: what one user changes, crashes, erasure, and mutants."""

from __future__ import annotations

import hmac
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest

from stream_dp.windows.bounding import Admission, bound_chunk
from stream_dp.windows.count_rows import MARKER
from stream_dp.windows.counting import CountedPartition, PartitionCounter
from stream_dp.windows.effects import Message, NoRows, Step
from stream_dp.windows.encoding import encode, text, window_key
from stream_dp.windows.events import EventDecoder
from stream_dp.windows.open_windows import OpenWindow, WindowMemory
from stream_dp.windows.participation import ENTERED, PERIOD_KEY, Participation
from stream_dp.windows.rekeying import RekeyedBatch, RekeyedCounter, RekeyedEvent
from stream_dp.windows.shapes.tumbling import Tiling
from stream_dp.windows.views import CountedView, ParticipationBound
from tests.support.chosen import every
from tests.support.counting import FORM, PARTIALS, Cabinet, Entry, counter, event, handed_on, loaded, totals, view
from tests.support.machine import Machine, deliver

Told = tuple[str, int, str]
"""An event: the user, the number or start of its window of 10 ms, and the item."""
Counts = dict[int, Counter[str]]
PERIOD = Tiling(30)


def bounded(most: int, **changes: Any) -> CountedView:
    return view(max_ahead_ms=1000, participation=ParticipationBound(most, changes.pop("periods", PERIOD)), **changes)


def counts(one: CountedView, events: Sequence[Told], chunks: Sequence[int] = ()) -> tuple[Counts, dict[Told, int]]:
    """The counts of every window, and how often each contribution was taken; read in chunks that end at some places."""
    bound, windows = one.participation, dict[int, OpenWindow]()
    assert bound is not None
    entered, decoder = Participation(one, bound, NoRows(), lambda: bytes(32)), EventDecoder(FORM)
    taken: Counter[Told] = Counter()
    ends = sorted({*chunks, len(events)})
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        some = [event(at, user, item, 10 * window + 1) for at, (user, window, item) in enumerate(events[first:end])]
        column = decoder.decode(some).columns[0]
        out = bound_chunk(one, windows, column, Admission(0, 100, 0, participation=entered))
        for start, row in out.added.items():
            taken += Counter((user.decode(), start, item) for user, item in zip(row.users, row.items, strict=True))
    found = {start: Counter(dict(window.counts())) for start, window in windows.items()}
    return {start: table for start, table in found.items() if table}, taken


def without(user: str, events: Sequence[Told]) -> list[Told]:
    return [told for told in events if told[0] != user]


def check_one_user_changes_few_windows(one: CountedView, events: Sequence[Told], most: int) -> None:
    """A user changes at most `most` windows of a period, each in few counts by one, and takes nothing from others."""
    whole, taken = counts(one, events)
    for user in {told[0] for told in events}:
        rest, others = counts(one, without(user, events))
        assert {told: n for told, n in taken.items() if told[0] != user} == others, "what others add depends on a user"
        changed = {start: whole.get(start, Counter()) - rest.get(start, Counter()) for start in whole}
        periods = Counter(PERIOD.start_of(start) for start, more in changed.items() if more)
        assert all(number <= most for number in periods.values()), "a user is counted in more windows of a period"
        assert all(more.total() <= one.items_per_user for more in changed.values())
        assert all(set(more.values()) <= {1} for more in changed.values())


def sequences(length: int) -> Iterator[tuple[Told, ...]]:
    return product(product("uv", range(3), "ab"), repeat=length)


@pytest.mark.parametrize(
    ("length", "every"),
    [(3, 1), pytest.param(4, 1, marks=pytest.mark.slow), pytest.param(6, 401, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("most", [1, pytest.param(2, marks=pytest.mark.slow), 3])
def test_whatever_comes_a_user_changes_no_more_windows_than_the_bound(length: int, every: int, most: int) -> None:
    """Two users, three windows of a period, two items: every sequence of events; of the longest, one in 401."""
    one = bounded(most)
    for number, events in enumerate(sequences(length)):
        if number % every == 0:
            check_one_user_changes_few_windows(one, events, most)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
@pytest.mark.parametrize("shape", ["tumbling", "hopping", "running"])
def test_over_several_periods_and_however_it_is_read_a_user_changes_no_more(shape: str, seed: int) -> None:
    """Windows that hop are entered three by one event, and those of 30 ms at once tile two periods of 60 ms."""
    chance = random.Random(seed)
    one = {
        "tumbling": bounded(2),
        "hopping": bounded(3, length_ms=30, step_ms=10, periods=Tiling(60)),
        "running": bounded(1, bounds=Tiling(20), periods=Tiling(60), items_per_user=3),
    }[shape]
    for _ in range(150):
        events = [
            (chance.choice("uvw"), chance.randrange(9), chance.choice("abc")) for _ in range(chance.randrange(25))
        ]
        whole = counts(one, events)
        assert counts(one, events, [chance.randrange(26) for _ in range(4)]) == whole, (
            "it depends on what one fetch brings"
        )
        for user in "uvw":
            rest, others = counts(one, without(user, events))
            assert {told: n for told, n in whole[1].items() if told[0] != user} == others
            assert one.participation is not None
            units = {one.unit(start, _tiling(one, start)) for start in whole[0] if whole[0][start] != rest.get(start)}
            periods = Counter(period.start_ms for unit in units if (period := one.participation.period_of(unit)))
            assert all(number <= one.participation.most for number in periods.values())


def _tiling(one: CountedView, start: int) -> Any:
    return next(tiling for tiling in one.windows.tilings if tiling.start_of(start) == start)


def test_windows_that_are_in_no_period_alone_use_nothing_up() -> None:
    """Windows of 20 ms hop by 10; that of 20 is in two periods of 30, so it is not released."""
    one = bounded(2, length_ms=20, step_ms=10)
    found, _ = counts(one, [("u", 2, "a"), ("u", 0, "a"), ("u", 1, "b"), ("u", 1, "c")])
    assert sorted(found) == [0, 10, 20]
    assert found[20] == Counter("a"), "it is counted, whatever was entered, since nobody sees it"


def test_pacing_lets_a_user_enter_more_windows_as_the_period_goes_on() -> None:
    bound = ParticipationBound(20, Tiling(1000), "even")
    period = Tiling(1000).interval(0)
    assert [bound.most_by(period, time, 1) for time in (0, 1, 50, 51, 500, 899, 900, 999)] == [
        2,
        3,
        3,
        4,
        12,
        20,
        20,
        20,
    ]
    assert [bound.most_by(period, time, 4) for time in (0, 1, 200, 201, 999)] == [1, 2, 2, 3, 5]
    one = view(max_ahead_ms=1000, participation=ParticipationBound(2, PERIOD, "even"))
    events = [("u", 0, "a"), ("u", 1, "a"), ("u", 2, "a")]
    assert sorted(counts(one, events)[0]) == [0, 10], "ceil(2 * 1/30) + 1 windows at once"
    paced = view(max_ahead_ms=1000, participation=ParticipationBound(3, Tiling(90), "even"))
    assert sorted(counts(paced, [("u", 0, "a"), ("u", 1, "a"), ("u", 2, "a"), ("u", 8, "a")])[0]) == [0, 10, 80]


# -- crashes and erasure ----------------------------------------------------------------------------------------------

FEW = view("few", buckets=1, max_ahead_ms=1000, participation=ParticipationBound(1, PERIOD))
DAY = [
    [event(0, "u", "a", 1), event(1, "v", "a", 12), event(2, "u", "b", 13)],
    [event(3, "u", "b", 2), event(4, "v", "b", 3), event(5, "w", "c", 25), event(6, "x", "c", 35)],
    [event(7, "x", "a", 41), event(8, "w", "c", 26), event(9, "w", "a", 31)],
]
COUNTED = {0: {"a": 1, "b": 1}, 10: {"a": 1}, 20: {"c": 1}, 30: {"c": 1, "a": 1}, 40: {}, 50: {}, 60: {}}


def steps() -> list[Callable[[PartitionCounter], Step]]:
    def chunk(at: int) -> Callable[[PartitionCounter], Step]:
        return lambda one: one.chunk(DAY[at], at + 1)

    def tick(now: int) -> Callable[[PartitionCounter], Step]:
        return lambda one: one.ticks([now])

    return [chunk(0), chunk(1), tick(16), chunk(2), tick(40), tick(75), tick(76)]


def play(cuts: Sequence[int] = (), again: int = 0) -> Machine:
    machine = Machine()
    deliver(machine, lambda: counter(FEW), steps(), cuts=cuts, again=again)
    return machine


def secrets(machine: Machine) -> list[bytes]:
    """Keys of periods that were deleted and still stand in some file."""
    return [value for key, value in machine.outdated if key.startswith(PERIOD_KEY) and value]


@pytest.mark.parametrize("again", [0, 2])
def test_wherever_a_run_is_cut_users_have_entered_what_they_had(again: int) -> None:
    whole = play()
    assert handed_on(whole.sent) == {"few": COUNTED}
    refused = totals(whole)["events_refused", (("reason", "participation"), ("view", "few"))]
    assert refused == 3, "u in 10, v in 0, x in 40"
    for cut in range(whole.points):
        machine = play([cut], again)
        assert handed_on(machine.sent) == {"few": COUNTED}
        assert machine.rows.keys() == {MARKER + text("visits")}
        assert machine.unerased(ENTERED) == secrets(machine) == []
        assert totals(machine) == totals(whole)


@every(8)
def test_a_recovery_that_is_cut_as_well_changes_nothing(step: int) -> None:
    for cut in range(0, play().points, step):
        for second in range(12):
            machine = play([cut, second], 1)
            assert handed_on(machine.sent) == {"few": COUNTED}
            assert machine.rows.keys() == {MARKER + text("visits")}


def rekeyed() -> RekeyedCounter:
    return RekeyedCounter(
        CountedPartition("visits", 0),
        [FEW],
        lambda _: EventDecoder(FORM),
        outlet=lambda partial: Message(PARTIALS, partial.key, encode(partial)),
        dead_letters=lambda *_: Message("letters", None, b""),
        configured=["few"],
        memory=WindowMemory(1 << 30, Cabinet()),
        source_partitions=2,
        life=1,
    )


def batch(offset: int, partition: int, *events: Entry, ticks: Sequence[int] = ()) -> Entry:
    sent = [RekeyedEvent(one.offset, 0, one.key or b"", one.value or b"") for one in events]
    return Entry(offset, None, encode(RekeyedBatch(partition, 1, sent, [], ticks)))


def test_users_of_a_source_that_is_re_keyed_enter_in_the_order_in_which_their_batches_come() -> None:
    """Several batches are stored together, and what one of them adds to a user counts for the next."""
    chunks = [
        [batch(0, 0, event(0, "u", "a", 1)), batch(1, 1, event(0, "u", "b", 12), event(1, "v", "b", 13))],
        [batch(2, 0, event(1, "v", "a", 2)), batch(3, 0, ticks=[75]), batch(4, 1, event(2, "u", "c", 3), ticks=[75])],
        [batch(5, 0, ticks=[76])],
    ]
    steps: list[Callable[[RekeyedCounter], Step]] = [lambda one, some=some: one.chunk(some, 1) for some in chunks]  # type: ignore[misc]
    counted = {0: {"a": 1, "c": 1}, 10: {"b": 1}} | {start: {} for start in range(20, 70, 10)}
    whole = Machine()
    deliver(whole, rekeyed, steps)
    for cut in range(whole.points):
        machine = Machine()
        deliver(machine, rekeyed, steps, cuts=[cut], again=1)
        assert handed_on(machine.sent) == {"few": counted}
        assert machine.rows.keys() == {MARKER + text("visits")}


def test_when_a_period_is_over_its_rows_and_its_key_are_gone_and_those_of_the_next_stay() -> None:
    machine = Machine()
    deliver(machine, lambda: counter(FEW), steps()[:-3])

    def periods(kind: bytes) -> set[bytes]:
        return {key[: len(kind) + len(text("few")) + 8] for key in machine.rows if key.startswith(kind)}

    assert len(periods(ENTERED)) == len(periods(PERIOD_KEY)) == 2
    keys = {value for key, value in machine.rows.items() if key.startswith(PERIOD_KEY)}
    assert len(keys) == 2, "each period has a key of its own"
    deliver(machine, lambda: counter(FEW), steps()[-3:-2])
    assert len(periods(ENTERED)) == len(periods(PERIOD_KEY)) == 1
    assert machine.unerased(ENTERED) == secrets(machine) == []


def test_users_stand_there_under_pseudonyms_that_the_key_of_the_period_makes() -> None:
    machine, names = Machine(), ["somebody-there", "somebody-else"]
    chunk = [event(at, name, "a", 1) for at, name in enumerate(names)]
    machine.carry_out(loaded(machine, FEW).chunk(chunk, 5))
    keys = [key for key in machine.rows if key.startswith(ENTERED)]
    (secret,) = (value for key, value in machine.rows.items() if key.startswith(PERIOD_KEY))
    assert {key[-16:] for key in keys} == {hmac.digest(secret, name.encode(), "sha256")[:16] for name in names}
    assert not any(b"somebody" in key for key in keys)


def test_a_view_that_is_gone_leaves_nothing() -> None:
    machine = Machine()
    deliver(machine, lambda: counter(FEW), steps()[:2])
    assert any(key.startswith(ENTERED) for key in machine.rows)
    rows = dict(machine.rows)
    points = machine.points
    deliver(machine, lambda: counter(view("other")), [])
    for cut in range(machine.points - points):
        machine = Machine(dict(rows))
        deliver(machine, lambda: counter(view("other")), [], cuts=[cut])
        assert not any(key.startswith((ENTERED, PERIOD_KEY)) for key in machine.rows)
        assert machine.unerased(ENTERED) == secrets(machine) == []


# -- mutants ----------------------------------------------------------------------------------------------------------


def _nothing_rolled_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participation, "rolled_back", lambda *_: iter(()))


def _forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participation, "stored", lambda self, _offset: self._numbers.clear() or [])


def _kept_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participation, "erased", lambda *_: iter(()))


@pytest.mark.parametrize("mutant", [_nothing_rolled_back, _forgotten_at_a_restart, _kept_for_ever])
def test_state_that_is_kept_wrongly_is_found_out(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            test_wherever_a_run_is_cut_users_have_entered_what_they_had(1)


def _one_window_too_many(patch: pytest.MonkeyPatch) -> None:
    right = ParticipationBound.most_by
    patch.setattr(ParticipationBound, "most_by", lambda self, *given: right(self, *given) + 1)


def _each_window_by_itself(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Participation, "_place", lambda _self, unit, _: window_key(ENTERED, "pages", unit.start_ms))
    patch.setattr(Participation, "_key", lambda _self, place, user: place + user)


def _all_users_together(patch: pytest.MonkeyPatch) -> None:
    right = Participation.enters
    patch.setattr(Participation, "enters", lambda self, *given: lambda _user, time: right(self, *given)(b"all", time))


@pytest.mark.parametrize("mutant", [_one_window_too_many, _each_window_by_itself, _all_users_together])
def test_a_bound_that_lets_a_user_change_more_is_found_out(mutant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            test_whatever_comes_a_user_changes_no_more_windows_than_the_bound(3, 1, 1)
