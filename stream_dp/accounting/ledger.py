"""The privacy ledger of one population and period: reserve, commit, refuse; exact and pure.

The caller stores what a step changes together with what the step is about, and acts only on what is stored:

1. `reserve` before anything is read or drawn, and store it. An `Overdraft` is a normal outcome and may be published:
   it is a function of past outputs and of configuration alone.
2. Draw. Store the output and the `commit` in one step; only then publish the output.
3. After a crash, `commit` an open reservation whose output is stored; that output is published again, never drawn
   again and never charged again. `cancel` one of which nothing was stored or published: noise that was thrown away
   unseen is independent of all that anyone will ever see, since the next attempt draws anew. `forfeit` it in full
   where that is not certain.

So at every stored state `spent + reserved` covers all that anyone can have seen, and it never exceeds the budget.

A budget is a vector, its entries are caps that are fixed in advance, and a call is admitted if its worst case fits
under each of them. What a call did not need is returned, but for delta: the bad event could have happened in any case.

Guarantee: all outputs charged to one ledger are together (E, D)-DP for a user of the population, with

    E = epsilon + zcdp_epsilon(rho, slack)      D = delta + slack

(of the caps; without a pool, rho and slack are 0), whatever was asked, in whatever order, by readers who react to
earlier outputs and share what they saw, provided that every commit covers the output it is stored with.

Proof (docs/budgets.md, One pool, has every step). Let P and Q be the laws of all outputs with one user's events and
without them, or the other way round. Outside bad events, which have probability at most delta in all, every step of
the interaction has P <= P^ and Q >= e^-epsilon_i Q^, for laws P^ and Q^ whose loss L = ln(P^ / Q^) satisfies
E_P^[exp((a - 1) L)] <= exp(a (a - 1) rho_i) for every a > 1. A selection of r draws has exponential-mechanism laws on
the candidates that both neighbours have, and epsilon_i = r ln(1 + delta) <= r delta (`selection_cost`); counts have
their own laws, and epsilon_i = 0; whatever is charged as epsilon has P^ = Q^ = min(P, e^epsilon_i Q), and rho_i = 0.
Along a path the factors e^-epsilon_i multiply to at least e^-epsilon. A draw's and a count's rho is known before it,
and a list ends at a time that its draws decide, so exp((a - 1) L - a (a - 1) rho), L and rho summed along the path, is
a supermartingale (the Renyi filter): E[exp((a - 1) L)] <= exp(a (a - 1) rho) for the cap rho and every a > 1, hence
E_P^[max(0, 1 - exp(zcdp_epsilon - L))] <= slack. So P(S) - e^E Q(S) <= delta + slack for every set S of outputs.

The caps have to be fixed before the first draw: a filter promises nothing about caps that react to what it let pass.

Every step takes the time of a few additions, however many calls were charged or are open.

Source: specs/topk 2.7, 3.3 to 3.5 (with k* and l* replaced by exact costs), tests 8, 9, 36-38; specs/lossless 3.6;
Feldman and Zrnic 2021 for the Renyi filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, reduce
from operator import add
from types import MappingProxyType
from typing import Annotated

import msgspec
from rpds import HashTrieMap

from stream_dp.accounting.cost import Cost
from stream_dp.accounting.dearest import Dearest
from stream_dp.errors import StateError

_VERSION = 1
Rational = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]*)(/[1-9][0-9]*)?\Z")]
"""Stored form of an exact number: "p/q" in lowest terms, or "p"."""
_Vector = tuple[Rational, Rational, Rational]


_NOTHING: HashTrieMap[str, Cost] = HashTrieMap()
_UNCHANGED: Mapping[str, Dearest] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Ledger:
    """Budget of a population, and what was spent and reserved of it.

    Finished calls are folded into `spent` and forgotten, so a ledger is as small after a year as after a day. Whoever
    keeps the outputs knows which calls are finished; reserving a finished call again charges it again.

    Attributes:
        budget: what may be spent in the period: the caps.
        spent: what has been, over all audiences together. Enforced.
        reserved: open reservations, by call id; a persistent map, so that a changed copy shares all but a few nodes.
        readers: what each audience alone has been given. Reported, not enforced.
        views: which view has spent what of `spent`. The budget does not part it; whoever shares it out needs it.
        dearest: of views with `windows_per_user`, the largest charges of windows, by group of windows; and by group and
            audience. Of the windows of a group, their total is spent.
        left: what may still be reserved. Worked out, unless a step that knows it says so.

    Raises:
        StateError: more is spent and reserved than the budget holds.
    """

    budget: Cost
    spent: Cost = Cost.ZERO
    reserved: HashTrieMap[str, Cost] = _NOTHING
    readers: Mapping[str, Cost] = field(default_factory=dict)
    views: Mapping[str, Cost] = field(default_factory=dict)
    dearest: Mapping[str, Dearest] = field(default_factory=dict)
    left: Cost = field(init=False)
    known_left: InitVar[Cost | None] = None

    def __post_init__(self, known_left: Cost | None) -> None:
        if known_left is None:
            object.__setattr__(self, "reserved", HashTrieMap(self.reserved))
            object.__setattr__(self, "readers", MappingProxyType(dict(self.readers)))
            object.__setattr__(self, "views", MappingProxyType(dict(self.views)))
            object.__setattr__(self, "dearest", MappingProxyType(dict(self.dearest)))
            taken = reduce(add, self.reserved.values(), self.spent)
            if not taken <= self.budget:
                raise StateError(f"the ledger has {taken} spent and reserved, its budget is {self.budget}")
            known_left = self.budget - taken
        object.__setattr__(self, "left", known_left)


@dataclass(frozen=True, slots=True)
class Overdraft:
    """The ledger cannot cover a call; nothing was charged.

    Attributes:
        asked: the cost that was to be reserved.
        left: what could have been reserved; at least one entry of it is smaller.
    """

    asked: Cost
    left: Cost


def reserve(ledger: Ledger, call: str, cost: Cost, room: Cost | None = None) -> Ledger | Overdraft:
    """Set a call's worst case aside, before it reads or draws anything.

    Args:
        ledger: the current ledger.
        call: the call's id, the same on every attempt at it.
        cost: the most the call can come to.
        room: what may still be reserved, where that is less than what the ledger has left: because of what other
            ledgers were charged that the same budget has to cover, or of what is kept for others.

    Returns:
        The ledger with the reservation (the same ledger if the call already holds it), or a `Overdraft` if any entry
        does not suffice. A refused call may ask again for less.

    Raises:
        StateError: the call holds a reservation of another cost.

    Time: O(1); O(log) of the open reservations, to the base 32.
    """
    held = ledger.reserved.get(call)
    if held is not None:
        if held != cost:
            raise StateError(f"call {call} has {held} reserved and now asks for {cost}")
        return ledger
    room = ledger.left if room is None else room
    if not cost <= room:
        return Overdraft(cost, room)
    return replace(ledger, reserved=ledger.reserved.insert(call, cost), known_left=ledger.left - cost)


def commit(
    ledger: Ledger,
    call: str,
    cost: Cost,
    readers: Mapping[str, Cost],
    *,
    view: str,
    dearest: Mapping[str, Dearest] = _UNCHANGED,
) -> Ledger:
    """Spend what a call came to and return the rest of its reservation.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.
        cost: what the output costs a user against all readers together, at most what is reserved.
        readers: what the output costs against each audience alone; added to the report.
        view: whose output it is.
        dearest: those of `Ledger.dearest` that this changes.

    Returns:
        The ledger to store together with the output.

    Raises:
        StateError: the call is not reserved (it was committed before, or never was), or came to more than it had
            reserved, or to another delta; nothing is charged, and the output must not be published.

    Time: O(1) for each reader and audience.
    """
    held = _held(ledger, call)
    if not cost <= held:
        raise StateError(f"call {call} came to {cost} but had only {held} reserved")
    refund = held - cost
    if refund.delta:
        raise StateError(f"call {call} came to delta {cost.delta} of {held.delta}: delta is never returned")
    report = ledger.readers
    if readers:
        given = {reader: report.get(reader, Cost.ZERO) + share for reader, share in readers.items()}
        report = MappingProxyType({**report, **given})
    left = ledger.left + refund
    finished = replace(ledger, reserved=ledger.reserved.remove(call), readers=report, known_left=left)
    return _spent(finished, cost, view, left, dearest)


def cancel(ledger: Ledger, call: str) -> Ledger:
    """Drop the reservation of a call of which, beyond doubt, nothing was stored or published.

    Noise may have been drawn for it: what was thrown away unseen tells nobody anything, and is never drawn again.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.

    Returns:
        The ledger without the reservation.

    Raises:
        StateError: the call is not reserved.
    """
    left = ledger.left + _held(ledger, call)
    return replace(ledger, reserved=ledger.reserved.remove(call), known_left=left)


def forfeit(ledger: Ledger, call: str, *, view: str) -> Ledger:
    """Spend a reservation in full: something of the call may have been seen, and its output is lost.

    No audience was given a record, so `readers` stay as they are.

    Args:
        ledger: the current ledger.
        call: the id it was reserved under.
        view: whose call it is.

    Returns:
        The ledger with the reservation spent.

    Raises:
        StateError: the call is not reserved.
    """
    return commit(ledger, call, _held(ledger, call), {}, view=view)


def write_off(ledger: Ledger, cost: Cost, *, view: str, dearest: Mapping[str, Dearest] = _UNCHANGED) -> Ledger:
    """Spend what was paid and is forgotten: state was lost, and outputs that it paid for were seen.

    Every one of them was admitted under the budget, so in no entry can more have been paid than is left. What each
    reader was given is forgotten as well, and `readers` stay as they are.

    Args:
        ledger: the current ledger.
        cost: the most it can have been.
        view: whose outputs they were.
        dearest: those of `Ledger.dearest` that this changes.

    Returns:
        The ledger with that spent, and where it is more than what is left, with nothing left.
    """
    paid = cost.least(ledger.left)
    return _spent(ledger, paid, view, ledger.left - paid, dearest)


def _spent(ledger: Ledger, cost: Cost, view: str, left: Cost, dearest: Mapping[str, Dearest]) -> Ledger:
    views = MappingProxyType({**ledger.views, view: ledger.views.get(view, Cost.ZERO) + cost})
    changed = MappingProxyType({**ledger.dearest, **dearest}) if dearest else ledger.dearest
    return replace(ledger, spent=ledger.spent + cost, views=views, dearest=changed, known_left=left)


def _held(ledger: Ledger, call: str) -> Cost:
    held = ledger.reserved.get(call)
    if held is None:
        raise StateError(f"call {call} has nothing reserved: it was finished before, or never reserved")
    return held


class _Versioned(msgspec.Struct, array_like=True):
    version: int


class _Stored(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    budget: _Vector
    spent: _Vector
    readers: dict[str, _Vector]
    views: dict[str, _Vector]
    dearest: dict[str, tuple[int, tuple[dict[Rational, int], ...]]]
    reserved: dict[str, _Vector]


def encode(ledger: Ledger) -> bytes:
    """Write a ledger as msgpack; equal ledgers give equal bytes.

    A charge ends a reservation, so both are in one row: no crash comes between them.

    Args:
        ledger: any ledger.

    Returns:
        A versioned array; rationals are "p/q" in lowest terms, mappings are sorted by name.
    """
    readers, views, reserved = (
        {name: cost.text for name, cost in sorted(costs.items())}
        for costs in (ledger.readers, ledger.views, ledger.reserved)
    )
    dearest = {
        name: (one.most, tuple({str(amount): number for amount, number in of.items()} for of in one.amounts))
        for name, one in sorted(ledger.dearest.items())
    }
    return msgspec.msgpack.encode(
        _Stored(_VERSION, ledger.budget.text, ledger.spent.text, readers, views, dearest, reserved)
    )


def encode_cost(cost: Cost) -> bytes:
    """Write a cost as msgpack."""
    return msgspec.msgpack.encode(cost.text)


def decode_cost(data: bytes) -> Cost:
    """Read what `encode_cost` wrote.

    Raises:
        StateError: the bytes are damaged.
    """
    try:
        return _from_text(msgspec.msgpack.decode(data, type=_Vector))
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateError(f"a stored cost cannot be read: {error}") from error


def decode(data: bytes) -> Ledger:
    """Read what `encode` wrote.

    Raises:
        StateError: the bytes are damaged, of another version, or hold more spent and reserved than the budget.
            A worker must stop then: to go on with an empty ledger would spend the budget again (specs/topk P22).
    """
    try:
        version = msgspec.msgpack.decode(data, type=_Versioned).version
        if version != _VERSION:
            raise StateError(f"the ledger is stored in version {version}; this code reads version {_VERSION}")
        stored = msgspec.msgpack.decode(data, type=_Stored)
        readers, views, reserved = (
            {name: _from_text(vector) for name, vector in costs.items()}
            for costs in (stored.readers, stored.views, stored.reserved)
        )
        return Ledger(
            budget=_from_text(stored.budget),
            spent=_from_text(stored.spent),
            reserved=HashTrieMap(reserved),
            readers=readers,
            views=views,
            dearest={
                name: Dearest(
                    most, tuple({Fraction(amount): number for amount, number in of.items()} for of in amounts)
                )
                for name, (most, amounts) in stored.dearest.items()
            },
        )
    except (msgspec.MsgspecError, ValueError) as error:
        raise StateError(f"the stored ledger cannot be read: {error}") from error


@lru_cache(maxsize=4096)  # most costs are the same few
def _from_text(vector: _Vector) -> Cost:
    epsilon, delta, rho = vector
    return Cost(Fraction(epsilon), Fraction(delta), Fraction(rho))
