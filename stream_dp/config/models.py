"""The configuration file as models: what may stand in it, and what each value has to look like.

What several parts of the file have to agree on is checked in `stream_dp.config.crosschecks`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator, create_model
from pydantic.fields import FieldInfo

from stream_dp.config.access import (
    AnyBrokerConfig,
    AnyRegistryConfig,
    BrokerConfig,
    RegistryConfig,
    SaslConfig,
    SecretConfig,
    TlsConfig,
)
from stream_dp.config.plan import PartitionerName
from stream_dp.kinds.base import Kind
from stream_dp.kinds.fields import Delta, Epsilon, Exact, Section, Text, Topic
from stream_dp.kinds.registry import KINDS
from stream_dp.windows.durations import (
    CalendarUnit,
    format_duration,
    format_time,
    parse_duration,
    parse_length,
    parse_time,
)
from stream_dp.windows.encoding import parse_size
from stream_dp.windows.events import TimeUnit, ValueFormat, names_of
from stream_dp.windows.shapes.calendars import check_zone
from stream_dp.windows.views import Clock

NAME_LENGTH = 63
PREFIX_LENGTH = 49
"""With it the longest topic that is made of four names has the 249 characters that Kafka takes."""
_PREFIX = re.compile(rf"([A-Za-z0-9._-]{{0,{PREFIX_LENGTH - 1}}}[._])?")
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")
RELEASED_NOISE = "discrete-laplace"
ANALYSED_NOISE = ("gaussian", "laplace", "exponential")
LIBRARY_NOISE = ("discrete-gaussian",)

SHORTEST_MS = 1000
"""Of windows and of periods."""
LONGEST_MS = 36_500 * 86_400_000
EARLIEST_MS, LATEST_MS = parse_time("1000-01-01T00:00:00Z"), parse_time("3000-01-01T00:00:00Z")
"""Of moments: whatever follows from one and some durations can be written as a date."""
SHORTEST_SLOT_MS = 100
LEAST_MEMORY = 32 << 20
LEAST_CACHE = 8 << 20


def _share(value: Fraction) -> Fraction:
    if not 0 < value <= 1:
        raise ValueError('must be above 0 and at most 1: the part of the ledger that the view may take, as "1/2"')
    return value


def _reserve(value: Fraction) -> Fraction:
    if value >= 1:
        raise ValueError('must be below 1: the part of a period\'s budget that is left alone, as "1/4"')
    return value


def _audience(value: object) -> object:
    """A starting level alone is an audience without a schedule."""
    if isinstance(value, str):
        return {"level": check_name(value)}
    if isinstance(value, dict | BaseModel):
        return value
    raise ValueError("must be the level it starts with, or `level` and `unlock`")


def _slack(value: Fraction) -> Fraction:
    if value == 0:
        raise ValueError("must be above 0: without a chance to fail, the epsilons of a part just add up")
    return value


def _duration(value: object) -> int:
    return _at_most(parse_duration(_with_unit(value)))


def _length(value: object) -> int | CalendarUnit:
    found = parse_length(_with_unit(value))
    return found if isinstance(found, CalendarUnit) else _one_second(_at_most(found))


def _with_unit(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f'{value} needs a unit: "{value}s", "{value}m", "{value}h", "{value}d"')
    return value if isinstance(value, str) else ""


def _at_most(duration: int) -> int:
    if duration > LONGEST_MS:
        raise ValueError(f"must be at most {format_duration(LONGEST_MS)} (100 years)")
    return duration


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f'{value} needs a unit: "{value}MiB", "{value}GiB"')
    return parse_size(value if isinstance(value, str) else "")


def _some_memory(value: int) -> int:
    if value < LEAST_MEMORY:
        raise ValueError("must be at least 32MiB: what is read at once takes some of it")
    return value


def _some_cache(value: int) -> int:
    if value < LEAST_CACHE:
        raise ValueError("must be at least 8MiB: the indexes of the tables' files are kept in it")
    return value


def _one_second(value: int) -> int:
    if value < SHORTEST_MS:
        raise ValueError("must be at least 1s: time moves on by ticks of a second")
    return value


def _ten_seconds(value: int) -> int:
    if value < 10_000:
        raise ValueError("must be at least 10s: a broker erases from its logs in rounds")
    return value


def _tenth(value: int) -> int:
    if value < SHORTEST_SLOT_MS:
        raise ValueError("must be at least 100ms: a worker under load wakes up late by some hundredths of a second")
    return value


def _time(value: object) -> int:
    found = parse_time(value if isinstance(value, str) else "")
    if not EARLIEST_MS <= found < LATEST_MS:
        raise ValueError(f"must be from {format_time(EARLIEST_MS)} on and before {format_time(LATEST_MS)}")
    return found


def check_name(value: str) -> str:
    """A name that can be a part of a Kafka topic.

    Raises:
        ValueError: anything but 1 to 63 lower-case letters, digits and inner hyphens.
    """
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"a name is 1 to {NAME_LENGTH} characters of a-z, 0-9 and inner hyphens; it becomes part of a topic's name"
        )
    return value


def _noise(value: object) -> str:
    if value == RELEASED_NOISE:
        return RELEASED_NOISE
    if value in ANALYSED_NOISE:
        raise ValueError(
            f"{value} noise is for analysis only: the low bits of a floating-point number tell what it was added to; "
            f"write {RELEASED_NOISE}"
        )
    if value in LIBRARY_NOISE:
        raise ValueError(
            f"{value} noise has no pure epsilon, which is what a ladder states; it is there for programs "
            f"(docs/lossless.md); write {RELEASED_NOISE}"
        )
    raise ValueError(f"no such noise; write {RELEASED_NOISE}")


def is_duration(field: FieldInfo) -> bool:
    """Return True if the values of a field are durations, in milliseconds."""
    return any(getattr(one, "func", None) is _duration for one in field.metadata)


def _prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError(
            f"a prefix is at most {PREFIX_LENGTH} characters of a-z, A-Z, 0-9, '.', '_' and '-', the last one '.' or "
            "'_': topics and groups begin with it, and where it ends and a name begins must be seen"
        )
    return value


def _place(value: str) -> str:
    names_of(value)
    return value


Duration = Annotated[int, PlainValidator(_duration)]
Lasting = Annotated[Duration, AfterValidator(_one_second)]
Length = Annotated[int | CalendarUnit, PlainValidator(_length)]
"""Of windows and of periods."""
Zone = Annotated[str, AfterValidator(check_zone)]
Moment = Annotated[int, PlainValidator(_time)]
Name = Annotated[str, AfterValidator(check_name)]
Place = Annotated[Text, AfterValidator(_place)]
"""Of a field in an event: its name, or a path."""


class ReleaseConfig(Section):
    """When releases leave."""

    slot: Annotated[Duration, AfterValidator(_tenth)] = 1000
    offset: Duration = 2000


class TopicsConfig(Section):
    """Names and settings of the application's topics."""

    prefix: Annotated[str, AfterValidator(_prefix)] = ""
    replication: Annotated[int, Field(ge=1, le=100)] | None = None
    min_insync_replicas: Annotated[int, Field(ge=1, le=100)] | None = None


class TimeConfig(Section):
    """Where the event time stands: a field, and its unit."""

    field: Place
    unit: TimeUnit = "ms"


class SourceConfig(Section):
    """A source topic."""

    topic: Topic
    partitions: Annotated[int, Field(ge=1, le=10_000)]
    format: ValueFormat = "json"
    key: Place | None = None
    user: Place | None = None
    time: TimeConfig | None = None
    dead_letter_topic: Topic | None = None
    partitioner: PartitionerName = "murmur2"


class PartConfig(Section):
    """Epsilon and delta of a part of a ledger."""

    epsilon: Epsilon
    slack: Annotated[Delta, AfterValidator(_slack)]


class PartsConfig(Section):
    """The parts of a ledger that are filtered otherwise than by adding epsilons."""

    selection: PartConfig | None = None
    zcdp: PartConfig | None = None


class LedgerConfig(Section):
    """A budget and the population it protects."""

    population: Text
    epsilon: Epsilon
    delta: Delta
    period: Length
    zone: Zone | None = None
    start: Moment | None = None
    parts: PartsConfig | None = None


NO_LEVEL = "none"
"""In the place of a level: nothing is shown."""


def _no_nothing(name: str) -> str:
    if name == NO_LEVEL:
        raise ValueError(f"a level cannot have the name {NO_LEVEL!r}: a grant of {NO_LEVEL!r} ends what is shown")
    return name


class LevelConfig(Section):
    """One level of a ladder."""

    level: Annotated[Name, AfterValidator(_no_nothing)]
    epsilon: Epsilon


class UnlockConfig(Section):
    """A level that is unlocked when a window is so old."""

    level: Name
    after: Lasting


class AudienceConfig(Section):
    """A group of readers: where it starts, and what it sees later."""

    level: Name
    unlock: Annotated[list[UnlockConfig], Field(default_factory=list)]


Audience = Annotated[AudienceConfig, BeforeValidator(_audience)]


class SharpenConfig(Section):
    """Use of a ledger's leftover budget."""

    audience: str
    level: Name
    reserve: Annotated[Exact, AfterValidator(_reserve)] = Fraction(0)
    every: Lasting


class WindowConfig(Section):
    """A view's windows."""

    size: Length
    zone: Zone | None = None
    step: Lasting | None = None
    pane: Lasting | None = None
    start: Moment | None = None
    grace: Duration = 5 * 60_000
    clock: Clock = "wall"
    max_ahead: Lasting | None = None
    idle: Lasting = 60_000


class ViewConfig(Section):
    """Settings of every view; its kind adds its own."""

    kind: str
    source: str
    item: Place | None = None
    items: Place | None = None
    items_per_user: Annotated[int, Field(ge=1, le=10_000)]
    window: WindowConfig
    ledger: str
    ladder: str
    share: Annotated[Exact, AfterValidator(_share)] | None = None
    audiences: Annotated[list[str], Field(min_length=1)] | None = None
    unlock: Annotated[dict[str, list[UnlockConfig]], Field(default_factory=dict)]
    sharpen: SharpenConfig | None = None
    retention: Duration = 30 * 86_400_000
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    noise: Annotated[str, PlainValidator(_noise)] = RELEASED_NOISE

    @property
    def field(self) -> str:
        """The field that is counted, whether it holds one item or a list of them."""
        return self.item or self.items or ""


def _view_model(kind: Kind) -> type[ViewConfig]:
    """The model of a view of a kind: what every view has, and what the kind adds."""
    name = f"{kind.name.title()}ViewConfig"
    bases: Any = (kind.settings, ViewConfig)
    model: Any = create_model(name, __base__=bases, __doc__=kind.settings.__doc__)
    return cast("type[ViewConfig]", model)


VIEW_MODELS = {name: _view_model(kind) for name, kind in KINDS.items()}
"""By kind."""

if TYPE_CHECKING:
    AnyViewConfig = ViewConfig
else:
    AnyViewConfig = Annotated[reduce(or_, VIEW_MODELS.values()), Field(discriminator="kind")]
Named = Field(min_length=1)


class Config(Section):
    """One application: the whole file."""

    name: Name
    broker: AnyBrokerConfig
    data_dir: Text
    key_file: Text
    erase_within: Annotated[Duration, AfterValidator(_ten_seconds)] = 15 * 60_000
    window_memory: Annotated[int, PlainValidator(_size), AfterValidator(_some_memory)] = 256 << 20
    block_cache: Annotated[int, PlainValidator(_size), AfterValidator(_some_cache)] = 128 << 20
    release: ReleaseConfig = ReleaseConfig()
    topics: TopicsConfig = TopicsConfig()
    registry: AnyRegistryConfig | None = None
    sources: Annotated[dict[Name, SourceConfig], Named]
    ledgers: Annotated[dict[Name, LedgerConfig], Named]
    ladders: Annotated[dict[Name, Annotated[list[LevelConfig], Named]], Named]
    audiences: Annotated[dict[Name, Audience], Named]
    views: Annotated[dict[Name, AnyViewConfig], Named]


MODELS: dict[tuple[str, ...], type[BaseModel]] = {
    (): Config,
    ("broker",): BrokerConfig,
    ("broker", "tls"): TlsConfig,
    ("broker", "tls", "key_password"): SecretConfig,
    ("broker", "sasl"): SaslConfig,
    ("broker", "sasl", "password"): SecretConfig,
    ("broker", "sasl", "token"): SecretConfig,
    ("registry",): RegistryConfig,
    ("registry", "tls"): TlsConfig,
    ("registry", "tls", "key_password"): SecretConfig,
    ("registry", "password"): SecretConfig,
    ("release",): ReleaseConfig,
    ("topics",): TopicsConfig,
    ("sources", "*"): SourceConfig,
    ("sources", "*", "time"): TimeConfig,
    ("ledgers", "*"): LedgerConfig,
    ("ledgers", "*", "parts"): PartsConfig,
    ("ledgers", "*", "parts", "selection"): PartConfig,
    ("ledgers", "*", "parts", "zcdp"): PartConfig,
    ("ladders", "*", "*"): LevelConfig,
    ("audiences", "*"): AudienceConfig,
}
"""Models by place of the file; `*` is any name or index. Views are in `VIEW_MODELS`."""

ENTRIES: dict[str, Any] = {
    "sources": SourceConfig,
    "ledgers": LedgerConfig,
    "ladders": Annotated[list[LevelConfig], Named],
    "audiences": Audience,
    "views": AnyViewConfig,
}
"""Names of the entries of each section."""
