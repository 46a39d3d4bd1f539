"""From the text of a configuration file to its parts, with every fault and its path, all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from stream_dp.config.access import BrokerConfig, RegistryConfig
from stream_dp.config.file_schema import (
    ENTRIES,
    VIEW_MODELS,
    AudienceConfig,
    Config,
    LedgerConfig,
    LevelConfig,
    SourceConfig,
    TopicsConfig,
    ViewConfig,
    keys_at,
)
from stream_dp.config.plan import application_id
from stream_dp.config.yaml_data import Data, join, parse_yaml, substitute, unwritable
from stream_dp.errors import ConfigError, Fault
from stream_dp.exact.rationals import Inexact

BROKER_VARIABLE = "STREAM_DP_BROKER"

_PARTS = ("name", "broker", "registry", "topics", *ENTRIES)
"""Parts that are read of a file that has faults elsewhere."""
_ADAPTERS: Mapping[str, TypeAdapter[Any]] = {
    name: TypeAdapter(get_args(field.annotation)[1] if name in ENTRIES else field.rebuild_annotation())
    for name, field in Config.model_fields.items()
    if name in _PARTS
}
"""By part; of a section with entries, for one of them."""

_MESSAGES = {
    "dict_type": "must be a mapping of keys, not {value}",
    "greater_than_equal": "must be at least {ge}, not {value}",
    "int_type": "must be a whole number, not {value}",
    "less_than_equal": "must be at most {le}, not {value}",
    "list_type": "must be a list, not {value}",
    "literal_error": "must be {expected}, not {value}",
    "missing": "is required",
    "model_attributes_type": "must be a mapping of keys, not {value}",
    "model_type": "must be a mapping of keys, not {value}",
    "string_too_short": "must not be empty",
    "string_type": "must be text, not {value}{quoted}",
    "too_short": "needs at least one entry",
    "union_tag_invalid": "must be {expected_tags}, not {value}",
    "union_tag_not_found": "is required",
    "value_error": "{error}",
}
"""Messages for pydantic's kinds of error; the others keep their own words."""


@dataclass
class Sections:
    """Readable part of a file: the entries without a fault, and the names of all.

    Attributes:
        name: the application's name, None when it is missing or wrong.
        raw: the file's data, for references out of entries that have a fault elsewhere.
        broker: how the cluster is reached, None when that is missing or wrong.
        registry: where schemas are, None when there is none, or it is wrong.
        unset: faults of texts that name variables that are not set; what else is said of such a text tells nothing.
        topics: how topics are named and made, None when that is wrong.
        config: the whole file, None when anything in it is wrong by itself.
    """

    name: str | None = None
    broker: BrokerConfig | None = None
    registry: RegistryConfig | None = None
    unset: list[Fault] = field(default_factory=list)
    raw: Mapping[str, Any] = field(default_factory=dict)
    sources: dict[str, SourceConfig] = field(default_factory=dict)
    ledgers: dict[str, LedgerConfig] = field(default_factory=dict)
    ladders: dict[str, list[LevelConfig]] = field(default_factory=dict)
    audiences: dict[str, AudienceConfig] = field(default_factory=dict)
    views: dict[str, ViewConfig] = field(default_factory=dict)
    topics: TopicsConfig | None = None
    config: Config | None = None

    @property
    def id(self) -> str | None:
        """The id of the application, None when a part of it is wrong."""
        if self.name is None or self.topics is None:
            return None
        return application_id(self.topics.prefix, self.name)

    def names(self, section: str) -> list[str] | None:
        """The names that stand in a section, with or without faults; None when the section cannot be read."""
        entries = self.raw.get(section)
        return list(entries) if isinstance(entries, dict) else None


def read_config(text: str, environ: Mapping[str, str]) -> tuple[Sections, list[Fault]]:
    """Read the file's text against the models.

    Args:
        text: the YAML file's content.
        environ: what `${NAME}` in a text stands for; `STREAM_DP_BROKER` in it is the address of the broker, whatever
            the file says.

    Returns:
        The parts that are right by themselves, and every fault of the others.

    Raises:
        ConfigError: the text is not a YAML mapping, so there are no parts.
    """
    raw, faults = parse_yaml(text)
    broker = environ.get(BROKER_VARIABLE)
    if broker:
        given = raw.get("broker")
        raw["broker"] = {**given, "address": broker} if isinstance(given, dict) else broker
    raw, unset = substitute(raw, environ)
    sections, wrong = read_data(raw, from_variable=bool(broker))
    sections.unset = unset
    return sections, [*faults, *wrong]


def read_data(raw: dict[str, Any], *, from_variable: bool = False) -> tuple[Sections, list[Fault]]:
    """Read what a file holds against the models.

    Args:
        raw: the data, variables put in.
        from_variable: the broker in it is that of `STREAM_DP_BROKER`.

    Returns:
        The parts that are right by themselves, and every fault of the others.

    Raises:
        ConfigError: a text has a character that nothing can be called by.
    """
    if wrong := [*unwritable(raw)]:
        raise ConfigError(wrong)
    try:
        config = Config.model_validate(raw)
    except ValidationError as error:
        # A PlainValidator that fails inside a union repeats nothing, but the kinds of view may.
        faults = list(dict.fromkeys(_fault(details, from_variable=from_variable) for details in error.errors()))
        return Sections(raw=raw, **_readable(raw, error.errors())), faults
    return Sections(raw=raw, config=config, **{name: getattr(config, name) for name in _PARTS}), []


def _readable(raw: Mapping[str, Any], errors: Iterable[ErrorDetails]) -> dict[str, Any]:
    """The parts without an error, of sections with entries the entries without one."""
    broken = {error["loc"][:length] for error in errors for length in (1, 2)}
    found: dict[str, Any] = {}
    for name, adapter in _ADAPTERS.items():
        if name in ENTRIES:
            entries = raw[name].items() if isinstance(raw.get(name), dict) else ()
            found[name] = {key: adapter.validate_python(one) for key, one in entries if (name, key) not in broken}
        elif (name,) not in broken:
            found[name] = adapter.validate_python(raw[name]) if name in raw else Config.model_fields[name].default
    return found


def unknown(word: str, known: Iterable[str]) -> str:
    """Return a hint for a word that is not among `known`: the nearest of them, or all."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1, cutoff=0.7)  # "itme" and "item" have 0.75, "filter" and "item" 0.6
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there is none"


def in_file_order(faults: Iterable[Fault], raw: Mapping[str, Data]) -> list[Fault]:
    """Faults in the order in which the sections and entries they are about stand in the file."""
    places: dict[str, int] = {}
    for section, entries in raw.items():
        places[section] = len(places)
        for name in entries if isinstance(entries, dict) and section in ENTRIES else ():
            places[join(section, name)] = len(places)

    def place(fault: Fault) -> int:
        section, _, rest = fault.path.partition(".")
        entry = join(section, rest.partition(".")[0].partition("[")[0])
        return places.get(entry, places.get(section, -1))

    return sorted(faults, key=place)


def _fault(error: ErrorDetails, *, from_variable: bool) -> Fault:
    place = _place(error)
    if place in {("broker",), ("broker", "address")} and from_variable:
        return Fault(BROKER_VARIABLE, _message(error, place))
    path = ""
    for part in place:
        path = join(path, part)
    return Fault(path, _message(error, place))


def _place(error: ErrorDetails) -> tuple[str | int, ...]:
    """Where an error stands in the file: pydantic's place without its own marks."""
    place = error["loc"]
    if len(place) > 2 and place[0] == "views" and place[2] in VIEW_MODELS:
        place = place[:2] + place[3:]  # the tag of the union
    if error["type"] in {"union_tag_not_found", "union_tag_invalid"}:
        place = (*place, "kind")
    return place[:-1] if place and place[-1] == "[key]" else place


def _message(error: ErrorDetails, place: tuple[str | int, ...]) -> str:
    kind, value = error["type"], error["input"]
    if kind == "extra_forbidden":
        return f"unknown key; {unknown(str(place[-1]), keys_at(error['loc'][:-1]))}"
    if kind == "union_tag_invalid":
        value = value["kind"] if isinstance(value, dict) else value
    words = _MESSAGES.get(kind)
    if words is None:
        return error["msg"]
    quoted = f'; quote it: "{_shown(value)}"' if isinstance(value, bool | int | Inexact) else ""
    return words.format(value=_shown(value), quoted=quoted, **error.get("ctx", {}))


def _shown(value: object) -> str:
    match value:
        case Inexact(text):
            return text
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            text = repr(value)
            return text if len(text) <= 60 else text[:57] + "..."
