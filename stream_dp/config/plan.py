"""The plan of an application: every number a view needs, computed and checked once, at start.

Frozen data. The engine, the runtime and the commands read a plan; `stream_dp.config.planning` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from stream_dp.accounting import Cost
from stream_dp.kinds.selection import Selection

Kind = Literal["histogram", "topk"]
Clock = Literal["wall", "event"]
PartitionerName = Literal["murmur2", "crc32", "unchecked"]
TimeUnit = Literal["ms", "s", "iso"]

FINGERPRINT_BYTES = 8


@dataclass(frozen=True)
class LevelPlan:
    """One privacy level of a view's ladder.

    Attributes:
        name: the level's name in the ladder.
        epsilon: what one window at this level costs one user, over all their items, without the selection.
        threshold: A of `lossless 7.5`; the noise of one count is discrete Laplace with a = A / 2^64, and
            ln(1/a) times the sensitivity is at most `epsilon`.
        minimum_count: smallest noisy count that is shown (`lossless 2.9.5`), None for a top-k, whose keys are
            selected instead.
        noise_interval: smallest t with Pr[|noise| <= t] >= 95 %, in counts.
        expected_error: E|noise| of one count, exact, in counts.
        rho: what one window at this level, and at any coarser one before it, costs one user in zCDP
            (`accounting.ladder`). Charged in place of `epsilon` where the ledger has a part for it.
    """

    name: str
    epsilon: Fraction
    threshold: int
    minimum_count: int | None
    noise_interval: int
    expected_error: Fraction
    rho: Fraction


@dataclass(frozen=True)
class SourcePlan:
    """A source topic and how one of its records is read.

    Attributes:
        name: the source's name in the configuration.
        topic: the Kafka topic; the record key is the user.
        partitions: number of partitions, the same for every source of an application.
        user_field: field that must repeat the record key, None when the value does not carry the user.
        time_field: field of the event time, None for the record's own timestamp.
        time_unit: unit of `time_field`: integer milliseconds, integer seconds, or RFC 3339 text.
        dead_letter_topic: where the metadata of refused records goes.
        partitioner: the hash the producers place keys with, checked by ingest ("unchecked": trusted).
    """

    name: str
    topic: str
    partitions: int
    user_field: str | None
    time_field: str | None
    time_unit: TimeUnit
    dead_letter_topic: str
    partitioner: PartitionerName


@dataclass(frozen=True)
class WindowPlan:
    """When windows open, close and are forgotten. All times in milliseconds.

    Attributes:
        size_ms: length of a tumbling window.
        start_ms: start of the first window since epoch, None when the first start is recorded once, at run time.
        grace_ms: how long after its end a window still takes late events.
        clock: "wall" closes windows by the clock of the machine, "event" by the watermark records of the source. No
            event moves a clock: it would make other users' events late.
        max_ahead_ms: an event further ahead of the wall clock than this is refused.
        idle_ms: after this long without a watermark, a partition's event clock goes on with the wall clock.
        retention_ms: how long after its end a sealed window can still be sharpened.
    """

    size_ms: int
    start_ms: int | None
    grace_ms: int
    clock: Clock
    max_ahead_ms: int
    idle_ms: int
    retention_ms: int


@dataclass(frozen=True)
class PartPlan:
    """A part of a ledger: a cap on another entry of the cost, and what it adds to the guarantee.

    Attributes:
        epsilon: what the cap adds to the ledger's epsilon.
        slack: what it adds to the ledger's delta.
        cap: of the squares (`selection`) or of rho (`zcdp`).
    """

    epsilon: Fraction
    slack: Fraction
    cap: Fraction


@dataclass(frozen=True)
class LedgerPlan:
    """The budget of a population in each period of `period_ms`; periods tile the time from `start_ms` on.

    Attributes:
        name: the ledger's name.
        population: who a user is, in words.
        total: the guarantee, (epsilon, delta).
        budget: the caps that keep it (`accounting.ledger`): without parts the same, with parts epsilon and delta less
            what the parts add, and their caps.
        period_ms: length of a period.
        start_ms: start of some period.
        parts: by name, `selection` or `zcdp`.
    """

    name: str
    population: str
    total: Cost
    budget: Cost
    period_ms: int
    start_ms: int
    parts: Mapping[str, PartPlan] = field(default_factory=dict)

    def period_of(self, time_ms: int) -> int:
        """The start of the period that a time falls into."""
        return time_ms - (time_ms - self.start_ms) % self.period_ms


@dataclass(frozen=True)
class ViewPlan:
    """Everything about one view.

    Attributes:
        name: the view's name.
        kind: what is published, "histogram" or "topk".
        source: where its events come from.
        item_field: the field that is counted.
        window: its windows.
        items_per_user: number of distinct items of one user that are counted in one window.
        buckets: number of rows its counts are spread over.
        levels: the ladder, coarse to fine.
        audiences: who may read it, and the index in `levels` each starts with.
        ledger: the account it is charged to.
        delta: what one window adds to delta: the discovery of unknown keys over the whole ladder
            (`lossless 2.9.5`), or the selection's (`topk 3.4`).
        topk: how the keys are chosen, None for a histogram.
        fingerprint: 8 bytes over everything that may not change while state of this view exists.
    """

    name: str
    kind: Kind
    source: SourcePlan
    item_field: str
    window: WindowPlan
    items_per_user: int
    buckets: int
    levels: tuple[LevelPlan, ...]
    audiences: Mapping[str, int]
    ledger: LedgerPlan
    delta: Fraction
    topk: Selection | None
    fingerprint: bytes

    @property
    def query_id(self) -> bytes:
        """Name and fingerprint: what keeps the noise of two questions apart (`lossless 6.3`, the window field)."""
        return self.name.encode() + b"\x00" + self.fingerprint

    @property
    def sensitivity(self) -> int:
        """L1 sensitivity of the counts that are published: one user moves this many of them by one (`lossless 1.2`)."""
        return self.items_per_user if self.topk is None else min(self.topk.k, self.items_per_user)

    @property
    def selection(self) -> Cost:
        """What choosing the keys costs at worst (`topk 3.4`); nothing for a histogram."""
        return Cost.ZERO if self.topk is None else self.keys(self.topk.most_draws)

    def keys(self, draws: int) -> Cost:
        """What it costs to show keys: a selection of so many draws; for a histogram delta, whatever is shown."""
        if self.topk is None:
            return Cost(Fraction(0), self.delta)
        return self.topk.cost(draws, squared="selection" in self.ledger.parts)

    def counts(self, level: int) -> Cost:
        """What the counts of one window cost one user at `levels[level]`, and at any coarser level before it."""
        at = self.levels[level]
        if "zcdp" in self.ledger.parts:
            return Cost(Fraction(0), Fraction(0), rho=at.rho)
        return Cost(at.epsilon, Fraction(0))

    def cost(self, level: int) -> Cost:
        """What a window released at `levels[level]` costs one user at worst.

        The counts plus the whole selection; delta is paid once, whatever the level. Coarser releases of the same
        window come free (`lossless 3.2`), so this is also what a coalition learns whose finest level it is.
        """
        return self.counts(level) + self.keys(self.topk.most_draws if self.topk is not None else 0)


@dataclass(frozen=True)
class Plan:
    """A checked application.

    Attributes:
        name: application name, the prefix of its internal topics.
        broker: "kafka://host:port[,host:port...]" or "memory://".
        data_dir: folder of the workers' state.
        key_file: file of the secret that the noise of coarser levels is derived from.
        partitions: number of partitions of every source and internal topic.
        views: by name.
        ledgers: by name.
        audiences: names, in the order of the file.
        erase_within_ms: how long after a window is sealed its raw counts may still stand in a changelog.
    """

    name: str
    broker: str
    data_dir: Path
    key_file: Path
    partitions: int
    views: Mapping[str, ViewPlan]
    ledgers: Mapping[str, LedgerPlan]
    audiences: tuple[str, ...]
    erase_within_ms: int


def fingerprint(view: ViewPlan) -> bytes:
    """Identity of a view: `FINGERPRINT_BYTES` bytes of BLAKE2b over everything that may not change under its state.

    What is left out may change between two starts: the view's name (it stands beside the fingerprint in `query_id`),
    clearances and audiences, grace, clock, how far ahead, idle time, retention, the ledger's budget and how it is
    parted, and the wording of its population. Which parts a ledger has decides how a window is charged, so it is in.
    `view.fingerprint` itself is not looked at.
    """
    source, window, topk = view.source, view.window, view.topk
    identity = [
        view.kind,
        [source.topic, source.partitions, source.user_field, source.time_field, source.time_unit, source.partitioner],
        view.item_field,
        [window.size_ms, window.start_ms],
        [view.items_per_user, view.buckets],
        [[level.name, str(level.epsilon), level.threshold, level.minimum_count] for level in view.levels],
        [
            view.ledger.name,
            view.ledger.period_ms,
            view.ledger.start_ms % view.ledger.period_ms,
            *sorted(view.ledger.parts),
        ],
        str(view.delta),
        None if topk is None else topk.identity,
    ]
    text = json.dumps(identity, ensure_ascii=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=FINGERPRINT_BYTES, person=b"stream-dp view 1").digest()
