"""Keys as numbers: all byte strings of at most so many bytes, in shortlex order (shorter first), are 1..m.

Source: specs/finite 7.2 ("key encoding").
"""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.exact.checks import refuse, whole_faults


@dataclass(frozen=True, slots=True)
class KeySpace:
    """A finite universe of keys: the byte strings of 0 to `max_bytes` bytes.

    A longer key counts as `too_long`, the last key of the universe. That looks at the key alone, so it moves no other
    count (specs/finite, pitfall 28). Cutting keys would do so too, but would add what belongs to a long key to the
    count of a short one, and nobody could tell; this way every other count stays right, and the number of long keys is
    read off like any other. Text is never that key: no UTF-8 has a byte 0xff.

    Attributes:
        max_bytes: length of the longest keys.

    Raises:
        ParameterError: `max_bytes` is below 1.
    """

    max_bytes: int

    def __post_init__(self) -> None:
        refuse(whole_faults(max_bytes=self.max_bytes))

    @property
    def size(self) -> int:
        """The number of keys m."""
        return _shorter(self.max_bytes + 1)

    @property
    def too_long(self) -> bytes:
        """The key that stands for all longer ones."""
        return b"\xff" * self.max_bytes

    def index(self, key: bytes | str) -> int:
        """Return the number of a key, in 1..m; a text is its UTF-8, and a lone surrogate counts as a character."""
        data = key if isinstance(key, bytes) else key.encode("utf-8", "surrogatepass")
        if len(data) > self.max_bytes:
            data = self.too_long
        return 1 + _shorter(len(data)) + int.from_bytes(data, "big")

    def key(self, index: int) -> bytes:
        """Return the key with a number in 1..m."""
        # 256^n <= 255 (index - 1) + 1 < 256^(n + 1) for the keys of n bytes.
        length = ((255 * (index - 1) + 1).bit_length() - 1) // 8
        return (index - 1 - _shorter(length)).to_bytes(length, "big")


def _shorter(length: int) -> int:
    """The number of byte strings of fewer than `length` bytes."""
    return ((1 << 8 * length) - 1) // 255
