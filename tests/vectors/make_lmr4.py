"""Makes lmr4.json from the text of the construction alone (docs/noise-streams.md), a number and a block at a time.

    python tests/vectors/make_lmr4.py > tests/vectors/lmr4.json

Nothing of stream_dp is imported: the package is checked against this file, by its reference and in bulk.
"""

from __future__ import annotations

import hmac
import json
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY, OTHER = bytes(range(32)), bytes(range(50, 82))
WINDOW, DIGEST = b"visits\x00" + bytes(8), bytes(range(100, 132))
EPSILONS = ["1/20", "1/10", "1/4", "1/2", "1", "2"]
LADDER = [
    17547085749146693507,
    16691304278825489410,
    14366338729722795844,
    11188515852577165300,
    6786177901268885275,
    2496495334008788800,
]
DRAW_LEVELS = [1, 1 << 48, 1 << 60, 1 << 63, LADDER[-1], LADDER[1], LADDER[0], (1 << 64) - (1 << 54)]
STEP_SIZE = 60
ROWS = [[127, -5, 0], [-127, 1, 1], [3, 3, 3], [0, 0, 0], [9, -9, 9], [64, -64, 32]]
LARGEST = [127, 128, -129, 32_767, -32_768, 1 << 31, -(1 << 40)]


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(block)


# -- what coarser levels have beyond the finest, locked ----------------------------------------------------------------
def locked(rows: list[list[int]]) -> bytes:
    largest = max(abs(number) for row in rows for number in row)
    width = next(width for width in (1, 2, 4, 8) if largest < 2 ** (8 * width - 1))
    plain = b"".join(number.to_bytes(width, "little", signed=True) for row in rows for number in row)
    fields = b"".join(len(field).to_bytes(8, "big") + field for field in (WINDOW, DIGEST))
    key = hmac.digest(KEY, b"LMR4" + fields, "sha256")
    stream = b"".join(aes(key, number.to_bytes(16, "big")) for number in range(len(plain) // 16 + 1))
    return bytes(x ^ y for x, y in zip(plain, stream, strict=False))


# -- draws: U as an exact interval that is halved until it decides -----------------------------------------------------
def uniform(key: bytes, number: int, bits: int) -> tuple[Fraction, Fraction]:
    def half(a: int, b: int) -> bytes:
        return aes(key, a.to_bytes(8, "little") + b.to_bytes(8, "little"))

    value = int.from_bytes(half(number // 8, 0)[number % 8 * 2 :][:2], "little")
    have = 16
    if bits > 16:
        value = value * 2**48 + (int.from_bytes(half(number, 1)[:8], "little") >> 16)
        have = 64
    while have < bits:
        value = value * 2**64 + int.from_bytes(half(number, have // 64 + 1)[:8], "little")
        have += 64
    return Fraction(value, 2**have), Fraction(value + 1, 2**have)


def below(key: bytes, number: int, step: Fraction) -> bool:
    for bits in (16, *range(64, 10_000, 64)):
        low, high = uniform(key, number, bits)
        if high <= step:
            return True
        if low >= step:
            return False
    raise AssertionError


def draw(key: bytes, level: int, index: int) -> int:
    a = Fraction(level, 2**64)
    digits = next(m for m in count() if a**2**m <= Fraction(31, 32))
    sides: list[int] = []
    for side in (0, 1):
        total = 0
        for place in range(digits):
            x = a**2**place
            total += below(key, (2 * place + side) * 2**40 + index, x / (1 + x)) * 2**place
        high = (
            next(k for k in count(1) if not below(key, (2 * digits + side) * 2**40 + index, a ** (k * 2**digits))) - 1
        )
        sides.append(total + high * 2**digits)
    return sides[0] - sides[1]


# -- steps -------------------------------------------------------------------------------------------------------------
def steps(fine: int, coarse: int) -> list[int]:
    """The first numbers of a step; `KEY` says who stays, `OTHER` has the noise of the others, in their order."""
    a, b = Fraction(coarse, 2**64), Fraction(fine, 2**64)
    stays = b * (1 - a) ** 2 / (a * (1 - b) ** 2)
    moving = count()
    return [0 if below(KEY, index, stays) else draw(OTHER, coarse, next(moving)) for index in range(STEP_SIZE)]


def main() -> None:
    draws = [{"level": level, "noise": [draw(KEY, level, i) for i in (*range(12), 40_000)]} for level in DRAW_LEVELS]
    vectors: dict[str, Any] = {
        "key_hex": KEY.hex(),
        "other_hex": OTHER.hex(),
        "window_hex": WINDOW.hex(),
        "digest_hex": DIGEST.hex(),
        "epsilons": EPSILONS,
        "ladder": LADDER,
        "draw_indices": [*range(12), 40_000],
        "draws": draws,
        "steps": [{"fine": fine, "coarse": coarse, "noise": steps(fine, coarse)} for coarse, fine in pairwise(LADDER)],
        "locked": [
            {"excess": rows, "hex": locked(rows).hex()}
            for rows in (ROWS, *([[number, 0], [1, -number]] for number in LARGEST))
        ],
    }
    print(json.dumps(vectors, indent=1, ensure_ascii=True))


if __name__ == "__main__":
    main()
