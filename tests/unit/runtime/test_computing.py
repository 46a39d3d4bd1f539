"""What is said of computing times; that a machine is fast is not tested."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle

import pytest

from stream_dp.runtime import capacity as computing
from stream_dp.runtime.capacity import RARE, Computing, measure
from stream_dp.windows.durations import Slots
from tests.kinds.cases import CASES
from tests.support.releasing import plan


@pytest.mark.parametrize("kind", sorted(CASES))
def test_every_kind_is_timed(kind: str) -> None:
    (found,) = measure(CASES[kind].plan(), seconds=0)
    assert found.keys_in_time > 0
    assert found.shown_keys_in_time > 0


def test_every_view_is_timed_by_itself() -> None:
    assert [found.view for found in measure(plan(), seconds=0)] == ["pages", "tops"]


@pytest.fixture
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that takes 100 ms for a window, 1 us for a rare key and 5 us for a shown one."""

    def timed(_plan: object, _view: object, keys: int, count: int) -> float:
        return 0.1 + keys * (1e-6 if count == RARE else 5e-6)

    monkeypatch.setattr(computing, "_timed", timed)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize(("offset_ms", "keys", "shown"), [(2000, 900_000, 180_000), (200, 0, 0), (0, 0, 0)])
def test_half_of_the_offset_is_for_computing(offset_ms: int, keys: int, shown: int) -> None:
    (found, _) = measure(replace(plan(), slots=Slots(1000, offset_ms)))
    assert found.milliseconds_a_window == 100
    assert (found.microseconds_a_key, found.microseconds_a_shown_key) == (1, 5)
    assert found.keys_in_time == pytest.approx(keys, abs=2)
    assert found.shown_keys_in_time == pytest.approx(shown, abs=2)
    assert found.advised(offset_ms) == (keys > 100_000)


def test_what_is_said_has_all_the_numbers() -> None:
    found = Computing(
        view="pages",
        milliseconds_a_window=1.234,
        microseconds_a_key=4.321,
        microseconds_a_shown_key=20.1,
        keys_in_time=230_000,
        shown_keys_in_time=49_000,
    )
    assert found.words("2s") == (
        "On this machine, a window of pages takes 1.23 ms to compute, and for each key another 4.32 us, or 20.1 us if "
        "the key is shown. Half of release.offset (2s) is enough for 230,000 keys, or 49,000 if all are shown"
    )


@pytest.mark.parametrize(
    ("microseconds", "keys", "words"),
    [
        (
            0.0,
            988_103_499,
            "takes 1 ms to compute, and for each key another less than 0.01 us",
        ),
        (0.0, 988_103_499, "is enough for more than 10 million keys, or more than 10 million if all are shown"),
        (
            4.3,
            229_953,
            "4.3 us, or 1 us if the key is shown. Half of release.offset (2s) is enough for 220,000 keys",
        ),
        (4.3, 7, "is enough for 7 keys"),
        (4.3, 0, "is enough for 0 keys"),
    ],
)
def test_what_is_said_has_no_more_digits_than_a_measurement(microseconds: float, keys: int, words: str) -> None:
    found = Computing(
        view="pages",
        milliseconds_a_window=1,
        microseconds_a_key=microseconds,
        microseconds_a_shown_key=1,
        keys_in_time=keys,
        shown_keys_in_time=keys,
    )
    assert words in found.words("2s")


def test_the_least_of_some_measurements_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work of the machine made a window without keys look dearer than one with some."""
    noise = cycle([5.0, 0.0, 1.0])
    monkeypatch.setattr(computing, "_timed", lambda _plan, _view, keys, _count: 0.1 + keys * 1e-5 + next(noise))
    found, _ = measure(plan(), seconds=0)
    assert (found.milliseconds_a_window, found.microseconds_a_key) == (100, 10)
