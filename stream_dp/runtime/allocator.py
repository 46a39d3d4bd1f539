"""The C library's allocator, which keeps what a process has freed, and can be told to give it back to the system."""

from __future__ import annotations

import ctypes

_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Of glibc alone."""


def give_back_freed() -> None:
    """Give freed memory back to the system, where the C library can; some milliseconds, in which others run."""
    if _malloc_trim is not None:
        _malloc_trim(0)
