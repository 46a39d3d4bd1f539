"""The privacy ledger of one population and period: reserve, commit, refuse; exact and pure.

The caller stores the ledger a step returns together with what the step is about, and acts only on what is stored:

1. `reserve` before anything is read or drawn, and store it. A `Refusal` is a normal outcome and may be published:
   it is a function of past outputs and of configuration alone.
2. Draw. Store the output and the `commit` in one step; only then publish the output.
3. After a crash, an open reservation without a stored output is `forfeit` in full, unless it is certain that
   nothing was drawn (`release`). A stored output is published again, never drawn again and never charged again.

So at every stored state `spent + reserved` covers all that anyone can have seen, and it never exceeds the budget.

Guarantee: all outputs charged to one ledger are together (budget.epsilon, budget.delta)-DP for a user of the
population, whatever was asked, in whatever order, by readers who react to earlier outputs and share what they saw,
provided that every commit covers the output it is stored with (`selection_cost` has the proof). Composition is
basic, i.e. costs add, because only then may costs be chosen along the way without a filter on squares.

Source: topk 2.7, 3.5 (with k* and l* replaced by exact epsilon and delta), tests 8, 9, 36-38.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Annotated

import msgspec

from stream_dp.accounting.cost import Cost
from stream_dp.errors import StateError

_VERSION = 1
_Rational = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]*)(/[1-9][0-9]*)?\Z")]
_Pair = tuple[_Rational, _Rational]


@dataclass(frozen=True)
class Ledger:
    """What a population's budget is and what has become of it.

    Finished calls are folded into `spent` and forgotten, so a ledger is as small after a year as after a day. Whoever
    keeps the outputs knows which calls are finished; reserving a finished call again charges it again.

    Attributes:
        budget: what may be spent in the period.
        spent: what has been, over all audiences together. Enforced.
        reserved: open reservations, by call id.
        readers: what each audience alone has been given. Reported, not enforced.

    Raises:
        StateError: more is spent and reserved than the budget holds.
    """

    budget: Cost
    spent: Cost = Cost.ZERO
    reserved: Mapping[str, Cost] = field(default_factory=dict)
    readers: Mapping[str, Cost] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reserved", MappingProxyType(dict(self.reserved)))
        object.__setattr__(self, "readers", MappingProxyType(dict(self.readers)))
        taken = self._taken()
        if not taken <= self.budget:
            raise StateError(f"the ledger has {taken} spent and reserved, its budget is {self.budget}")

    @property
    def left(self) -> Cost:
        """What may still be reserved."""
        return self.budget - self._taken()

    def _taken(self) -> Cost:
        return reduce(add, self.reserved.values(), self.spent)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The ledger cannot cover a call; nothing was charged.

    Attributes:
        asked: the cost that was to be reserved.
        left: what the ledger had left; at least one part of it is smaller.
    """

    asked: Cost
    left: Cost


def reserve(ledger: Ledger, call: str, cost: Cost) -> Ledger | Refusal:
    """Set a call's worst case aside, before it reads or draws anything.

    Args:
        ledger: the current ledger.
        call: the call's id, the same on every attempt at it.
        cost: the most the call can come to.

    Returns:
        The ledger with the reservation (the same ledger if the call already holds it), or a `Refusal` if epsilon
        or delta does not suffice. A refused call may ask again for less.

    Raises:
        StateError: the call holds a reservation of another cost.
    """
    held = ledger.reserved.get(call)
    if held is not None:
        if held != cost:
            raise StateError(f"call {call} has {held} reserved and now asks for {cost}")
        return ledger
    left = ledger.left
    if not cost <= left:
        return Refusal(cost, left)
    return replace(ledger, reserved={**ledger.reserved, call: cost})


def commit(ledger: Ledger, call: str, cost: Cost, readers: Mapping[str, Cost]) -> Ledger:
    """Spend what a call came to and return the rest of its reservation.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.
        cost: what the output costs a user against all readers together, at most what is reserved.
        readers: what the output costs against each audience alone; added to the report.

    Returns:
        The ledger to store together with the output.

    Raises:
        StateError: the call is not reserved (it was committed before, or never was), or came to more than it had
            reserved; nothing is charged, and the output must not be published.
    """
    held = _held(ledger, call)
    if not cost <= held:
        raise StateError(f"call {call} came to {cost} but had only {held} reserved")
    given = {reader: ledger.readers.get(reader, Cost.ZERO) + share for reader, share in readers.items()}
    return replace(release(ledger, call), spent=ledger.spent + cost, readers={**ledger.readers, **given})


def release(ledger: Ledger, call: str) -> Ledger:
    """Drop the reservation of a call for which, beyond doubt, nothing was drawn.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.

    Returns:
        The ledger without the reservation.

    Raises:
        StateError: the call is not reserved.
    """
    _held(ledger, call)
    return replace(ledger, reserved={name: cost for name, cost in ledger.reserved.items() if name != call})


def forfeit(ledger: Ledger, call: str) -> Ledger:
    """Spend a reservation in full: the call may have drawn something, and its output is lost.

    No audience was given anything, so `readers` stay as they are.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.

    Returns:
        The ledger with the reservation spent.

    Raises:
        StateError: the call is not reserved.
    """
    return commit(ledger, call, _held(ledger, call), {})


def _held(ledger: Ledger, call: str) -> Cost:
    held = ledger.reserved.get(call)
    if held is None:
        raise StateError(f"call {call} has nothing reserved: it was finished before, or never reserved")
    return held


class _Versioned(msgspec.Struct, array_like=True):
    version: int


class _Stored(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    budget: _Pair
    spent: _Pair
    reserved: dict[str, _Pair]
    readers: dict[str, _Pair]


def encode(ledger: Ledger) -> bytes:
    """Write a ledger as msgpack; equal ledgers give equal bytes.

    Args:
        ledger: any ledger.

    Returns:
        A versioned array; rationals are "p/q" in lowest terms, mappings are sorted by name.
    """
    return msgspec.msgpack.encode(
        _Stored(
            _VERSION,
            _to_text(ledger.budget),
            _to_text(ledger.spent),
            {call: _to_text(cost) for call, cost in sorted(ledger.reserved.items())},
            {reader: _to_text(cost) for reader, cost in sorted(ledger.readers.items())},
        )
    )


def decode(data: bytes) -> Ledger:
    """Read what `encode` wrote.

    Args:
        data: the stored bytes.

    Returns:
        The ledger.

    Raises:
        StateError: the bytes are damaged, of another version, or hold more spent and reserved than the budget.
            A worker must stop then: to go on with an empty ledger would spend the budget again (topk P22).
    """
    try:
        version = msgspec.msgpack.decode(data, type=_Versioned).version
        if version != _VERSION:
            raise StateError(f"the ledger is stored in version {version}; this code reads version {_VERSION}")
        stored = msgspec.msgpack.decode(data, type=_Stored)
        return Ledger(
            budget=_from_text(stored.budget),
            spent=_from_text(stored.spent),
            reserved={call: _from_text(pair) for call, pair in stored.reserved.items()},
            readers={reader: _from_text(pair) for reader, pair in stored.readers.items()},
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateError(f"the stored ledger cannot be read: {error}") from error


def _to_text(cost: Cost) -> tuple[str, str]:
    return str(cost.epsilon), str(cost.delta)


def _from_text(pair: tuple[str, str]) -> Cost:
    epsilon, delta = pair
    return Cost(Fraction(epsilon), Fraction(delta))
