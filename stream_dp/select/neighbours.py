"""What two tables differ by that a selection must not tell apart."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction


class Neighbours(StrEnum):
    """The neighbour relation of a guarantee; part of a selection's public parameters."""

    ADD_OR_REMOVE = "add or remove"
    """One user is in one of the tables and not in the other, and moves all counts in one direction."""
    REPLACE = "replace"
    """One user has other records in the other table: counts move both ways. Holds for adding and removing, too."""

    @property
    def least_sensitivity(self) -> Fraction:
        """Half the length of the interval in which one user moves a count by at most 1 (specs/subset 1.2, P3)."""
        return Fraction(1, 2) if self is Neighbours.ADD_OR_REMOVE else Fraction(1)
