"""The seam between the engine and the release kinds: what a kind has to say of itself.

A kind is registered once (`stream_dp.kinds.KINDS`) as a `Kind`. For every view of a configuration it makes a
`KindPlan`: frozen, pure, and all that the rest of the package ever asks about what is peculiar to the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
from pydantic import BaseModel, Field

from stream_dp.accounting import Cost
from stream_dp.errors import ParameterError
from stream_dp.kinds.fields import Section
from stream_dp.kinds.noise_levels import LAPLACE, LAWS, Ladder, NoiseLevel
from stream_dp.kinds.public_lists import Counts, KeyList, PublicKeys, ReleaseSettings, check_keys
from stream_dp.kinds.sealing import SealedTable, Sealing, read_counts
from stream_dp.lossless.sealed import WindowNoise
from stream_dp.records.by_kind import ListedIn
from stream_dp.records.models import CountRow


@dataclass(frozen=True, slots=True)
class ViewBasis:
    """Settings of a view that its kind needs to know.

    Attributes:
        ladder: name and epsilon of every level, coarse to fine, rising.
        items_per_user: how many counts of a window one user moves at most, each by one.
        folder: what files named in the configuration are relative to.
        panes: over how many panes these bounds hold together.
        noise: the law of the noise of counts, one of `sealing.LAWS`; discrete Gaussian noise needs a pool.
        application: the id of the application, which names the topics of its releases.
        view: name of the view, in them too.
    """

    ladder: Ladder
    items_per_user: int
    folder: Path
    panes: int = 1
    noise: str = LAPLACE
    application: str = ""
    view: str = ""

    def levels(self, sensitivity: int, shown: Fraction = Fraction(0)) -> tuple[NoiseLevel, ...]:
        """The noise of every level; arguments and errors as of `noise_levels` and the others of `LAWS`."""
        return LAWS[self.noise](self.ladder, sensitivity, shown)


class Explanation(BaseModel):
    """Explanation of a view's kind, in words for people and in numbers for machines."""

    shows: str = Field(description="What is published, to stand before 'of <item> in topic <topic>'.")
    keys: str = Field(description="How the keys come to be shown and what that costs, in a sentence or more.")
    half: str = Field("", description="Which keys are shown in half of the windows. Empty: all that are listed.")
    seen: list[str] = Field(
        description="Which keys a reader sees, a cell for each level: from how many users on, or how many of them."
    )
    columns: dict[str, list[str]] = Field(
        {}, description="Further columns of the table of levels, a cell for each level."
    )
    details: dict[str, Any] = Field(description="The numbers of the kind; `explain` of each says which.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """The rule by which a kind shows keys, for forecasts: by their noisy counts, by a list, or by draws.

    Attributes:
        least: by level, the smallest noisy count that is shown; empty where counts do not decide.
        listed: the list, all of which is shown; None where there is none.
        k: the most keys that are drawn, with Gumbel noise; None where none are.
        kbar: how many of the largest counts are candidates.
        epsilon: of a draw.
        margin: how far a key must be above the count behind the candidates to be drawn as often as not.
    """

    least: tuple[int, ...] = ()
    listed: PublicKeys | None = None
    k: int | None = None
    kbar: int = 0
    epsilon: Fraction = Fraction(0)
    margin: Fraction = Fraction(0)


@dataclass(frozen=True, kw_only=True)
class KindPlan(ABC):
    """Plan of a view's kind: seals, reads, prices and explains a window.

    Neighbours add or remove everything one user did in a window; `sensitivity` published counts move, each by one.

    Attributes:
        name: of the kind, in configurations and records.
        levels: the ladder with its noise, coarse to fine.
        sensitivity: how many published counts one user moves, each by one (specs/lossless 1.2).
        topics: topics that hold public lists of keys which sealing needs.
        made_of: the releases that such a list is made of; None where the keys of records are its keys.
        fewest_keys: number of keys that a public list must have.
        weights: what a user with 1, 2, ... items adds to each of them; empty: 1.
        degrees: the one key that a user with 1, 2, ... items adds 1 to, in place of the items; empty: none.
        is_whole: whether a level costs e^2 / 2 in zCDP, as any mechanism of its epsilon, e.
        rank: the most keys that a release shows, by their noisy counts; None: all that the kind shows.
        undivided: why a window is not what the panes that it is made of show together; empty where it is.
    """

    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    topics: tuple[str, ...] = ()
    made_of: ReleaseSettings | None = None
    fewest_keys: int = 1
    weights: tuple[int, ...] = ()
    degrees: tuple[str, ...] = ()
    rank: int | None = None
    name: ClassVar[str]
    is_whole: ClassVar[bool] = False
    undivided: ClassVar[str] = "which keys it shows of a window does not follow from those that it shows of the parts"

    @property
    def waits_for_list(self) -> bool:
        """True if only keys of a list count, and it may change until a window closes."""
        return False

    @property
    def unshared(self) -> str:
        """Why a pane cannot be in several windows; empty where it can."""
        fixed = "its list may change, and is fixed with the first pane of a window, so no pane can be in two"
        return self.undivided or (fixed if self.waits_for_list else "")

    @property
    def shown(self) -> Fraction:
        """The chance that a key that only one user has is shown at any level; 0 where keys are public or chosen."""
        return Fraction(0)

    @property
    def moves(self) -> str:
        """Words for what one user moves; empty: `sensitivity` counts, each by one."""
        return ""

    @property
    def made_up_keys(self) -> int | None:
        """Number of keys of a made-up window that takes as long as any other; None: time depends on the counts."""
        return None

    @property
    @abstractmethod
    def identity(self) -> Sequence[object]:
        """Everything peculiar to the kind that may not change while state of the view exists; JSON."""

    @abstractmethod
    def keys_at_worst(self, *, pooled: bool) -> Cost:
        """Worst-case cost of showing the keys of a window, whatever the level; paid once for all audiences.

        Args:
            pooled: whether the ledger has a pool: draws of selections are charged in rho.
        """

    @property
    def shorter(self) -> Sequence[KindPlan]:
        """The plans that draw and pay for 1, 2, ... keys in place of all; none where no key has a price of its own."""
        return ()

    def keys_spent(self, payload: bytes, *, pooled: bool) -> Cost:
        """Return the cost of showing the keys of a sealed window, at most `keys_at_worst`.

        Args:
            payload: of the sealed table.
            pooled: as above.
        """
        return self.keys_at_worst(pooled=pooled)

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys | None:
        """The public list of the keys that count, None where any key may; what is counted besides is left out.

        Args:
            lists: those of `topics`, as they hold for the window.
        """
        return None

    def needed(self, counts: Counts) -> Counts:
        """Return the part of one bucket's exact counts that the release needs; the rest stops at the merge.

        Keys that are off a fixed list were never counted. Which list in a topic holds for a window is known where it is
        sealed.
        """
        return counts

    def check_lists(self, lists: Mapping[str, KeyList]) -> None:  # noqa: B027 - most kinds need none
        """Refuse public lists that cannot be used: no worker starts with them, or takes them in place of others.

        Args:
            lists: those of `topics`.

        Raises:
            ConfigError: with every fault, paths relative to the view.
        """

    @abstractmethod
    def seal(self, counts: Counts, sealing: Sealing) -> SealedTable:
        """Draw everything that is ever random about a window; afterwards the counts can be erased.

        Args:
            counts: the exact bounded counts that `needed` let through.
            sealing: where the randomness comes from.

        Guarantee: with every release read from the table, what `keys_spent` and the finest level cost.
        """

    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """Return the kind's own fields of the record of each requested level.

        Each is computed from its own level's values alone.

        Args:
            table: what `seal` returned.
            levels: indices into the ladder.
            noise: what the window was sealed with.
        """
        columns = read_counts(table, self.levels, levels, noise)
        return [self.fields(table, level, column) for level, column in zip(levels, columns, strict=True)]

    @abstractmethod
    def fields(self, table: SealedTable, level: int, column: Sequence[int]) -> dict[str, Any]:
        """Return the kind's own fields of the record of a level.

        Args:
            table: what `seal` returned; only its keys and its payload, since its counts are those of the finest level.
            level: index into the ladder.
            column: the counts of the level, key by key.
        """

    def summand(self, table: SealedTable, level: int, noise: WindowNoise) -> Sequence[int]:
        """Return the addend of a pane to the windows that it is in: one number per key; see `undivided` for none.

        Args:
            table: what `seal` returned.
            level: index into the ladder.
            noise: what the pane was sealed with.
        """
        raise ParameterError(f"a {self.name} is not made of panes")

    def total(self, table: SealedTable, sums: Sequence[int]) -> dict[str, Any]:
        """Return the kind's own fields of the record of a window of panes, as `read` gives them of one table.

        Args:
            table: that of a pane; all have the same keys.
            sums: of what the panes add, key by key.
        """
        raise ParameterError(f"a {self.name} is not made of panes")

    def ranked(self, fields: Mapping[str, Any], half_width: int) -> Mapping[str, Any]:
        """Return the kind's own fields of a record, with the first `rank` items alone if there are more.

        Computed from one release alone, so it costs nothing. `two_sided_from` is w + t + 2, where w is the largest
        count that is left out and t the `half_width` of the noise. Proof: docs/budgets.md, "Ranked lists".
        """
        items = fields["items"]
        if self.rank is None or len(items) <= self.rank:
            return fields
        sure_from = items[self.rank].count + half_width + 2
        return {**fields, "items": items[: self.rank], "rank": self.rank, "two_sided_from": sure_from}

    def presented_as(self, newest: KindPlan) -> KindPlan:
        """Return the plan with the `rank` of the newest plan of its view, if both have one kind and list."""
        is_alike = type(self) is type(newest) and self.topics == newest.topics
        return replace(self, rank=newest.rank) if is_alike else self

    @property
    def ranked_words(self) -> str:
        """The effect of `rank`, as a sentence to follow others; empty without it."""
        return "" if self.rank is None else f" Only the first {self.rank} by noisy count are shown, at no further cost."

    def least_shown(self, level: int) -> int | None:
        """The smallest noisy count that is shown at a level; None where the count alone does not decide that."""
        return self.limits(level).get("minimum_count")

    @property
    def showing(self) -> Showing | None:
        """The rule by which keys are shown; None where it is none that can be forecast."""
        return None

    def limits(self, level: int) -> Mapping[str, int]:
        """Return the fields of a record that say how to read a shown count, and follow from the level alone."""
        return {}

    def better(self, level: int, windows: int, slack: Fraction | None) -> str:
        """Return a way to show clearly more keys at the price of the view, in words; empty if none is known.

        Args:
            level: that windows are planned with.
            windows: how many of a period a user pays for.
            slack: of the ledger's pool; None without one.
        """
        return ""

    @abstractmethod
    def explain(self, keys_at_worst: str) -> Explanation:
        """The plan in words and numbers.

        Args:
            keys_at_worst: that cost in words, as the view's ledger accounts for it.
        """


def largest_first(rows: list[CountRow]) -> list[CountRow]:
    """Return rows of a record in its order: the largest count first, then by key."""
    items = [row.item for row in rows]
    if not all(one <= other for one, other in pairwise(items)):  # not in one call: other threads go on meanwhile
        rows = sorted(rows, key=lambda row: row.item)
    counts = np.fromiter((row.count for row in rows), np.int64, len(rows))
    return [rows[at] for at in np.argsort(-counts, kind="stable").tolist()]


class ListPayload(msgspec.Struct, array_like=True, frozen=True):
    """The payload of a sealed table: the list that it was sealed with."""

    version: str
    keys: int

    @property
    def listed(self) -> ListedIn:
        """The list, as records name it."""
        return ListedIn(version=self.version, keys=self.keys)


def most_chosen(k: int, keys: int) -> int:
    """Number of keys that are chosen of a list: k, and of a shorter one, that is made of releases, all but one."""
    return max(0, min(k, keys - 1))


@dataclass(frozen=True, kw_only=True)
class ListedPlan(KindPlan):
    """The plan of a kind whose keys stand on a public list.

    Attributes:
        listed: the list, None where it is in a topic.
        topics: that topic.
    """

    listed: PublicKeys | None

    @property
    def waits_for_list(self) -> bool:
        """True if the list is in a topic or made of releases."""
        return self.listed is None

    @property
    def list_identity(self) -> Sequence[object]:
        """Where the list stands, and its version where that may not change."""
        kept = [] if self.made_of is None else [self.made_of.keep]
        return [None if self.listed is None else self.listed.version, *self.topics, *kept]

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys:
        """The list."""
        return lists[self.topics[0]] if self.listed is None else self.listed

    def check_lists(self, lists: Mapping[str, KeyList]) -> None:
        """Refuse a list in a topic that has too few keys, too many, or one that no event can have."""
        for topic in self.topics:
            path = "catalogue.topic" if self.made_of is None else "catalogue.keep"
            check_keys(lists[topic].keys, path, self.fewest_keys)

    @property
    def list_in_words(self) -> str:
        """Size of the list, or the place where it is."""
        if self.made_of is not None:
            made = self.made_of
            return (
                f"The list has the keys that audience {made.audience} was shown of view {made.view} in its newest "
                f"{made.keep} released windows. It is empty until there is one. A changed list is in effect from the "
                "next window on."
            )
        if self.listed is None:
            return f"The list is in topic {self.topics[0]}; a changed one is in effect from the next window on."
        return f"The list has {self.listed.size} keys, version {self.listed.version}."

    @property
    def list_details(self) -> dict[str, Any]:
        """The same in numbers: `keys`, how many the list has, and its `version`; null for one in a `topic`."""
        if self.listed is None:
            return {"keys": None, "version": None, "topic": self.topics[0]}
        return {"keys": self.listed.size, "version": self.listed.version, "topic": None}


@dataclass(frozen=True, slots=True)
class Kind:
    """A release kind as the registry has it.

    Attributes:
        name: in configurations, records (`records.by_kind`) and the names of schemas.
        settings: what it adds to the configuration of a view.
        plan: makes the plan of a view. Raises ConfigError with every fault, paths relative to the view.
        running: whether a total since the start of a window is released at the end of each of its panes.
        names_keys: whether records list keys.
    """

    name: str
    settings: type[Section]
    plan: Callable[[Any, ViewBasis], KindPlan]
    running: bool = False
    names_keys: bool = True
