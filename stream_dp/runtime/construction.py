"""Acceptance is construction: a plan is accepted only if everything that a worker builds from it can be built.

A plan that passes every check of the configuration may still contain something that a part of a worker refuses. Such a
plan must never take effect, because every worker would crash on it. So `construct` builds every part before that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import msgspec
import rocksdict

from stream_dp.config.plan import Plan, ViewPlan
from stream_dp.config.yaml_data import join
from stream_dp.control.editions import SETTINGS, Posted, decode_posted, encode_posted, first_record, plan_holding
from stream_dp.errors import ConfigError, Fault, StateError, StreamDPError
from stream_dp.exact.bits import system_entropy
from stream_dp.releases.keyring import KeyRing
from stream_dp.runtime.factory import Factory, Settled, event_decoder, key_reader
from stream_dp.runtime.kafka.ownership import Claim, Life, encode_claim
from stream_dp.runtime.kafka.topics import Topics, counted_in, sources_of
from stream_dp.version import STATE_FORM
from stream_dp.windows.effects import NoRows

MADE_UP_KEY = bytes(32)
MADE_UP_TOPIC = Life("0" * 22, 1)
"""A stand-in for a topic, with an id as long as a broker's."""
ANY_TIME_MS = 1_704_067_200_000
"""A time that has windows before and after it in every plan."""


UNFORESEEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
    re.error,
    struct.error,
)
"""Errors that a part raises for input that no check foresaw."""


def plan_settings(known: Sequence[Posted], local: Plan) -> Plan:
    """Return the plan of settings, after a trial construction of everything that a worker builds from it.

    Args:
        known: the settings.
        local: the plan of a file of the application.

    Raises:
        ConfigError: the settings cannot be planned. They may have any content: another version may have posted them.
    """
    try:
        plan = plan_holding(known, local)
    except UNFORESEEN as error:
        words = f"settings {known[-1].number} cannot be planned: {type(error).__name__}: {error}"
        raise ConfigError(words) from error
    construct(plan)
    return plan


def plan_accepted(known: Sequence[Posted], used: int, local: Plan) -> Plan:
    """Return the plan of accepted settings, after a trial construction.

    Args:
        known: the accepted settings, at least one.
        used: highest number of settings that a worker has used (`SettingsHistory.used`).
        local: the plan of a file of the application.

    Raises:
        ConfigError: they cannot be planned here; the error names their number, the reason and the remedy.
    """
    try:
        return plan_settings(known, local)
    except ConfigError as error:
        raise explain_unplannable(known[-1].number, used, error) from None


def explain_unplannable(number: int, used: int, error: ConfigError) -> ConfigError:
    """Return the error for accepted settings that cannot be planned here, with the remedy.

    Args:
        number: number of the settings.
        used: highest number of settings that a worker has used.
        error: the reason.
    """
    if number > used:
        remedy = (
            "No worker has used them. Run `stream-dp apply FILE` with a corrected file or the former one, and start "
            "the worker again: it takes these settings back"
        )
    else:
        remedy = (
            "Workers have used them, so they cannot be taken back. Start the version of stream-dp that they were "
            "applied with, with the same files; with that version you can also apply other settings"
        )
    words = f"they are accepted, but cannot be planned here: {describe_faults(error)}. {remedy}"
    return ConfigError(words, f"settings {number}")


def describe_faults(error: ConfigError) -> str:
    """Return the faults of an error in one line, without a full stop."""
    return "; ".join(" ".join(str(fault).split()) for fault in error.faults).rstrip(".")


def construct(plan: Plan) -> None:
    """Build everything that a worker builds from a plan, without connecting to anything or writing anything.

    Args:
        plan: the plan, with every edition of its views (`plan_holding`).

    Raises:
        ConfigError: a part cannot be built; the error names each such part by its path in the file.
    """
    found: list[Fault] = []
    for view in plan.views.values():
        with _faults_at(_field_path(view), found):
            event_decoder(view.source, [view])
    for source in () if found else sources_of(plan).values():
        path = join("sources", source.name)
        with _faults_at(path, found):
            event_decoder(source, [view for view in plan.views.values() if view.source.name == source.name])
        if source.key_field is not None:
            with _faults_at(f"{path}.key", found):
                key_reader(source)
    if not found:
        with _faults_at("views", found):
            _build_parts(plan)
        with _faults_at("name", found):
            _build_claim(plan)
        found += _colliding_topics(plan)
    if found:
        raise ConfigError(list(dict.fromkeys(found)))


def construct_file(plan: Plan) -> None:
    """Build everything that a worker builds at a first start from the plan of a file.

    Args:
        plan: the plan of the file.

    Raises:
        ConfigError: as `construct`; or the settings cannot be written to the control topic and read back.
    """
    read = decode_posted(SETTINGS, encode_posted(first_record(plan, ANY_TIME_MS)))
    if read is None:
        raise ConfigError("the settings cannot be read back from the control topic")
    construct(plan_holding([read], plan))


def _field_path(view: ViewPlan) -> str:
    return f"{join('views', view.view)}.{'items' if view.has_lists else 'item'}"


@contextmanager
def _faults_at(path: str, found: list[Fault]) -> Iterator[None]:
    """Collect the faults of a part. A worker crashes on any error in its construction, so every error is a fault."""
    try:
        yield
    except ConfigError as error:
        found += [fault if fault.path else Fault(path, fault.message) for fault in error.faults]
    except StreamDPError as error:
        found.append(Fault(path, str(error)))
    except UNFORESEEN as error:
        found.append(Fault(path, f"a worker cannot use it: {error}"))


def _build_parts(plan: Plan) -> None:
    """Build and load the parts of every kind of partition, on empty tables."""
    topics = Topics.of(plan)
    lives = {spec.name: MADE_UP_TOPIC for spec in topics.all(plan)}
    factory = Factory(
        Settled(plan, topics=lives),
        keys=KeyRing.of(MADE_UP_KEY),
        entropy=system_entropy,
        cache=rocksdict.Cache(0),
        spill_stores=_no_spill_store,  # a running worker may use the one in the data folder
    )
    inputs = [*dict.fromkeys([*sources_of(plan), *counted_in(plan)]), topics.partials]
    for topic in inputs:
        for _ in factory.part(topic, 0).load(NoRows()):
            pass
    for partition in sorted({topics.ledger_partition(view.ledger) for view in plan.views.values()}):
        for _ in factory.engine(partition).load(NoRows(), now_ms=ANY_TIME_MS):
            pass


def _no_spill_store() -> NoReturn:
    raise StateError("nothing is counted, so no window needs the disk")


def _build_claim(plan: Plan) -> None:
    topics = {spec.name: MADE_UP_TOPIC for spec in Topics.of(plan).all(plan)}
    sources = {source.name: (topic, MADE_UP_TOPIC.id) for topic, source in sources_of(plan).items()}
    key_id = KeyRing.of(MADE_UP_KEY).application
    encode_claim(Claim(plan.id, key_id, topics, 0, sources, form=STATE_FORM))


def _colliding_topics(plan: Plan) -> Iterator[Fault]:
    """Yield a fault for topics whose names differ only in dots and underscores: Kafka refuses to create both."""
    named: dict[str, str] = {}
    for path, topic in _topics(plan):
        other = named.setdefault(topic.replace(".", "_"), topic)
        if other != topic:
            yield Fault(
                path, f"Kafka refuses to create topic {topic!r} next to {other!r}: only dots and underscores differ"
            )


def _topics(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield every topic with the path that names it; topics that others create come first."""
    for topic, source in sources_of(plan).items():
        yield f"{join('sources', source.name)}.topic", topic
    for view in plan.views.values():
        for topic in () if view.kind.made_of is not None else view.kind.topics:
            yield f"{join('views', view.view)}.catalogue", topic
    for source in sources_of(plan).values():
        yield f"{join('sources', source.name)}.dead_letter_topic", source.dead_letter_topic
    for spec in Topics.of(plan).all(plan):
        yield "name", spec.name
