"""The public transcript of an application: the inputs that decide everything public about it (section 1).

All times are milliseconds since 1970. Nothing here counts records: a source offset is not part of a transcript.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from stream_dp.config.plan import Plan

# The control topic


@dataclass(frozen=True)
class Settings:
    """Settings that were posted.

    Attributes:
        number: their number; later ones are higher.
        plan: what they were parsed and planned to; None for settings that cannot be planned.
        starts: for each view that begins a new edition, the start of its first window.
        ends: for each view that these settings take out, the start of the first window that is no longer made.
    """

    number: int
    plan: Plan | None
    starts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """Decision of the owner of the control partition about posted settings.

    Attributes:
        number: of the settings.
        accepted: whether they take effect.
        append_ms: when the broker appended the verdict.
    """

    number: int
    accepted: bool
    append_ms: int = 0


Scope: TypeAlias = Literal["retained", "future", "both"]


@dataclass(frozen=True)
class Grant:
    """A level for an audience; `none` stops it, which is a revocation.

    Attributes:
        name: identity of the grant, for its withdrawal.
        audience: who gets the level.
        level: name of the level, or `none`.
        views: the views that it is about; None for all that the audience reads.
        scope: whether it is about windows before it, after it, or both.
        from_ms: it is about windows that start at or after this.
        until_ms: it is about windows that start before this; None for no limit.
        at_ms: when it is carried out; None for at once.
    """

    name: str
    audience: str
    level: str
    views: tuple[str, ...] | None = None
    scope: Scope = "both"
    from_ms: int = 0
    until_ms: int | None = None
    at_ms: int | None = None


@dataclass(frozen=True)
class Withdrawal:
    """An operator takes back a grant that was not carried out."""

    grant: str


@dataclass(frozen=True)
class KeyAdded:
    """A key of the key file came into use; windows are sealed with the newest one."""

    key: str


@dataclass(frozen=True)
class KeyRetired:
    """The secret of a key is deleted: windows that were sealed with it are never sharpened again."""

    key: str


@dataclass(frozen=True)
class DeclaredLoss:
    """An operator gives up a source partition up to a time (section 8)."""

    source: str
    partition: int
    until_ms: int


Control: TypeAlias = Settings | Verdict | Grant | Withdrawal | KeyAdded | KeyRetired | DeclaredLoss

# Partitions


@dataclass(frozen=True)
class Tick:
    """A tick of one partition. The ends of lists that it carries are in the versions that were stored with it.

    Attributes:
        time_ms: its time, as the broker stamped it.
        control_end: offset after the last control record that it knows of.
        sources: the sources whose end it names.
    """

    time_ms: int
    control_end: int
    sources: frozenset[str]


@dataclass(frozen=True)
class Watermark:
    """A watermark of a source. It comes before the first tick about the source whose end is after it."""

    source: str
    time_ms: int


@dataclass(frozen=True)
class Gap:
    """Records of a source may be missing between the ticks about it before and after this place.

    A gap that contains ticks about its source has one marker in each part.
    """

    source: str


@dataclass(frozen=True)
class LossAccepted:
    """An operator accepted that counts were lost (`--accept-loss`), or a topic was lost with counts on their way.

    It stands in the ledger's own partition. Windows of these views that start in the interval and were not decided
    before the next tick are lost.
    """

    views: tuple[str, ...]
    from_ms: int
    until_ms: int


PartitionEvent: TypeAlias = Tick | Watermark | Gap | LossAccepted


@dataclass(frozen=True)
class StoredList:
    """A version of a public list as a ledger stored it.

    Attributes:
        tick_ms: time of the tick of the ledger's partition with which it took effect.
        version: identity of its content.
    """

    tick_ms: int
    version: str


@dataclass(frozen=True)
class Transcript:
    """Everything that decides what an application publishes, the noise in its records excepted.

    Attributes:
        control: the control topic; the place in this tuple is the offset.
        partitions: by number, the ticks of a partition with the watermarks and gaps of the sources between them.
        ledgers: by population, the ledger's own partition.
        lists: by population and topic, the versions of public lists, by rising tick.
    """

    control: tuple[Control, ...]
    partitions: Mapping[int, tuple[PartitionEvent, ...]]
    ledgers: Mapping[str, int]
    lists: Mapping[tuple[str, str], tuple[StoredList, ...]] = field(default_factory=dict)


class TranscriptError(Exception):
    """A transcript that no run can have: a rule about its inputs is broken."""
