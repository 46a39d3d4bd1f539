"""Properties of what the simulator predicts, on random applications and transcripts (sections 3 and 12.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from stream_dp.accounting import Cost
from tests.transcript.predictions import Entry, Prediction, Record
from tests.transcript.simulator import simulate
from tests.transcript.stories import LEVELS, PARTITIONS, SECONDS, Story, story, with_plans
from tests.transcript.tapes import SECOND
from tests.transcript.transcript import Grant, PartitionEvent, Tick, Transcript

FEW = 6
MANY = 150

ordinary = pytest.mark.parametrize("seed", range(FEW))
slow = pytest.mark.slow


@ordinary
def test_predictions_are_consistent(seed: int) -> None:
    check_consistency(story(seed))


@ordinary
def test_orders_that_must_not_matter_do_not(seed: int) -> None:
    check_permutations(story(seed))


@ordinary
def test_later_ticks_change_nothing_before(seed: int) -> None:
    check_causality(story(seed))


@ordinary
def test_tick_that_closes_nothing_changes_nothing(seed: int) -> None:
    check_quiet_tick(story(seed))


@slow
@pytest.mark.parametrize("seed", range(FEW, MANY))
def test_many_stories(seed: int) -> None:
    told = story(seed)
    check_consistency(told)
    check_permutations(told)
    check_causality(told)
    check_quiet_tick(told)


@slow
def test_stories_reach_every_kind_of_decision() -> None:
    """Stories without lowerings or interrupted windows would show nothing about them."""
    records: list[Record] = []
    for seed in range(60):
        for prediction in simulate(story(seed).transcript).values():
            records += prediction.records
    decided = {(record.kind, record.reason, record.place.stage) for record in records}
    assert decided >= {
        ("view", None, 1),
        ("release", None, 1),
        ("release", None, 2),
        ("release", None, 3),
        ("release", None, 4),
        ("refusal", "budget", 1),
        ("refusal", "budget", 2),
        ("refusal", "budget", 3),
        ("refusal", "lost", 2),
        ("tombstone", None, 2),
        ("tombstone", None, 5),
    }
    assert any(record.voided_ms is not None for record in records)
    assert any(record.is_interrupted for record in records)


# Consistency


def check_consistency(told: Story) -> None:
    for population, prediction in simulate(told.transcript).items():
        number = told.transcript.ledgers[population]
        ticks = {event.time_ms // SECOND * SECOND for event in _ticks(told.transcript.partitions[number])}
        assert {record.place.tick_ms for record in prediction.records} <= ticks
        check_order(prediction)
        check_topics(prediction)
        check_charges(prediction.entries)


def check_order(prediction: Prediction) -> None:
    """Events come by tick and stage."""
    for places in ([one.place for one in prediction.records], [one.place for one in prediction.entries]):
        order = [(place.tick_ms, place.stage) for place in places]
        assert order == sorted(order)


def check_topics(prediction: Prediction) -> None:
    topics: dict[tuple[str, str], list[Record]] = {}
    for record in prediction.records:
        topics.setdefault(record.topic, []).append(record)
    for records in topics.values():
        assert [record.number for record in records] == list(range(1, len(records) + 1))
        assert [record.slot_ms for record in records] == sorted(record.slot_ms for record in records)
        assert all(record.slot_ms >= record.place.tick_ms for record in records)
        check_windows(records)


def check_windows(records: Sequence[Record]) -> None:
    """For each window, revisions count on, levels of records that leave rise, and nothing follows its tombstone."""
    windows: dict[tuple[int, int | None, int | None], list[Record]] = {}
    for record in records:
        windows.setdefault((record.edition, record.start_ms, record.end_ms), []).append(record)
    for (_, start_ms, _), own in windows.items():
        if start_ms is None:
            continue
        releases = [record for record in own if record.kind == "release"]
        assert [record.revision for record in releases] == list(range(1, len(releases) + 1))
        levels = [LEVELS.index(record.level or "") for record in releases if record.voided_ms is None]
        assert levels == sorted(set(levels))
        assert all(record.kind != "tombstone" for record in own[:-1])
        first = [record for record in own if record.place.stage == 2 and record.revision == 1]
        assert len(first) <= 1 or first[0].kind == "release"


def check_charges(entries: Sequence[Entry]) -> None:
    """The amount spent never falls and stays within the caps, and the caps of a period do not change."""
    spent: dict[tuple[int, int], Cost] = {}
    budgets: dict[tuple[int, int], Cost] = {}
    for entry in entries:
        assert entry.charge != Cost.ZERO
        assert entry.spent <= entry.budget
        assert spent.get(entry.period, Cost.ZERO) <= entry.spent
        assert budgets.setdefault(entry.period, entry.budget) == entry.budget
        spent[entry.period] = entry.spent


# What must not matter


def check_permutations(told: Story) -> None:
    """The order of views, audiences and ledgers in the file, of partitions and of lists is not in the transcript."""
    expected = simulate(told.transcript)
    assert simulate(with_plans(told, backwards=True)) == expected
    partitions = {
        number: told.transcript.partitions[number] for number in sorted(told.transcript.partitions, reverse=True)
    }
    ledgers = {name: told.transcript.ledgers[name] for name in sorted(told.transcript.ledgers, reverse=True)}
    assert simulate(replace(told.transcript, partitions=partitions, ledgers=ledgers)) == expected


def check_causality(told: Story) -> None:
    """The decisions of a transcript that ends earlier are the first ones of the whole."""
    whole = simulate(told.transcript)
    end_ms = (SECONDS // 2 + told.seed % 50) * SECOND
    for population, prediction in simulate(_until(told.transcript, end_ms)).items():
        found = [replace(record, voided_ms=None) for record in prediction.records]
        expected = [replace(record, voided_ms=None) for record in whole[population].records]
        assert found == expected[: len(found)]
        assert prediction.entries == whole[population].entries[: len(prediction.entries)]


def check_quiet_tick(told: Story) -> None:
    """A tick about no source, at which no event becomes due, changes no decision."""
    whole = simulate(told.transcript)
    for number in range(PARTITIONS):
        populations = [name for name, own in told.transcript.ledgers.items() if own == number]
        busy: set[int] = set()
        for name in populations:
            busy.update(one.place.tick_ms for one in whole[name].records)
            busy.update(one.place.tick_ms for one in whole[name].entries)
        busy |= {whole[name].until_ms or 0 for name in populations}
        events = _with_quiet_ticks(told.transcript, number, busy)
        partitions = {**told.transcript.partitions, number: events}
        assert simulate(replace(told.transcript, partitions=partitions)) == whole


def _with_quiet_ticks(transcript: Transcript, number: int, busy: set[int]) -> tuple[PartitionEvent, ...]:
    """The events of a partition, with a tick more in each place where two are more than a second apart."""
    events = transcript.partitions[number]
    ticks = _ticks(events)
    following = {one.time_ms: other for one, other in pairwise(ticks)}
    found: list[PartitionEvent] = []
    for event in events:
        found.append(event)
        if not isinstance(event, Tick) or event.time_ms not in following:
            continue
        after = following[event.time_ms]
        added_ms = event.time_ms // SECOND * SECOND + SECOND
        is_due = after.time_ms // SECOND * SECOND in busy or _grant_is_due(transcript, event.time_ms, added_ms)
        if added_ms < after.time_ms // SECOND * SECOND and not is_due:
            found.append(Tick(added_ms, event.control_end, frozenset()))
    return tuple(found)


def _grant_is_due(transcript: Transcript, after_ms: int, until_ms: int) -> bool:
    """Whether the time of a grant comes between two ticks; its rank goes by the tick that carries it out."""
    times = [one.at_ms for one in transcript.control if isinstance(one, Grant) and one.at_ms is not None]
    return any(after_ms // SECOND * SECOND < time_ms <= until_ms for time_ms in times)


def _until(transcript: Transcript, end_ms: int) -> Transcript:
    partitions: dict[int, tuple[PartitionEvent, ...]] = {}
    for number, events in transcript.partitions.items():
        kept: list[PartitionEvent] = []
        for event in events:
            if isinstance(event, Tick) and event.time_ms >= end_ms:
                break
            kept.append(event)
        partitions[number] = tuple(kept)
    return replace(transcript, partitions=partitions)


def _ticks(events: Sequence[PartitionEvent]) -> list[Tick]:
    return [event for event in events if isinstance(event, Tick)]
