"""Charges of a view with `windows_per_user`: a user pays for that many windows of a period, the dearest ones.

A user who is counted in at most m windows of a view and period can have lost nothing by the others. Which windows
those are depends on the user, so the ledger charges the m dearest: entry by entry the sum of the m largest charges of
windows, each with all that was ever charged for it (specs/participation 2). Only the m largest are kept. A window that
is none of them has cost no more than the smallest, so what is added to it later is found without knowing which it is.
Where what a window cost before is not there at all, another ledger paid for it, or state was lost: then the window is
charged anew, which is never too little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType

from stream_dp.accounting.cost import ENTRIES, Cost

_Amounts = Mapping[Fraction, int]
_NONE: tuple[_Amounts, ...] = (MappingProxyType({}),) * len(ENTRIES)


@dataclass(frozen=True, slots=True)
class Dearest:
    """The largest charges of the windows of a view and period, entry by entry.

    Attributes:
        most: number of windows that a user is in, at most; 1 or more.
        amounts: by entry of a cost, the largest amounts and how many windows have each, falling; 0 is left out.
    """

    most: int
    amounts: tuple[_Amounts, ...] = _NONE

    @property
    def total(self) -> Cost:
        """Cost of a user at worst: the sum of the amounts."""
        return Cost(*(sum((amount * number for amount, number in of.items()), Fraction(0)) for of in self.amounts))

    def raised(self, before: Cost, more: Cost) -> Dearest:
        """Return the same once a window costs more.

        Args:
            before: what the window was charged until now.
            more: what it is charged now.
        """
        changes = zip(self.amounts, before, more, strict=True)
        return replace(self, amounts=tuple(self._raised(of, old, old + new) for of, old, new in changes))

    def with_windows(self, cost: Cost, windows: int) -> Dearest:
        """Return the same with further windows of one cost each."""
        number = min(windows, self.most)
        return replace(
            self,
            amounts=tuple(
                self._largest([*of.items(), (amount, number)]) for of, amount in zip(self.amounts, cost, strict=True)
            ),
        )

    def _raised(self, amounts: _Amounts, old: Fraction, new: Fraction) -> _Amounts:
        if old == new:
            return amounts
        left = dict(amounts)
        if old in left:
            left[old] -= 1
        return self._largest([*left.items(), (new, 1)])

    def _largest(self, amounts: Iterable[tuple[Fraction, int]]) -> _Amounts:
        found: dict[Fraction, int] = {}
        room = self.most
        for amount, number in sorted(amounts, reverse=True):
            taken = min(number, room) if amount else 0
            if taken:
                found[amount] = found.get(amount, 0) + taken
                room -= taken
        return MappingProxyType(found)
