"""The configuration file as models: what may stand in it, and what each value has to look like.

What several parts of the file have to agree on is checked in `stream_dp.config.planning`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator

from stream_dp.config.plan import Clock, PartitionerName, TimeUnit
from stream_dp.config.yaml_data import Inexact
from stream_dp.exact.rationals import parse_exact
from stream_dp.kinds.selection import Mechanism
from stream_dp.windows.durations import parse_duration, parse_time

NAME_LENGTH = 63
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{NAME_LENGTH - 2}}}[a-z0-9])?")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
RELEASED_NOISE = "discrete-laplace"
ANALYSED_NOISE = ("gaussian", "laplace", "exponential")
LIBRARY_NOISE = ("skellam", "discrete-gaussian", "binomial", "poisson", "negative-binomial")
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def _exact(value: object) -> Fraction:
    if isinstance(value, Fraction) and value >= 0:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return parse_exact(str(value))
    if isinstance(value, Inexact | float):
        text = value.text if isinstance(value, Inexact) else repr(value)
        parse_exact(text)
        raise ValueError(f'{text} becomes a binary float, which is not the number you wrote; quote it: "{text}"')
    if isinstance(value, str):
        return parse_exact(value)
    raise ValueError('write an exact number in quotes: "0.25", "1/3" or "1e-6"')


def _positive(value: Fraction) -> Fraction:
    if value == 0:
        raise ValueError("must be above 0")
    return value


def _delta(value: Fraction) -> Fraction:
    if value == 0:
        raise ValueError("must be above 0: which keys exist is unknown, and showing one cannot be free of delta")
    return _below_one(value)


def _below_one(value: Fraction) -> Fraction:
    if value >= 1:
        raise ValueError("must be below 1: a delta of 1 promises nothing")
    return value


def _slack(value: Fraction) -> Fraction:
    if value == 0:
        raise ValueError("must be above 0: without a chance to fail, the epsilons of a part just add up")
    return _below_one(value)


def _duration(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f'{value} needs a unit: "{value}s", "{value}m", "{value}h", "{value}d"')
    return parse_duration(value if isinstance(value, str) else "")


def _one_second(value: int) -> int:
    if value < 1000:
        raise ValueError("must be at least 1s: time moves on by ticks of a second")
    return value


def _ten_seconds(value: int) -> int:
    if value < 10_000:
        raise ValueError("must be at least 10s: a broker erases from its logs in rounds")
    return value


def _time(value: object) -> int:
    return parse_time(value if isinstance(value, str) else "")


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


def check_topic(value: str) -> str:
    """A name Kafka takes for a topic.

    Raises:
        ValueError: it does not.
    """
    if not _TOPIC.fullmatch(value) or value in {".", ".."}:
        raise ValueError("a topic's name is 1 to 249 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    return value


def check_broker(value: str) -> str:
    """A broker address in its full form.

    Args:
        value: "memory://", "kafka://host:port", or "host:port"; several Kafka hosts are parted by commas.

    Raises:
        ValueError: none of these.
    """
    if value == "memory://":
        return value
    hosts = value.removeprefix("kafka://").split(",")
    for host in hosts:
        match = _HOST_PORT.fullmatch(host)
        if match is None or not 1 <= int(match.group(1)) <= 65535:
            raise ValueError(f'{value!r} is no broker: write "kafka://host:port" or "memory://"')
    return "kafka://" + ",".join(hosts)


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


Exact = Annotated[Fraction, PlainValidator(_exact)]
Epsilon = Annotated[Exact, AfterValidator(_positive)]
Duration = Annotated[int, PlainValidator(_duration)]
Lasting = Annotated[Duration, AfterValidator(_one_second)]
Moment = Annotated[int, PlainValidator(_time)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(check_name)]
Topic = Annotated[str, AfterValidator(check_topic)]


class Section(BaseModel):
    """A part of the file: unknown keys are faults, nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TimeConfig(Section):
    """Where the event time stands: a field, and its unit."""

    field: Text
    unit: TimeUnit = "ms"


class SourceConfig(Section):
    """A source topic."""

    topic: Topic
    partitions: Annotated[int, Field(ge=1, le=10_000)]
    user: Text | None = None
    time: TimeConfig | None = None
    dead_letter_topic: Topic | None = None
    partitioner: PartitionerName = "murmur2"


class PartConfig(Section):
    """What a part of a ledger adds to its epsilon, and to its delta."""

    epsilon: Epsilon
    slack: Annotated[Exact, AfterValidator(_slack)]


class PartsConfig(Section):
    """The parts of a ledger that are filtered otherwise than by adding epsilons."""

    selection: PartConfig | None = None
    zcdp: PartConfig | None = None


class LedgerConfig(Section):
    """A budget and the population it protects."""

    population: Text
    epsilon: Epsilon
    delta: Annotated[Exact, AfterValidator(_below_one)]
    period: Lasting
    start: Moment = 0
    parts: PartsConfig | None = None


class LevelConfig(Section):
    """One level of a ladder."""

    level: Name
    epsilon: Epsilon


class WindowConfig(Section):
    """A view's windows."""

    size: Lasting
    start: Moment | None = None
    grace: Duration = 5 * 60_000
    clock: Clock = "wall"
    max_ahead: Lasting | None = None
    idle: Lasting = 60_000


class SelectionConfig(Section):
    """How the keys of a top-k are chosen and what that may cost: epsilon for each draw, delta for each window."""

    mechanism: Mechanism = "gumbel"
    epsilon: Epsilon
    delta: Annotated[Exact, AfterValidator(_delta)] | None = None


class BaseViewConfig(Section):
    """What every kind of view has."""

    source: str
    item: Text
    items_per_user: Annotated[int, Field(ge=1, le=10_000)]
    window: WindowConfig
    ledger: str
    ladder: str
    audiences: Annotated[list[str], Field(min_length=1)] | None = None
    retention: Duration = 30 * 86_400_000
    buckets: Annotated[int, Field(ge=1, le=4096)] = 16
    noise: Annotated[str, PlainValidator(_noise)] = RELEASED_NOISE


class HistogramConfig(BaseViewConfig):
    """A histogram over unknown keys."""

    kind: Literal["histogram"]
    delta: Annotated[Exact, AfterValidator(_delta)]


class TopKConfig(BaseViewConfig):
    """The k most frequent of unknown keys, with their counts."""

    kind: Literal["topk"]
    k: Annotated[int, Field(ge=1, le=10_000)]
    kbar: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    catalogue: Annotated[list[Text], Field(min_length=1)] | None = None
    selection: SelectionConfig


AnyViewConfig = HistogramConfig | TopKConfig
ViewConfig = Annotated[AnyViewConfig, Field(discriminator="kind")]
Named = Field(min_length=1)


class Config(Section):
    """One application: the whole file."""

    name: Name
    broker: Annotated[str, AfterValidator(check_broker)]
    data_dir: Text
    key_file: Text
    erase_within: Annotated[Duration, AfterValidator(_ten_seconds)] = 15 * 60_000
    sources: Annotated[dict[Name, SourceConfig], Named]
    ledgers: Annotated[dict[Name, LedgerConfig], Named]
    ladders: Annotated[dict[Name, Annotated[list[LevelConfig], Named]], Named]
    audiences: Annotated[dict[Name, Name], Named]
    views: Annotated[dict[Name, ViewConfig], Named]


MODELS: dict[tuple[str, ...], tuple[type[BaseModel], ...]] = {
    (): (Config,),
    ("sources", "*"): (SourceConfig,),
    ("sources", "*", "time"): (TimeConfig,),
    ("ledgers", "*"): (LedgerConfig,),
    ("ledgers", "*", "parts"): (PartsConfig,),
    ("ledgers", "*", "parts", "selection"): (PartConfig,),
    ("ledgers", "*", "parts", "zcdp"): (PartConfig,),
    ("ladders", "*", "*"): (LevelConfig,),
    ("views", "*"): (HistogramConfig, TopKConfig),
    ("views", "*", "window"): (WindowConfig,),
    ("views", "*", "selection"): (SelectionConfig,),
}
"""Which models may stand at a place of the file; `*` is any name or index."""

ENTRIES: dict[str, Any] = {
    "sources": SourceConfig,
    "ledgers": LedgerConfig,
    "ladders": Annotated[list[LevelConfig], Named],
    "audiences": Name,
    "views": ViewConfig,
}
"""What an entry of each section is."""
