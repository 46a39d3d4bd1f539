"""Why records and events are not counted, and what to do about it, in the words of the configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.windows.durations import format_duration
from stream_dp.windows.events import MAX_ITEM_BYTES, MAX_KEY_BYTES, MOST_ITEMS
from stream_dp.windows.rekeying import MOST_BYTES

NO_FAULTS = frozenset({"duplicate", "clipped"})
"""Reasons that are none of the data: the bounds of a view at work."""
OF_RECORDS = frozenset({"wrong_partition"})
"""Reasons that views give, and that are the same for every view of a source."""
_NEARLY_ALL, _SOME = 95, 10

Remedy = Callable[[SourcePlan, Sequence[ViewPlan]], str]


def share_words(part: int, whole: int) -> str:
    """A share, so coarse that a few events more or less seldom show."""
    percent = 100 * part // whole if whole else 0
    if percent >= _NEARLY_ALL:
        return "nearly all"
    if percent >= _SOME:
        return f"about {(percent + 5) // 10 * 10} %"
    return "some" if part else "none"


def remedy(reason: str, source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    """What a reason means, and what to do about it.

    Args:
        reason: as counters and dead letters have it.
        source: where the records are.
        views: those that do not count them.
    """
    return _REMEDIES[reason](source, views)


def _fields(source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    users = {"key": source.key_field, "user": source.user_field}
    named = [f"{field!r} (sources.{source.name}.{key})" for key, field in users.items() if field is not None]
    named += [f"{source.time_field!r} (sources.{source.name}.time.field)"] if source.time_field is not None else []
    return ", ".join([*named, *(f"{view.item_field!r} ({view.item_path})" for view in views)])


def _types(source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    items = [view.item_field for view in views if not view.has_lists]
    texts = dict.fromkeys(field for field in [source.key_field, source.user_field, *items] if field is not None)
    lists = dict.fromkeys(view.item_field for view in views if view.has_lists)
    said = ", ".join(
        [f"{', '.join(map(repr, texts))} are texts or whole numbers"] * bool(texts)
        + [f"{', '.join(map(repr, lists))} are lists of them"] * bool(lists)
    )
    if source.time_field is not None and source.time_field not in texts:
        form = "RFC 3339 text" if source.time_unit == "iso" else f"a whole number of {source.time_unit}"
        said += f", {source.time_field!r} is {form} (sources.{source.name}.time.unit)"
    return said


def _settings(key: str, views: Sequence[ViewPlan]) -> str:
    return ", ".join(f"views.{view.name}.{key}" for view in views)


def _late(_source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    graces = ", ".join(dict.fromkeys(format_duration(view.window.grace_ms) for view in views))
    marks = any(view.window.clock == "event" for view in views)
    return (
        f"they come when their window is closed; raise {_settings('window.grace', views)} ({graces})"
        f"{', or let the watermarks be written later' if marks else ''}"
    )


def _future(source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    aheads = ", ".join(dict.fromkeys(format_duration(view.window.max_ahead_ms) for view in views))
    return (
        f"their time is further ahead of the clock than {_settings('window.max_ahead', views)} ({aheads}); set the "
        f"clocks of the producers{f', or correct sources.{source.name}.time.unit' if source.time_field else ''}"
    )


def _wrong_partition(source: SourcePlan, _views: Sequence[ViewPlan]) -> str:
    other = "crc32" if source.partitioner == "murmur2" else "murmur2"
    whose = {"crc32": "librdkafka's default", "murmur2": "that of Java's client"}[other]
    return (
        f"they stand in another partition than sources.{source.name}.partitioner, {source.partitioner}, says; where "
        f"producers use {whose}, write partitioner: {other}"
    )


def _before_start(source: SourcePlan, _views: Sequence[ViewPlan]) -> str:
    unit = (
        f". Only where new events are refused so, correct sources.{source.name}.time.unit" if source.time_field else ""
    )
    return (
        "their time is before the first window, which began with window.start or the first start, so a backlog is not "
        f"counted; to release one, write a window.start and begin with --backfill{unit}"
    )


_REMEDIES: Mapping[str, Remedy] = {
    "null_key": lambda *_: "they have no key, and the key of a record is its user; let the producers write it",
    "null_value": lambda *_: "they have neither a value nor a watermark; let the producers write events only",
    "bad_key": lambda source, _: (
        f"their {'key' if source.key_field is None else f'field {source.key_field!r}'} is empty or longer than "
        f"{MAX_KEY_BYTES:,} bytes; let the producers write the user"
    ),
    "batch_too_large": lambda *_: (
        "their compressed batch unpacks to more than 32 MiB, and was not unpacked; let the producers send smaller ones"
    ),
    "record_too_large": lambda source, _: (
        f"their value takes more than {MOST_BYTES:,} bytes, the most where sources.{source.name}.key is given; let the "
        "producers write less into an event, or key by user"
    ),
    "key_mismatch": lambda source, _: (
        f"their key is not what field {source.user_field!r} says; let the producers key by it, or correct "
        f"sources.{source.name}.user"
    ),
    "malformed_json": lambda *_: "their value is no JSON; let the producers write one JSON object a record",
    "malformed_avro": lambda *_: (
        "their value is no Avro of a schema registry; let the producers use its serializer, which writes a zero byte "
        "and the number of the schema in front"
    ),
    "unknown_schema": lambda *_: (
        "the schema registry says that it does not have their schema; is it the one that the producers use (registry)?"
    ),
    "unusable_schema": lambda *_: (
        "their schema is not one of events; it has to be a record in Avro that does not refer to itself (the log says "
        "what is wrong with it)"
    ),
    "missing_field": lambda source, views: f"they lack a field; every event needs {_fields(source, views)}",
    "wrong_type": lambda source, views: f"a field is not of its type; {_types(source, views)}",
    "item_too_long": lambda *_: f"an item of theirs is longer than {MAX_ITEM_BYTES:,} bytes; count a shorter field",
    "too_many_items": lambda *_: (
        f"their list has more than {MOST_ITEMS:,} items; let the producers write several events"
    ),
    "bad_watermark": lambda *_: "the header of a watermark holds no number; it is a time in ms, as text",
    "wrong_partition": _wrong_partition,
    "before_start": _before_start,
    "late": _late,
    "future": _future,
    "changed": lambda *_: (
        "they came before settings were posted that count what they are about otherwise; let settings begin further "
        "ahead than events are"
    ),
    "clipped": lambda _, views: (
        f"their users have as many items in the window as {_settings('items_per_user', views)} allows; a higher value "
        "leaves out less, and adds noise to every count"
    ),
}
