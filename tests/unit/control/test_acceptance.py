"""Acceptance of settings: which posted settings are in effect follows from the log alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from stream_dp.control.acceptance import (
    SettingsHistory,
    Use,
    Verdict,
    decode_use,
    decode_verdict,
    encode_decision,
)
from stream_dp.control.editions import Posted

Record = Posted | Verdict | Use
RECORDS = [Posted(number, {}, {}, {}, {}, 0) for number in range(1, 5)]


def states(*decisions: Verdict | Use) -> list[str]:
    """The states of four posted settings after some decisions."""
    found = SettingsHistory.from_records([*RECORDS, *decisions])
    return [found.state(number) for number in range(1, 5)]


def taken_back(number: int, seen: int | None = None) -> Verdict:
    return Verdict(number, 0, "broken", seen=seen, takes_back=True)


def test_first_verdict_on_a_number_counts() -> None:
    accepts = [Verdict(number, 0) for number in range(5)]
    refuses = [Verdict(number, 0, "why") for number in range(5)]

    found = SettingsHistory.from_records([*RECORDS, accepts[1], refuses[1], refuses[2], accepts[2], accepts[3]])
    assert found.accepted == [RECORDS[0], RECORDS[2]]
    assert found.waiting == [RECORDS[3]]
    assert [found.state(number) for number in range(1, 5)] == ["accepted", "refused", "accepted", "waiting"]
    assert [found.reason(number) for number in range(1, 5)] == ["", "why", "", ""]
    assert found.next_number == 5


def test_verdict_out_of_order_does_not_count() -> None:
    first, second, *_ = RECORDS
    assert SettingsHistory.from_records([Verdict(1, 0), first]).waiting == [first]
    assert SettingsHistory.from_records([first, second, Verdict(2, 0)]).waiting == [first, second]


def test_acceptance_that_is_appended_too_late_is_a_refusal() -> None:
    verdict = Verdict(2, 5, latest_ms=9)
    value = encode_decision(verdict)
    assert decode_verdict(b"verdicts/2/x", value, 9) == Verdict(2, 9, latest_ms=9)
    late = decode_verdict(b"verdicts/2/x", value, 10)
    assert late is not None
    assert not late.is_acceptance
    for key, other in [(None, value), (b"verdicts/2/x", None), (b"verdicts/2/x", b"{}"), (b"settings/2/x", value)]:
        assert decode_verdict(key, other, 0) is None


def test_statement_of_use_is_read_back_as_it_was() -> None:
    value = encode_decision(Use(2))
    assert decode_use(b"uses/2/x", value) == Use(2)
    for key, other in [(None, value), (b"uses/2/x", None), (b"uses/2/x", b"{}"), (b"verdicts/2/x", value)]:
        assert decode_use(key, other) is None


def test_accepted_settings_that_no_worker_used_are_taken_back() -> None:
    before: list[Verdict | Use] = [Verdict(1, 0), Use(1), Verdict(2, 0)]
    assert states(*before, taken_back(2)) == ["accepted", "refused", "waiting", "waiting"]
    found = SettingsHistory.from_records([*RECORDS, *before, taken_back(2), Use(2), Verdict(3, 0)])
    assert found.reason(2) == "broken"
    assert [one.number for one in found.accepted] == [1, 3]
    assert (found.used, [one.number for one in found.in_use]) == (1, [1])


@pytest.mark.parametrize("used", [2, 3])
def test_settings_that_a_worker_used_stay(used: int) -> None:
    before: list[Verdict | Use] = [Verdict(1, 0), Verdict(2, 0), Verdict(3, 0), Use(used)]
    assert states(*before, taken_back(2), taken_back(used)) == ["accepted"] * 3 + ["waiting"]


def test_only_the_newest_accepted_settings_are_taken_back() -> None:
    before = [Verdict(1, 0), Verdict(2, 0), Verdict(3, 0), Verdict(4, 0, "refused")]
    assert states(*before, taken_back(2)) == ["accepted"] * 3 + ["refused"]
    assert states(*before, taken_back(3), taken_back(2)) == ["accepted"] + ["refused"] * 3


def test_taking_back_needs_a_reason_and_an_acceptance() -> None:
    assert states(Verdict(1, 0, takes_back=True), taken_back(1)) == ["waiting"] * 4
    assert states(Verdict(1, 0), Verdict(1, 0, takes_back=True)) == ["accepted"] + ["waiting"] * 3


def test_statement_about_unaccepted_settings_does_not_count() -> None:
    found = SettingsHistory.from_records([*RECORDS, Use(1), Verdict(1, 0, "why"), Use(1), Use(9)])
    assert (found.used, found.decisions) == (0, 1)


@pytest.mark.parametrize("between", [Verdict(2, 0, "why"), Use(1)])
def test_verdict_of_a_judge_that_missed_a_decision_does_not_count(between: Verdict | Use) -> None:
    """It was planned after other settings, or given in the belief that no worker runs."""
    number = 3 if isinstance(between, Verdict) else 2
    before = [Verdict(1, 0, seen=0), between]
    assert states(*before, Verdict(number, 0, seen=1)) == states(*before)
    assert states(*before, Verdict(number, 0, seen=2))[number - 1] == "accepted"
    assert states(Verdict(1, 0, seen=0), Use(7), Verdict(2, 0, seen=1))[1] == "accepted", "a statement without effect"


def decisions() -> list[Verdict | Use]:
    numbers = (1, 2, 3)
    accepts = [Verdict(number, 0) for number in numbers]
    return [*accepts, Verdict(2, 0, "why"), *map(taken_back, numbers), *map(Use, numbers)]


def check(log: Sequence[Verdict | Use]) -> None:
    """Follow a log record by record: what a worker uses stays accepted, and verdicts change in one way only."""
    former = SettingsHistory.from_records(RECORDS)
    for end in range(1, len(log) + 1):
        found = SettingsHistory.from_records([*RECORDS, *log[:end]])
        assert {one.number for one in former.in_use} <= {one.number for one in found.in_use}
        for number in former.verdicts:
            change = former.state(number), found.state(number)
            assert change in {("accepted", "accepted"), ("refused", "refused"), ("accepted", "refused")}
            assert change != ("accepted", "refused") or number == former.accepted[-1].number > former.used
        assert found.decisions - former.decisions in (0, 1)
        former = found


@pytest.mark.parametrize("length", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_used_settings_stay_accepted_in_every_log(length: int) -> None:
    """Every log of some decisions, in every order, with every repetition."""
    for log in product(decisions(), repeat=length):
        check(log)
