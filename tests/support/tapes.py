"""Bits that a test chose beforehand."""

from __future__ import annotations

from stream_dp.errors import StateError


class RecordedBits:
    """A tape played once, most significant bit of each byte first: tests inject chosen or enumerated randomness."""

    def __init__(self, tape: bytes) -> None:
        self._tape = tape
        self._next = 0

    def bits(self, n: int) -> int:
        """The next `n` >= 0 bits of the tape.

        Raises:
            StateError: fewer than `n` bits are left; none is used.
        """
        first, end = self._next, self._next + n
        if end > 8 * len(self._tape):
            raise StateError(f"the recorded tape has {8 * len(self._tape) - first} bits left, {n} were asked for")
        self._next = end
        value = int.from_bytes(self._tape[first // 8 : (end + 7) // 8], "big")
        return value >> -end % 8 & ((1 << n) - 1)
