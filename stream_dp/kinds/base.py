"""The seam between the engine and the release kinds: what a kind has to say of itself.

A kind is registered once (`stream_dp.kinds.registry`) as a `Kind`. For every view of a configuration it makes a
`KindPlan`: frozen, pure, and all that the rest of the package ever asks about what is peculiar to the kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, SerializeAsAny

from stream_dp.accounting import Cost
from stream_dp.errors import ParameterError
from stream_dp.kinds.fields import Section
from stream_dp.kinds.lists import KeyList, PublicKeys
from stream_dp.kinds.noise import Ladder, NoiseLevel
from stream_dp.kinds.sealing import SealedTable, Sealing, WindowNoise
from stream_dp.records.models import Release

Counts = Mapping[str, int]
"""Exact counts by key: how many users had the key in a window, within their bounds."""


@dataclass(frozen=True, slots=True)
class ViewBasis:
    """Settings of a view that its kind needs to know.

    Attributes:
        ladder: name and epsilon of every level, coarse to fine, rising.
        items_per_user: how many counts of a window one user moves at most, each by one.
        folder: what files named in the configuration are relative to.
        panes: over how many panes these bounds hold together.
    """

    ladder: Ladder
    items_per_user: int
    folder: Path
    panes: int = 1


class Explanation(BaseModel):
    """Explanation of a view's kind, in words for people and in numbers for machines."""

    shows: str = Field(description="What is published, to stand before 'of <item> in topic <topic>'.")
    keys: str = Field(description="How the keys come to be shown and what that costs, in a sentence or more.")
    seen: list[str] = Field(
        description="Which keys a reader sees, a cell for each level: from how many users on, or how many of them."
    )
    columns: dict[str, list[str]] = Field(description="Further columns of the table of levels, a cell for each level.")
    details: SerializeAsAny[BaseModel] = Field(description="The numbers of the kind.")


class KindPlan(ABC):
    """Plan of a view's kind: seals, reads, prices and explains a window.

    Neighbours add or remove everything one user did in a window; `sensitivity` published counts move, each by one.

    Attributes:
        name: of the kind, in configurations and records.
        levels: the ladder with its noise, coarse to fine.
        sensitivity: how many published counts one user moves, each by one (specs/lossless 1.2).
        topics: topics that hold public lists of keys which sealing needs.
        undivided: why a window is not what the panes that it is made of show together; empty where it is.
    """

    name: str
    levels: tuple[NoiseLevel, ...]
    sensitivity: int
    topics: tuple[str, ...] = ()
    undivided: str = "which keys it shows of a window does not follow from those that it shows of the parts"

    @property
    def fewest_keys(self) -> int:
        """Number of keys that a public list must have."""
        return 1

    @property
    @abstractmethod
    def identity(self) -> Sequence[object]:
        """Everything peculiar to the kind that may not change while state of the view exists; JSON."""

    @abstractmethod
    def keys_at_worst(self, *, squared: bool) -> Cost:
        """Worst-case cost of showing the keys of a window, whatever the level; paid once for all audiences.

        Args:
            squared: the ledger has a part for the draws of selections, in squares of epsilon.
        """

    def keys_spent(self, payload: bytes, *, squared: bool) -> Cost:
        """Return the cost of showing the keys of a sealed window, at most `keys_at_worst`.

        Args:
            payload: of the sealed table.
            squared: as above.
        """
        return self.keys_at_worst(squared=squared)

    def domain(self, lists: Mapping[str, KeyList]) -> PublicKeys | None:
        """The public list of the keys that count, None where any key may; what is counted besides is left out.

        Args:
            lists: those of `topics`, as they hold for the window.
        """
        return None

    def needed(self, counts: Counts) -> Counts:
        """Return the part of one bucket's exact counts that the release needs; the rest stops at the merge.

        Unless a kind needs still less, it is the keys of its list; all keys where that stands in a topic, since which
        list holds for a window is known where it is sealed.
        """
        domain = None if self.topics else self.domain({})
        return counts if domain is None else {key: count for key, count in counts.items() if key in domain}

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

    @abstractmethod
    def read(self, table: SealedTable, levels: Sequence[int], noise: WindowNoise) -> list[dict[str, Any]]:
        """Return the kind's own fields of the record of each requested level.

        Each is computed from its own level's values alone.

        Args:
            table: what `seal` returned.
            levels: indices into the ladder.
            noise: what the window was sealed with.
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

    def least_shown(self, level: int) -> int | None:
        """The smallest noisy count that is shown at a level; None where the count alone does not decide that."""
        return None

    @abstractmethod
    def explain(self, keys_at_worst: str) -> Explanation:
        """The plan in words and numbers.

        Args:
            keys_at_worst: that cost in words, as the view's ledger accounts for it.
        """


@dataclass(frozen=True, slots=True)
class Kind:
    """A release kind as the registry has it.

    Attributes:
        name: in configurations, records and the names of schemas.
        title: what a record of it is, for the schema.
        settings: what it adds to the configuration of a view.
        release: the model of its records.
        plan: makes the plan of a view. Raises ConfigError with every fault, paths relative to the view.
        running: whether a total since the start of a window is released at the end of each of its panes.
    """

    name: str
    title: str
    settings: type[Section]
    release: type[Release]
    plan: Callable[[Any, ViewBasis], KindPlan]
    running: bool = False
