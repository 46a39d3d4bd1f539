"""The threshold process a word at a time, and `LMR1`: the reference of specs/lossless for what all levels add."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from stream_dp.errors import StateError
from stream_dp.exact.bits import hmac_blocks
from stream_dp.lossless.sealed import length_prefixed

_TAG = b"LMR1"
_FOUR_WORDS = Struct(">4Q")


def clocks(words: Iterable[int], thresholds: Sequence[int]) -> tuple[int, ...]:
    """Read one stream at several levels: for each A the number of words before the first that is >= A.

    On independent uniform words of 64 bits the clock at A is geometric, P(G = k) = (1 - a) a^k with a = A / 2^64,
    for all A at once. A coarser clock is never below a finer one, and their difference is independent of every
    clock at the finer level or below it: reading more levels tells nothing that the finest did not.

    Args:
        words: integers in [0, 2^64); read up to the first that is >= every threshold.
        thresholds: at least one level A, 1 <= A < 2^64, in any order.

    Returns:
        The clocks, in the order of `thresholds`.

    Raises:
        StateError: the words end too early.

    Time: 1 / (1 - a) words for the coarsest level, on average. Source: specs/lossless 7.5, vectors D11, X01.
    """
    coarsest = max(thresholds)
    best = -1
    records, positions = [], []  # only words above all earlier ones can stop a clock
    for position, word in enumerate(words):
        if word > best:
            best = word
            records.append(word)
            positions.append(position)
            if word >= coarsest:
                return tuple(positions[bisect_left(records, threshold)] for threshold in thresholds)
    raise StateError("the stream of words ended before a clock stopped")


def words(key: bytes, *fields: bytes) -> Iterator[int]:
    """Yield the words of `LMR1`, endless 64-bit words fixed by a key, an HMAC-SHA256 for every four.

    Args:
        key: secret, 32 bytes.
        fields: what the stream is for. Different sequences of fields give unrelated streams, however they would
            concatenate.

    Source: specs/lossless 6.2, 6.3, vector X01.
    """
    for block in hmac_blocks(key, _TAG + b"".join(map(length_prefixed, fields))):
        yield from _FOUR_WORDS.unpack(block)


def excess_of_words(
    plus: Iterable[int], minus: Iterable[int], *, thresholds: Sequence[int], finest: int
) -> tuple[int, ...]:
    """Return how far coarser clocks of one key lie above the finest, plus less minus, a word at a time.

    Args:
        plus: words of the side plus, as for `clocks`.
        minus: words of the side minus.
        thresholds: the levels A asked for.
        finest: the level that the excess is above.

    Returns:
        One number per level.

    Raises:
        StateError: the words end too early.

    Source: specs/lossless 6.3, 7.5.
    """
    first_plus, *above_plus = clocks(plus, (finest, *thresholds))
    first_minus, *above_minus = clocks(minus, (finest, *thresholds))
    return tuple(up - first_plus - down + first_minus for up, down in zip(above_plus, above_minus, strict=True))
