"""Keys per step of the ladder: a service that holds a coarse level and the keys below it can reach no finer one.

Another stream than that of `sealed.read_levels`; a deployment uses one of the two (specs/lossless 6.5).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from stream_dp.lossless.excess import excess

_TAG = b"LMR1-step"


def step_key(prf_key: bytes, step: int) -> bytes:
    """The key of one step, 32 bytes: step j turns level j + 1 into level j, 0 being the coarsest.

    Source: specs/lossless 6.5, vector X05.
    """
    return hmac.digest(prf_key, _TAG + _encoded(step), "sha256")


def coarsen(
    values: Mapping[bytes, int],
    *,
    key: bytes,
    step: int,
    window: bytes,
    digest: bytes,
    fine: int,
    coarse: int,
) -> dict[bytes, int]:
    """Turn the values of level `step + 1` into those of level `step`, with the key of that step alone.

    Args:
        values: counts released at level A = `fine`, exact and unclamped.
        key: `step_key` of this step.
        step: number of the step, 0 the coarsest.
        window: name of query, window and partition.
        digest: the snapshot digest of the table.
        fine: level A of `values`.
        coarse: level A of the result, at least `fine`.

    Returns:
        The values at `coarse`, in the order of `values`.

    Raises:
        ParameterError: not a level, or the key has another length.
        StateError: `coarse` is finer than `fine`.

    Guarantee: post-processing of `values`. Source: specs/lossless 6.5, 7.5.
    """
    # Words until one is >= fine, 0 if it is >= coarse, else 1 + those before the next that is: the excess of a clock.
    (added,) = excess(
        list(values),
        key=key,
        table=(window, digest),
        step=(_encoded(step),),
        thresholds=(coarse,),
        finest=fine,
    )
    return {item: value + up for (item, value), up in zip(values.items(), added, strict=True)}


def _encoded(step: int) -> bytes:
    return step.to_bytes(4, "big")
