"""Makes lmr3.json from the text of the construction alone (docs/noise-streams.md), a word and a draw at a time.

    python tests/vectors/make_lmr3.py > tests/vectors/lmr3.json

Nothing of stream_dp is imported: the package is checked against this file, by its reference and in bulk.
"""

from __future__ import annotations

import hmac
import json
from fractions import Fraction
from itertools import count
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY = bytes(range(32))
WINDOW, DIGEST = b"visits\x00" + bytes(8), bytes(range(100, 132))
STEP = (3).to_bytes(4, "big")
ITEMS = [b"", b"alpha", b"8 bytes.", b"9 bytes..", b"a\0", b"a", "größer".encode(), bytes(range(100))]
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


def aes(key: bytes, block: bytes) -> bytes:
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update(block)


def subkey(fields: list[bytes], label: bytes) -> bytes:
    return hmac.digest(KEY, b"LMR3" + b"".join(len(f).to_bytes(8, "big") + f for f in [*fields, label]), "sha256")


def xor(a: bytes, b: bytes) -> bytes:
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def address(fields: list[bytes], item: bytes) -> bytes:
    chunks = [item[i : i + 8] for i in range(0, len(item), 8)] or [b""]
    total = bytes(16)
    for i, chunk in enumerate(chunks):
        tag = 2**63 + len(item) if i == len(chunks) - 1 else i
        total = xor(total, aes(subkey(fields, b"address"), chunk + bytes(8 - len(chunk)) + tag.to_bytes(8, "little")))
    return total


def block(fields: list[bytes], item: bytes, n: int) -> bytes:
    return aes(subkey(fields, b"words"), xor(address(fields, item), bytes(8) + n.to_bytes(8, "little")))


def word(fields: list[bytes], item: bytes, side: int, j: int) -> int:
    lead = block(fields, item, j // 4)[8 * side + j % 4 * 2 :][:2]
    rest = block(fields, item, 2**63 + j)[8 * side :][:8]
    return int.from_bytes(lead, "little") * 2**48 + int.from_bytes(rest, "little") % 2**48


def clock(fields: list[bytes], item: bytes, side: int, level: int) -> int:
    return next(j for j in count() if word(fields, item, side, j) >= level)


def row(fields: list[bytes], item: bytes) -> dict[str, Any]:
    words = [[word(fields, item, side, j) for j in range(6)] for side in (0, 1)]
    clocks = [[clock(fields, item, side, level) for level in LADDER] for side in (0, 1)]
    # A level that equals a word stops there, the next one does not: the lead alone cannot tell.
    highest = max(words[0])
    edges = [highest, highest + 1]
    return {
        "item_hex": item.hex(),
        "address_hex": address(fields, item).hex(),
        "words_plus": words[0],
        "words_minus": words[1],
        "clock_plus": clocks[0],
        "clock_minus": clocks[1],
        "excess_over_finest": [p - clocks[0][-1] - m + clocks[1][-1] for p, m in zip(*clocks, strict=True)],
        "edge_levels": edges,
        "edge_clock_plus": [clock(fields, item, 0, level) for level in edges],
        "edge_clock_minus": [clock(fields, item, 1, level) for level in edges],
    }


# -- draws: U as an exact interval that is halved until it decides -----------------------------------------------------
def uniform(number: int, bits: int) -> tuple[Fraction, Fraction]:
    def half(a: int, b: int) -> bytes:
        return aes(KEY, a.to_bytes(8, "little") + b.to_bytes(8, "little"))

    value = int.from_bytes(half(number // 8, 0)[number % 8 * 2 :][:2], "little")
    have = 16
    if bits > 16:
        value = value * 2**48 + (int.from_bytes(half(number, 1)[:8], "little") >> 16)
        have = 64
    while have < bits:
        value = value * 2**64 + int.from_bytes(half(number, have // 64 + 1)[:8], "little")
        have += 64
    return Fraction(value, 2**have), Fraction(value + 1, 2**have)


def below(number: int, step: Fraction) -> bool:
    for bits in (16, *range(64, 10_000, 64)):
        low, high = uniform(number, bits)
        if high <= step:
            return True
        if low >= step:
            return False
    raise AssertionError


def draw(level: int, index: int) -> int:
    a = Fraction(level, 2**64)
    digits = next(m for m in count() if a**2**m <= Fraction(31, 32))
    sides: list[int] = []
    for side in (0, 1):
        total = 0
        for place in range(digits):
            x = a**2**place
            total += below((2 * place + side) * 2**40 + index, x / (1 + x)) * 2**place
        high = next(k for k in count(1) if not below((2 * digits + side) * 2**40 + index, a ** (k * 2**digits))) - 1
        sides.append(total + high * 2**digits)
    return sides[0] - sides[1]


def main() -> None:
    table, step = [WINDOW, DIGEST], [WINDOW, DIGEST, STEP]
    draws = [{"level": level, "noise": [draw(level, i) for i in (*range(12), 40_000)]} for level in DRAW_LEVELS]
    vectors = {
        "key_hex": KEY.hex(),
        "window_hex": WINDOW.hex(),
        "digest_hex": DIGEST.hex(),
        "step_hex": STEP.hex(),
        "epsilons": EPSILONS,
        "ladder": LADDER,
        "rows": [row(table, item) for item in ITEMS],
        "step_rows": [row(step, item) for item in ITEMS[:2]],
        "draw_indices": [*range(12), 40_000],
        "draws": draws,
    }
    print(json.dumps(vectors, indent=1, ensure_ascii=True))


if __name__ == "__main__":
    main()
