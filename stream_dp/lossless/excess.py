"""How far the noise of coarser levels lies above that of a finer one, fixed by a secret key, for every key of a table.

The words behind it are those of `LMR3` (`addressed_words`). `excess_of_words` is the reference: one key, and words of
any origin; with those of `LMR1` (`prf`) it is the construction of specs/lossless 6.3 to the letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stream_dp.errors import ParameterError, StateError
from stream_dp.lossless.addressed_words import AddressedWords
from stream_dp.lossless.bulk_clocks import bulk_clocks
from stream_dp.lossless.levels import noise_parameter
from stream_dp.lossless.prf import KEY_BYTES
from stream_dp.lossless.threshold_process import clocks


def excess(
    items: Sequence[bytes],
    *,
    key: bytes,
    table: tuple[bytes, ...],
    step: tuple[bytes, ...] = (),
    thresholds: Sequence[int],
    finest: int,
) -> list[list[int]]:
    """Clock excess of plus less that of minus: clock(A, +) - clock(finest, +) - clock(A, -) + clock(finest, -).

    Args:
        items: the keys of the table, in any order: what one reads does not depend on the others.
        key: secret of `KEY_BYTES` bytes.
        table: fields that name the table; no two tables share them.
        step: fields that name a step of a ladder with a key for each step, else none.
        thresholds: the levels A asked for, in any order.
        finest: the level that the excess is above.

    Returns:
        One list per level, one number per key.

    Raises:
        ParameterError: something asked is not a level, or the key has another length.
        StateError: a level is finer than `finest`.

    Time: 0.2 microseconds per key, and per key and level 20 nanoseconds at epsilon 2, 80 at 0.1.
    """
    _check(thresholds, finest)
    if len(key) != KEY_BYTES:
        raise ParameterError(f"the noise key must have {KEY_BYTES} bytes, not {len(key)}")
    streams = AddressedWords(key, *table, *step)
    addresses = streams.addresses(items)
    noise = {}
    for threshold in {finest, *thresholds}:  # several readers may have one level, and some the finest
        plus, minus = bulk_clocks(streams, addresses, threshold)
        noise[threshold] = plus - minus
    return [(noise[threshold] - noise[finest]).tolist() for threshold in thresholds]


def excess_of_words(
    plus: Iterable[int], minus: Iterable[int], *, thresholds: Sequence[int], finest: int
) -> tuple[int, ...]:
    """The excess of one key, a word at a time.

    Args:
        plus: words of the side plus, as for `clocks`.
        minus: words of the side minus.
        thresholds: as for `excess`.
        finest: as for `excess`.

    Returns:
        One number per level.

    Raises:
        ParameterError: something asked is not a level.
        StateError: a level is finer than `finest`, or the words end too early.

    Source: specs/lossless 6.3, 7.5.
    """
    _check(thresholds, finest)
    first_plus, *above_plus = clocks(plus, (finest, *thresholds))
    first_minus, *above_minus = clocks(minus, (finest, *thresholds))
    return tuple(up - first_plus - down + first_minus for up, down in zip(above_plus, above_minus, strict=True))


def _check(thresholds: Sequence[int], finest: int) -> None:
    for threshold in (finest, *thresholds):
        noise_parameter(threshold)
        if threshold < finest:
            raise StateError(f"level {threshold} is finer than {finest}, from which it would be read")
