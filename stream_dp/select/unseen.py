"""A key of a public domain that nobody has: it is named by its number, and takes no memory until it is drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Unseen:
    """The key with this number, from 0, among those of the domain that have no users."""

    number: int
