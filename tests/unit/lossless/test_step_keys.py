from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from stream_dp.errors import ConfigError, StateError
from stream_dp.lossless.step_keys import coarsen, step_key


def test_vector_x05_steps_and_releases(vector: Callable[[str], Any]) -> None:
    inputs, x05 = vector("X01")["inputs"], vector("X05")
    key, window = bytes.fromhex(inputs["K_hex"]), inputs["window"].encode()
    digest = bytes.fromhex(inputs["snapshot_digest_hex"])
    ladder = list(map(int, inputs["A"]))
    rows = {bytes.fromhex(row["key_hex"]): row for row in x05["expected"]["rows"]}

    values = dict.fromkeys(rows, x05["inputs"]["Y_fine"])
    releases = [values]
    for step in reversed(range(len(ladder) - 1)):
        values = coarsen(
            values,
            key=step_key(key, step),
            step=step,
            window=window,
            digest=digest,
            fine=ladder[step + 1],
            coarse=ladder[step],
        )
        releases.insert(0, values)

    for item, row in rows.items():
        path = [release[item] for release in releases]
        assert path == row["releases_coarse_to_fine"]
        steps = [coarse - fine for coarse, fine in pairwise(path)]
        assert steps == row["increments_step_0_to_4"]


def coarsened(fine: int, coarse: int) -> dict[bytes, int]:
    return coarsen({b"a": 1}, key=bytes(32), step=0, window=b"w", digest=bytes(32), fine=fine, coarse=coarse)


def test_a_step_between_equal_levels_changes_nothing() -> None:
    assert coarsened(2**63, 2**63) == {b"a": 1}


def test_a_step_towards_a_finer_level_is_refused() -> None:
    with pytest.raises(StateError, match="is finer than"):
        coarsened(2**63, 2**62)


@pytest.mark.parametrize(("fine", "coarse"), [(0, 2**63), (2**63, 2**64)])
def test_a_step_to_or_from_no_level_is_refused(fine: int, coarse: int) -> None:
    with pytest.raises(ConfigError, match="a level must be"):
        coarsened(fine, coarse)
