from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from stream_dp.errors import ParameterError, StateError
from stream_dp.lossless.addressed_words import AddressedWords
from stream_dp.lossless.step_keys import coarsen, step_key
from stream_dp.lossless.threshold_process import clocks
from tests.support.readings import read_rows_lmr1


def test_vector_x05_steps_and_releases(vector: Callable[[str], Any]) -> None:
    """By the words of specs/lossless 6.3, under the keys that `step_key` makes."""
    inputs, x05 = vector("X01")["inputs"], vector("X05")
    key, window = bytes.fromhex(inputs["K_hex"]), inputs["window"].encode()
    digest = bytes.fromhex(inputs["snapshot_digest_hex"])
    ladder = list(map(int, inputs["A"]))
    rows = {bytes.fromhex(row["key_hex"]): row for row in x05["expected"]["rows"]}

    values = dict.fromkeys(rows, x05["inputs"]["Y_fine"])
    releases = [values]
    for step in reversed(range(len(ladder) - 1)):
        rows_of_step = read_rows_lmr1(
            values,
            prf_key=step_key(key, step),
            window=window,
            digest=digest,
            thresholds=[ladder[step]],
            finest=ladder[step + 1],
            step=(step.to_bytes(4, "big"),),
        )
        values = {item: coarser for item, (coarser,) in rows_of_step.items()}
        releases.insert(0, values)

    for item, row in rows.items():
        path = [release[item] for release in releases]
        assert path == row["releases_coarse_to_fine"]
        steps = [coarse - fine for coarse, fine in pairwise(path)]
        assert steps == row["increments_step_0_to_4"]


def coarsened(fine: int, coarse: int, step: int = 0) -> dict[bytes, int]:
    values = {b"%d" % i: 1 for i in range(20)}
    return coarsen(
        values,
        key=bytes(32),
        step=step,
        window=b"w",
        digest=bytes(32),
        fine=fine,
        coarse=coarse,
    )


def test_every_step_has_noise_of_its_own_even_under_one_key() -> None:
    steps = [tuple(coarsened(2**62, 2**63, step).values()) for step in range(4)]

    assert len(set(steps)) == 4


def test_the_words_of_a_step_are_addressed_by_its_number() -> None:
    streams = AddressedWords(bytes(32), b"w", bytes(32), (3).to_bytes(4, "big"))

    for item, value in coarsened(2**62, 2**63, 3).items():
        plus, minus = (clocks(streams.words(item, side), (2**62, 2**63)) for side in (0, 1))
        assert value == 1 + plus[1] - plus[0] - minus[1] + minus[0]


def test_a_step_between_equal_levels_changes_nothing() -> None:
    assert set(coarsened(2**63, 2**63).values()) == {1}


def test_a_step_towards_a_finer_level_is_refused() -> None:
    with pytest.raises(StateError, match="is finer than"):
        coarsened(2**63, 2**62)


@pytest.mark.parametrize(("fine", "coarse"), [(0, 2**63), (2**63, 2**64)])
def test_a_step_to_or_from_no_level_is_refused(fine: int, coarse: int) -> None:
    with pytest.raises(ParameterError, match="a level must be"):
        coarsened(fine, coarse)
