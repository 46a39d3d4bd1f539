"""Sealed tables read key by key: as shipped, and by the words of specs/lossless 6.3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from stream_dp.kinds.sealing import NoiseLevel, SealedTable, prune
from stream_dp.lossless.sealed import WindowNoise, read_levels
from tests.support.threshold_process import excess_of_words, words


def read_rows(
    fine: Mapping[bytes, int],
    *,
    prf_key: bytes,
    window: bytes,
    digest: bytes,
    thresholds: Sequence[int],
    finest: int,
) -> dict[bytes, tuple[int, ...]]:
    """For every key of a sealed table its value at every level that is asked for."""
    columns = read_levels(fine, WindowNoise(window, prf_key), digest, thresholds=thresholds, finest=finest)
    assert all(len(column) == len(fine) for column in columns)
    return {key: tuple(column[at] for column in columns) for at, key in enumerate(fine)}


def read_rows_lmr1(
    fine: Mapping[bytes, int],
    *,
    prf_key: bytes,
    window: bytes,
    digest: bytes,
    thresholds: Sequence[int],
    finest: int,
    step: tuple[bytes, ...] = (),
) -> dict[bytes, tuple[int, ...]]:
    """The same by the words of `LMR1`, with the fields of a step where there is one (specs/lossless 6.3, 6.5)."""
    rows = {}
    for key, value in fine.items():
        plus, minus = (words(prf_key, window, digest, key, side, *step) for side in (b"+", b"-"))
        rows[key] = tuple(value + up for up in excess_of_words(plus, minus, thresholds=thresholds, finest=finest))
    return rows


def pruned(
    fine: Mapping[bytes, int], noise: WindowNoise, digest: bytes, ladder: Sequence[tuple[int, int]]
) -> dict[bytes, int]:
    """A sealed table without the keys that no level shows; a ladder has thresholds and minimum counts."""
    nothing = Fraction(0)
    levels = [NoiseLevel("", nothing, threshold, 0, nothing, nothing, nothing) for threshold, _ in ladder]
    table = SealedTable(digest, [key.decode() for key in fine], list(fine.values()))
    kept = prune(table, levels, [least for _, least in ladder], noise)
    return {item.encode(): value for item, value in zip(kept.items, kept.values, strict=True)}
