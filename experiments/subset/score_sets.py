"""The tables of scores of the published experiments, and sets made by formula in their place.

The sets made by formula are the same on every machine, bit by bit.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from experiments.subset.noises import FloatArray
from experiments.subset.profiles import IntArray
from stream_dp.errors import ConfigError

PUBLISHED = {
    "netflix": ("NETFLIX.n17770", "8f046f6161d3dfec5175b88f220712021e6864bbe1f38850fb79b643cebc0141"),
    "patent": ("PATENT.n4096", "0dac5363cfc1e15189cf00ef3a817dcfeb39678d986b1951ba4f451b1cc6f864"),
    "searchlogs": ("SEARCHLOGS.n4096", "183561b0a8bd8a6cdd0622468830aaab491400a7ee58db2f46a4496e9a4e2621"),
    "medcost": ("MEDCOST.n4096", "98ac6a1fb0ccdb0e249a7df49a238145eb971fdbebe1ee805174f99d28ef0dd3"),
    "income": ("INCOME.n4096", "2bdb4bb9625d836ad923b280d303860dd12034ef3ae0cf9658e834cb95d8a0c5"),
    "hepth": ("HEPTH.n4096", "a39f1283608ac1eae6d1d5bc289e6eb7a42687b765f5f80af1b40566ff853884"),
    "zipfian": ("ZIPFIAN.n10000", "e5e99e0bbaaeccde12b43e3cfe5413edab0addb721763175141927025e41ee27"),
}
"""By name: the authors' file and the SHA-256 of its bytes."""

ZIPF_ITEMS, ZIPF_TOTAL, ZIPF_EXPONENT = 10_000, 15**7, 0.04


def published(folder: Path, name: str) -> FloatArray:
    """One of the authors' tables.

    Raises:
        ConfigError: the file is missing, or is not the one that the numbers are known for.
    """
    stem, digest = PUBLISHED[name]
    file = folder / f"{stem}.npy"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; github.com/shekelyan/dptopk has it in data/") from error
    if sha256(content).hexdigest() != digest:
        raise ConfigError(f"{file} is not the authors' file: its SHA-256 is another one")
    return np.asarray(np.load(file, allow_pickle=False), float)


def zipfian(exponent: float = ZIPF_EXPONENT) -> FloatArray:
    """Ten thousand scores proportional to rank^-exponent, 15^7 in all."""
    shares = np.arange(1, ZIPF_ITEMS + 1, dtype=float) ** -exponent
    scores: FloatArray = ZIPF_TOTAL * shares / shares.sum()
    return scores


def netflix_like() -> IntArray:
    """17,770 counts that fall like those of films by their five-star ratings."""
    ranks = np.arange(1, 17_771, dtype=float)
    counts: IntArray = np.floor(120300 * np.exp(-0.2203 * ranks**0.385)).astype(np.int64)
    return counts


def hyperbolic() -> IntArray:
    """A million counts, at most 2,000, with many ties: hard for every selection."""
    return 2_000_000 // (np.arange(1, 1_000_001, dtype=np.int64) + 999)


def steep_hyperbolic() -> IntArray:
    """A million counts from 99 to a million."""
    return 100_000_000 // (np.arange(1, 1_000_001, dtype=np.int64) + 99)
