"""Text files written by people: UTF-8, with or without the byte order mark that spreadsheets add."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from pathlib import Path
from typing import TextIO


def open_text(file: Path) -> TextIO:
    """Open a text file without changing its line breaks, as `csv` requires.

    Raises:
        OSError: the file cannot be opened.
    """
    return file.open(encoding="utf-8-sig", newline="")


def read_text(file: Path, errors: str = "strict") -> str:
    """Return the text of a file.

    Args:
        file: the file.
        errors: how to decode bytes that are not UTF-8, as in `bytes.decode`.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: the file is not UTF-8.
    """
    return file.read_text(encoding="utf-8-sig", errors=errors)


def without_mark(data: bytes) -> bytes:
    """Return bytes without a UTF-8 byte order mark at their start."""
    return data.removeprefix(BOM_UTF8)


def read_fault(error: OSError | UnicodeDecodeError) -> str:
    """Return why a text file cannot be read, and what to do."""
    if isinstance(error, OSError):
        first_line = str(error).partition("\n")[0]
        return f"cannot be read: {error.strerror or first_line}"
    if error.object.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return "is UTF-16 text. Save it as UTF-8"
    return f"is not UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8"
