"""The configuration file as models: what may stand in it, and what each value has to look like.

What several parts of the file have to agree on is checked in `stream_dp.config.crosschecks`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator, create_model
from pydantic.fields import FieldInfo

from stream_dp.config.access import AnyBrokerConfig, AnyRegistryConfig
from stream_dp.kinds import KINDS
from stream_dp.kinds.fields import Delta, Epsilon, Exact, Section, Text, Topic, must
from stream_dp.kinds.kind import Kind
from stream_dp.kinds.noise_levels import LAPLACE, LAWS
from stream_dp.windows.durations import (
    DAY_MS,
    CalendarUnit,
    format_duration,
    format_time,
    parse_duration,
    parse_length,
    parse_time,
)
from stream_dp.windows.encoding import parse_size
from stream_dp.windows.events import TimeUnit, ValueFormat, names_of
from stream_dp.windows.local_times import DEFAULT_ZONE
from stream_dp.windows.shapes.shape import Settings
from stream_dp.windows.time_zones import check_zone
from stream_dp.windows.views import Clock, Pacing

NAME_LENGTH = 63
PREFIX_LENGTH = 49
"""With it the longest topic that is made of four names has the 249 characters that Kafka takes."""
_PREFIX = re.compile(rf"([A-Za-z0-9._-]{{0,{PREFIX_LENGTH - 1}}}[._])?")
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")
_OTHER_NOISE = {
    **dict.fromkeys(
        ("gaussian", "laplace", "exponential"),
        "is for analysis only: the low bits of a floating-point number tell what it was added to",
    ),
}

SHORTEST_MS = 1000
"""Of windows and of periods."""
LONGEST_MS = 36_500 * DAY_MS
EARLIEST_MS, LATEST_MS = parse_time("1000-01-01T00:00:00Z"), parse_time("3000-01-01T00:00:00Z")
"""Of moments: whatever follows from one and some durations can be written as a date."""


def _audience(value: object) -> object:
    """A starting level alone is an audience without a schedule."""
    if isinstance(value, str):
        return {"level": check_name(value)}
    if isinstance(value, dict | BaseModel):
        return value
    raise ValueError("must be the level it starts with, or `level` and `unlock`")


def _with_unit(value: object, *units: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        offers = ", ".join(f'"{value}{unit}"' for unit in units)
        raise ValueError(f"{value} needs a unit: {offers}")
    return value if isinstance(value, str) else ""


def _duration(value: object) -> int:
    found = parse_duration(_with_unit(value, "s", "m", "h", "d"))
    if found > LONGEST_MS:
        raise ValueError(f"must be at most {format_duration(LONGEST_MS)} (100 years)")
    return found


def _length(value: object) -> int | CalendarUnit:
    found = parse_length(_with_unit(value, "s", "m", "h", "d"))
    return found if isinstance(found, CalendarUnit) else _duration(value)


def _size(value: object) -> int:
    return parse_size(_with_unit(value, "MiB", "GiB"))


def _at_least(least: int, words: str) -> AfterValidator:
    """Refuse smaller numbers; calendar lengths are never too short."""
    return must(lambda value: isinstance(value, CalendarUnit) or value >= least, f"be at least {words}")


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
        raise ValueError(f"must be 1 to {NAME_LENGTH} characters of a-z, 0-9 and inner hyphens; topics contain it")
    return value


def _noise(value: object) -> str:
    if str(value) in LAWS:
        return str(value)
    why = _OTHER_NOISE.get(str(value))
    raise ValueError(f"{f'{value} noise {why}' if why else 'no such noise'}; write {' or '.join(LAWS)}")


def is_duration(field: FieldInfo) -> bool:
    """Return True if the values of a field are durations, in milliseconds."""
    return any(getattr(one, "func", None) is _duration for one in field.metadata)


def _place(value: str) -> str:
    names_of(value)
    return value


_PREFIX_FORM = f"be at most {PREFIX_LENGTH} of a-z, A-Z, 0-9, '.', '_' and '-', and end with '.' or '_'"
_WORDS = "be 1 to 200 printable characters on one line, without blanks at its ends"
_SECOND = _at_least(SHORTEST_MS, "1s: ticks are 1 s apart")

Duration = Annotated[int, PlainValidator(_duration)]
Lasting = Annotated[Duration, _SECOND]
Length = Annotated[int | CalendarUnit, PlainValidator(_length), _SECOND]
"""Of windows and of periods."""
Size = Annotated[int, PlainValidator(_size)]
Zone = Annotated[str, AfterValidator(check_zone)]
Moment = Annotated[int, PlainValidator(_time)]
Name = Annotated[str, AfterValidator(check_name)]
Place = Annotated[Text, AfterValidator(_place)]
"""Of a field in an event: its name, or a path."""
Words = Annotated[
    str, must(lambda words: 0 < len(words) <= 200 and words.isprintable() and words.strip() == words, _WORDS)
]
"""For readers, who see them."""


PartitionerName = Literal["murmur2", "crc32", "unchecked"]
"""The hash by which the producers of a source place keys."""


class ReleaseConfig(Section):
    """When releases leave."""

    slot: Annotated[Duration, _at_least(100, "100ms: a worker under load wakes up some 10 ms late")] = 1000
    offset: Duration = 2000


_HTTPS = re.compile(r"https://[^/?#@\s]+(/[^#@\s]*)?")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]{1,5})?")


class JwtConfig(Section):
    """Whose JWTs give readers audiences.

    Attributes:
        issuer: `iss` of its tokens.
        audience: `aud` of those that are for this gateway.
        jwks: address of its keys.
        claim: that names the audiences of a reader.
    """

    issuer: Text
    audience: Text
    jwks: Annotated[str, must(_HTTPS.fullmatch, 'be an address with TLS, as "https://host/keys"')]
    claim: Text


class ServeConfig(Section):
    """Who may read at the gateway.

    Attributes:
        tokens: file of the readers' tokens.
        public: audiences that everybody may read.
        origins: of pages elsewhere that may ask from a browser.
        jwt: whose JWTs are accepted; None: nobody's.
    """

    tokens: Text | None = None
    public: list[Name] = Field(default_factory=list)
    origins: list[Annotated[str, must(_ORIGIN.fullmatch, 'be an origin, as "https://host"')]] = Field(
        default_factory=list
    )
    jwt: JwtConfig | None = None


class ConsoleConfig(Section):
    """Who may use the operators' console."""

    tokens: Text | None = None


class TopicsConfig(Section):
    """Names and settings of the topics that the application makes.

    Attributes:
        prefix: what the names of all begin with, but for those that the configuration names itself.
        replication: copies of each; None: what the cluster makes by itself.
        min_insync_replicas: copies that must have a record before it is acknowledged; None: the cluster's number.
    """

    prefix: Annotated[str, must(_PREFIX.fullmatch, _PREFIX_FORM)] = ""
    replication: Annotated[int, Field(ge=1, le=100)] | None = None
    min_insync_replicas: Annotated[int, Field(ge=1, le=100)] | None = None


class TimeConfig(Section):
    """Where the event time stands: a field, its unit, and the zone of times without an offset from UTC."""

    field: Place
    unit: TimeUnit = "ms"
    zone: Zone = DEFAULT_ZONE


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


class PoolConfig(Section):
    """Epsilon and delta of a ledger's pool, which is counted in rho."""

    epsilon: Epsilon
    slack: Annotated[Delta, must(bool, "be above 0: without a chance to fail, epsilons just add up")]


class LedgerConfig(Section):
    """A budget and the population it protects."""

    population: Text
    epsilon: Epsilon
    delta: Delta
    period: Length
    zone: Zone | None = None
    start: Moment | None = None
    zcdp: PoolConfig | None = None

    @property
    def lengths(self) -> Settings:
        """Settings of its periods."""
        return Settings(self.period, start_ms=self.start, zone=self.zone)


NO_LEVEL = "none"
"""In the place of a level: nothing is shown."""


class LevelConfig(Section):
    """One level of a ladder: its epsilon, or its share of the epsilon that the ledger affords for every window."""

    level: Annotated[Name, must(lambda name: name != NO_LEVEL, "not be 'none': a grant of 'none' ends what is shown")]
    epsilon: Epsilon | None = None
    share: Annotated[Exact, must(lambda part: 0 < part <= 1, 'be above 0 and at most 1, as "1/4"')] | None = None

    @property
    def size(self) -> Fraction:
        """Number that rises from level to level."""
        return self.epsilon or self.share or Fraction(0)


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
    reserve: Annotated[Exact, must(lambda part: part < 1, 'be below 1, as "1/4"')] = Fraction(0)
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
    catch_up: Duration = 30_000


class ViewConfig(Section):
    """Settings of every view; its kind adds its own."""

    kind: str
    source: str
    item: Place | None = None
    items: Place | None = None
    items_per_user: Annotated[int, Field(ge=1, le=10_000)]
    windows_per_user: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    pacing: Pacing = "none"
    when_short: Literal["refuse", "coarser"] = "refuse"
    window: WindowConfig
    ledger: str
    ladder: str
    share: Annotated[Exact, must(lambda part: 0 < part <= 1, 'be above 0 and at most 1, as "1/2"')] | None = None
    audiences: Annotated[list[str], Field(min_length=1)] | None = None
    unlock: Annotated[dict[str, list[UnlockConfig]], Field(default_factory=dict)]
    sharpen: SharpenConfig | None = None
    retention: Duration = 30 * DAY_MS
    title: Words | None = None
    unit: Words | None = None
    item_meaning: Words | None = None
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    noise: Annotated[str, PlainValidator(_noise)] = LAPLACE

    @property
    def field(self) -> str:
        """The field that is counted, whether it holds one item or a list of them."""
        return self.item or self.items or ""

    @property
    def lengths(self) -> Settings:
        """Settings of its windows."""
        window = self.window
        return Settings(window.size, window.step, window.pane, window.start, window.zone, KINDS[self.kind].running)


def _view_model(kind: Kind) -> type[ViewConfig]:
    """The model of a view of a kind: what every view has, and what the kind adds."""
    bases: Any = (kind.settings, ViewConfig)
    model: Any = create_model(f"{kind.name.title()}ViewConfig", __base__=bases, __doc__=kind.settings.__doc__)
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
    erase_within: Annotated[Duration, _at_least(10_000, "10s: a broker erases from its logs in rounds")] = 15 * 60_000
    window_memory: Annotated[Size, _at_least(32 << 20, "32MiB: one read takes some of it")] = 256 << 20
    block_cache: Annotated[Size, _at_least(8 << 20, "8MiB: it holds the indexes of the tables' files")] = 128 << 20
    standbys: Annotated[int, Field(ge=0, le=9)] = 0
    release: ReleaseConfig = ReleaseConfig()
    topics: TopicsConfig = TopicsConfig()
    registry: AnyRegistryConfig | None = None
    serve: Annotated[ServeConfig, Field(default_factory=ServeConfig)]
    console: ConsoleConfig = ConsoleConfig()
    sources: Annotated[dict[Name, SourceConfig], Named]
    ledgers: Annotated[dict[Name, LedgerConfig], Named]
    ladders: Annotated[dict[Name, Annotated[list[LevelConfig], Named]], Named]
    audiences: Annotated[dict[Name, Audience], Named]
    views: Annotated[dict[Name, AnyViewConfig], Named]


ENTRIES = ("sources", "ledgers", "ladders", "audiences", "views")
"""The sections that have entries by name; with them a control record states what is counted and released."""


def keys_at(place: Sequence[str | int]) -> list[str]:
    """Return the keys that may be at a place of the file, as pydantic names it: with the kind of a view behind it."""
    found: Any = Config
    if place[:1] == ("views",) and len(place) > 2:
        found, place = VIEW_MODELS[str(place[2])], place[3:]
    for part in place:
        inner = _unwrapped(found)
        found = get_args(inner)[-1] if get_origin(inner) else inner.model_fields[str(part)].annotation
    return list(_unwrapped(found).model_fields)


def _unwrapped(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    """The section, the list or the mapping in an annotation; an option is written `X | None`."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = get_args(annotation)[0]
    return annotation
