"""Findings about the records of a source, and remedies: the words for logs, `check --sample` and errors.

No user, item or value is told. Names of fields are told on the terminal of an operator only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pydantic import BaseModel, Field

from stream_dp.config.loading import unknown
from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.runtime.factory import event_format, partitioner
from stream_dp.runtime.kafka.record_batches import MAX_RECORD_BYTES
from stream_dp.runtime.sources.diagnosis import (
    COMPOSITE_KEYS,
    ITEM_TYPES,
    Fields,
    fits,
    fitting,
    form_of_key,
    form_of_no_avro,
    most_common_form,
)
from stream_dp.runtime.sources.sampling import Trial
from stream_dp.windows.avro import whole
from stream_dp.windows.count_rows import REPEATS
from stream_dp.windows.durations import format_duration
from stream_dp.windows.events import MAX_ITEM_BYTES, MAX_KEY_BYTES, MOST_BYTES, MOST_ITEMS, Record
from stream_dp.windows.plausible_times import BAD_WATERMARK

NO_FAULTS = frozenset(REPEATS)
"""Reasons that are none of the data: the bounds of a view at work."""
OF_RECORDS = frozenset({"wrong_partition"})
"""Reasons that views give, and that are the same for every view of a source."""
_NEARLY_ALL, _SOME = 95, 10


def share_words(part: int, whole: int) -> str:
    """A share, so coarse that a few events more or less seldom show."""
    percent = 100 * part // whole if whole else 0
    if percent >= _NEARLY_ALL:
        return "nearly all"
    if percent >= _SOME:
        return f"about {(percent + 5) // 10 * 10} %"
    return "some" if part else "none"


_REMEDIES = {
    "null_key": "they have no key, but the key must be the user; let the producers write it, or {by_field}",
    "null_value": "they have neither a value nor a watermark; let the producers write events only",
    "bad_key": f"their {{key}} is empty or longer than {MAX_KEY_BYTES:,} bytes; let the producers write the user"
    "{or_by_field}",
    "record_too_large": f"they take more than {MAX_RECORD_BYTES >> 20} MiB or, where {{source}}.key is set, their "
    f"value takes more than {MOST_BYTES:,} bytes; let the producers write smaller events, or key by user",
    "bad_header": "the name of one of their headers is not UTF-8; let the producers write header names in UTF-8",
    "damaged_record": "their bytes do not follow Kafka's record format; check the client that the producers use",
    "damaged_batch": "their bytes were damaged on the broker's disk or on the network; check its disks "
    "(kafka-dump-log.sh). Each represents a batch, at the offset of its last record",
    "unsupported_format": "they are in a format older than Kafka 0.11 or use an unknown compression; let the producers "
    "use a current client with gzip, snappy, lz4 or zstd, or none",
    "key_mismatch": "their key differs from field {user!r}; let the producers key by that field, correct "
    "{source}.user, or {by_field}",
    "malformed_json": "their value is not JSON; let the producers write one JSON object per record",
    "malformed_avro": "their value is not Avro of a schema registry; let the producers use its serializer, which puts "
    "a zero byte and the id of the schema in front",
    "unknown_schema": "the schema registry does not have their schema; check that the producers use the same one "
    "(registry)",
    "unusable_schema": "their schema cannot be used; it must be an Avro record that does not refer to itself (the log "
    "has the details)",
    "missing_field": "a field is missing; every event needs {fields}",
    "wrong_type": "a field has the wrong type; {types}",
    "item_too_long": f"an item is longer than {MAX_ITEM_BYTES:,} bytes; count a shorter field",
    "too_many_items": f"their list has more than {MOST_ITEMS:,} items; let the producers write several events",
    "no_timestamp": "the producer wrote them without a timestamp (-1), and {source} has no time field; let the "
    "producers write timestamps, or set {source}.time",
    "bad_watermark": "the watermark header must be a time in ms since 1970, as text: a whole number, from 1990 to "
    "{aheads} ahead of the clock; let the producers write such times. These watermarks are not used",
    "wrong_partition": "they are not in the partition that {source}.partitioner ({partitioner}) gives their user; if "
    "the producers use {other_hash}",
    "before_start": "their time is before the first window, which began with window.start or the first start, so a "
    "backlog is not counted; to release it, set window.start and begin with --backfill{or_unit_of_new}",
    "late": "they arrived after their window closed; raise {graces}{or_watermarks}",
    "future": "their time is ahead of the clock by more than {aheads}; set the clocks of the producers{or_unit}",
    "changed": "they arrived before settings were posted that count their windows differently; let new settings begin "
    "further ahead than events are",
    "participation": "their users have been in as many windows of the period as {windows} allows; a higher value drops "
    "less and costs more",
    "clipped": "their users have as many items in the window as {bounds} allows; a higher value drops less and adds "
    "noise to every count",
}
_OTHER_HASH = {
    "murmur2": "librdkafka's default, set partitioner: crc32",
    "crc32": "that of Java's client, set partitioner: murmur2",
    "unchecked": "that of Java's client, set partitioner: murmur2",
}


def remedy(reason: str, source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    """Explain a reason, and what to do about it.

    Args:
        reason: as counters and dead letters have it.
        source: where the records are.
        views: those that do not count them.
    """
    place, is_timed = f"sources.{source.name}", source.time_field is not None
    event_clock = any(view.window.clock == "event" for view in views)
    unit = f"correct {place}.time.unit"
    return _REMEDIES[reason].format(
        source=place,
        key="key" if source.key_field is None else f"field {source.key_field!r}",
        user=source.user_field,
        by_field=_by_field(source),
        or_by_field=f", or {_by_field(source)}" if source.key_field is None else "",
        fields=_needed_fields(source, views),
        types=_types(source, views),
        partitioner=source.partitioner,
        other_hash=_OTHER_HASH[source.partitioner],
        graces=_settings("window.grace", views, [view.window.grace_ms for view in views]),
        aheads=_settings("window.max_ahead", views, [view.window.max_ahead_ms for view in views]),
        bounds=_settings("items_per_user", views, []),
        windows=_settings("windows_per_user", [view for view in views if view.windows_per_user is not None], []),
        or_watermarks=", or write the watermarks later" if event_clock else "",
        or_unit=f", or {unit}" if is_timed else "",
        or_unit_of_new=f". If only new events are refused like this, {unit}" if is_timed else "",
    )


def _by_field(source: SourcePlan) -> str:
    """Return the remedy that reads the user from a field of the value instead of the record key."""
    place = f"sources.{source.name}"
    if source.user_field is None:
        return f"set {place}.key: FIELD, the field with the user"
    return f"set {place}.key: {source.user_field} and leave {place}.user out"


def _needed_fields(source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    fields = [*source.fields.items(), *((view.item_path, view.item_field) for view in views)]
    return ", ".join(f"{field!r} ({path})" for path, field in fields)


def _types(source: SourcePlan, views: Sequence[ViewPlan]) -> str:
    items = [view.item_field for view in views if not view.has_lists]
    texts = dict.fromkeys(field for field in [source.key_field, source.user_field, *items] if field is not None)
    lists = dict.fromkeys(view.item_field for view in views if view.has_lists)
    said = [f"{', '.join(map(repr, texts))} are texts or whole numbers"] if texts else []
    said += [f"{', '.join(map(repr, lists))} are lists of them"] if lists else []
    if source.time_field is not None and source.time_field not in texts:
        form = "RFC 3339 text" if source.time_unit == "iso" else f"a whole number of {source.time_unit}"
        said.append(f"{source.time_field!r} is {form} (sources.{source.name}.time.unit)")
    return ", ".join(said)


def _settings(key: str, views: Sequence[ViewPlan], values_ms: Sequence[int]) -> str:
    """A setting of some views, with its values."""
    names = ", ".join(f"views.{view.name}.{key}" for view in views)
    values = ", ".join(dict.fromkeys(map(format_duration, values_ms)))
    return f"{names} ({values})" if values else names


CLIPPED_PERCENT = 20
"""Of what users would add to windows; with more clipped, `items_per_user` is worth a thought."""
_HASHES = ("murmur2", "crc32")
_NEAR_MS = 10_000
_AHEAD_MS = 60_000
_LENGTHS = (("year", 366 * 86_400_000), ("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


class Finding(BaseModel):
    """Something to mend, or to know."""

    path: str = Field(description="Where in the file it is about.")
    reason: str = Field("", description="As counters have it; empty where no record is refused for it.")
    records: int = Field(0, description="Of how many records of the sample it is true.")
    message: str = Field(description="What it is, and what to do.")


def findings(
    source: SourcePlan, views: Sequence[ViewPlan], trial: Trial, now_ms: int, *, with_names: bool
) -> Iterator[Finding]:
    """Findings, those of most records first.

    Args:
        source: the source.
        views: those that are looked at.
        trial: its sample, counted.
        now_ms: the clock of this machine.
        with_names: tell the names of fields that most users have: for the terminal of an operator, not for a log.
    """
    place = f"sources.{source.name}"
    of_all: list[Finding] = []
    for reason, places in trial.refused.items():
        if reason == BAD_WATERMARK:
            cause = _watermark_unit(trial)
        else:
            cause = _cause(reason, source, views, trial, with_names=with_names)
        message = cause or remedy(reason, source, views)
        of_all.append(Finding(path=place, reason=reason, records=len(places), message=message))
    if number := len(trial.misplaced):
        path, message = f"{place}.partitioner", _placing(source, trial)
        of_all.append(Finding(path=path, reason="wrong_partition", records=number, message=message))
    if number := len(trial.mistimed):
        path, message = f"{place}.time.unit", _mistimed(source, trial.unit)
        of_all.append(Finding(path=path, reason="wrong_unit", records=number, message=message))
    of_views = [
        Finding(path=f"views.{view.name}", reason=reason, records=len(others), message=remedy(reason, source, [view]))
        for view in views
        for reason, found in trial.views[view.name].refused.items()
        if reason not in NO_FAULTS | OF_RECORDS and (others := set(found).difference(trial.mistimed))
    ]
    yield from sorted([*of_all, *of_views], key=lambda one: -one.records)
    yield from _unreadable_keys(source, trial)
    yield from _clipped(source, views, trial)
    yield from _unmarked(views, trial)
    yield from _historic(source, views, trial)
    if with_names:
        yield from _untimed(source, views, trial)
        yield from _outlying(source, trial)
    if (newest := trial.newest_ms) is not None and newest > now_ms + _AHEAD_MS:
        message = f"the time of the newest record is {_length(newest - now_ms)} ahead of this machine; set the clocks"
        yield Finding(path=f"sources.{source.name}", message=message)


def _cause(reason: str, source: SourcePlan, views: Sequence[ViewPlan], trial: Trial, *, with_names: bool) -> str:
    """Return the form of the records that are refused for a reason, if one is recognised."""
    places = set(trial.refused[reason])
    records = [record for record in trial.sample if (record.partition, record.offset) in places]
    fields = _fields(records, source, trial)
    lists = event_format(source, views).lists
    paths = {view.item_field: view.item_path for view in views}
    paths |= {field: path for path, field in reversed(source.fields.items())}
    match reason:
        case "malformed_json":
            return f"their value is not JSON; {most_common_form(record.value for record in records)}"
        case "malformed_avro":
            form = most_common_form((record.value for record in records), form_of_no_avro)
            return f"their value is not Avro of a schema registry; {form}"
        case "missing_field":
            return _missing(fields, paths, with_names=with_names)
        case "wrong_type":
            written_ms = max(map(trial.written_ms, records), default=0)
            return _mistyped(fields, paths, lists, source, written_ms)
        case "key_mismatch":
            return _mismatched(fields, [record.key for record in records], source, with_names=with_names)
    return ""


def _mismatched(fields: Fields, keys: Iterable[bytes], source: SourcePlan, *, with_names: bool) -> str:
    """Return what the keys look like if they are not the user that the values name."""
    if form := most_common_form(keys, form_of_key):
        return f"their key is {form}, not the text of field {source.user_field!r}; {_by_field(source)}"
    if with_names and (same := fields.like_keys()):
        return f"their key is field {same[0]!r}; set sources.{source.name}.user: {same[0]}"
    return ""


def _fields(records: Iterable[Record], source: SourcePlan, trial: Trial) -> Fields:
    if source.format == "json":
        return Fields(records, written_ms=trial.written_ms)
    return Fields(records, partial(whole, trial.schemas), trial.written_ms)


def _missing(fields: Fields, paths: Mapping[str, str], *, with_names: bool) -> str:
    missing = fields.missing(paths)
    if not missing:
        return ""
    said = " and ".join(f"field {name!r} ({paths[name]}) is missing" for name in missing)
    if not with_names:
        return said
    if inside := {paths[name]: path for name in missing if (path := fields.around(name))}:
        return f"{said}; set {' and '.join(f'{where}: {path}' for where, path in inside.items())}"
    beside = {name: fields.beside(name) for name in missing}
    names = list(dict.fromkeys(name for found in beside.values() for name in found))
    if not names:
        return said
    near = [guess for name in missing if (guess := unknown(name, beside[name])).startswith("did you mean")]
    return f"{said}; the events have {', '.join(map(repr, names))}{'; ' + near[0] if near else ''}"


def _mistyped(
    fields: Fields, paths: Mapping[str, str], lists: Collection[str], source: SourcePlan, written_ms: int
) -> str:
    """Return the part of the format that has the wrong type: the values themselves, the time, or a text."""
    if what := fields.no_objects():
        return f"their value is {what}; let the producers write one JSON object per record"
    time = source.time_field
    for name, path in paths.items():
        found, wanted = fields.types(name), list(ITEM_TYPES)
        if name == time:
            wanted.remove("a whole number" if source.time_unit == "iso" else "a text")
        if name in lists and found == "a list":
            if inside := fields.types_inside(name):
                return f"field {name!r} ({path}) contains {inside}, but an item must be {' or '.join(ITEM_TYPES)}"
            continue
        wanted = ["a list"] if name in lists else wanted
        if not found or found in wanted:
            continue
        if path.startswith("views.") and (found == "a list" or (name in lists and found in ITEM_TYPES)):
            key = "items" if found == "a list" else "item"
            return f"field {name!r} ({path}) is {found}; set {path.rpartition('.')[0]}.{key}: {name}"
        said = f"field {name!r} ({path}) is {found}, not {' or '.join(wanted)}"
        unit = fields.unit(name, written_ms) if name == time else ""
        return f"{said}; set sources.{source.name}.time.unit: {unit}" if unit else said
    return ""


def _watermark_unit(trial: Trial) -> str:
    """Return the unit that most refused watermarks seem to have, and the remedy; empty if there is none."""
    usual = trial.bad_watermarks.most_common(1)
    if not usual:  # none is a number
        return ""
    unit, watermarks = usual[0]
    if not unit or 2 * watermarks <= len(trial.refused[BAD_WATERMARK]):
        return ""
    return (
        f"the watermark headers look like {unit}, but must be milliseconds since 1970; let the producers write these. "
        "These watermarks are not used, so they close no window"
    )


def _outlying(source: SourcePlan, trial: Trial) -> Iterator[Finding]:
    """Yield findings about outlying times; if most times are implausible, the unit is in doubt: another finding."""
    if trial.unit or trial.spread.bulk is None:
        return
    for one in trial.spread.outlying():
        span = one.span
        named = ", ".join(f"partition {partition} offset {offset:,}" for (partition, offset), _ in span.places)
        more = ", ..." if span.events > len(span.places) else ""
        times = "the time of 1 event is" if span.events == 1 else f"the times of {span.events:,} events are"
        yield Finding(
            path=f"sources.{source.name}.time",
            records=span.events,
            message=f"{times} {one.why}: {named}{more}. No event moves a clock, so they change no other event; correct "
            "them at the producers",
        )


def _mistimed(source: SourcePlan, unit: str) -> str:
    own = source.time_unit
    mend = f"set sources.{source.name}.time.unit: {unit}"
    if unit not in ("ms", "s"):
        mend = f"let the producers write {own}; {unit} cannot be read"
    said = f"read as {own}, their times are many years away from those of their records"
    return f"{said}; read as {unit}, they agree; {mend}"


def placed(source: SourcePlan, trial: Trial) -> dict[str, int]:
    """By partitioner, how many users stand where it puts them."""
    hashes = {name: partitioner(replace(source, partitioner=name)) for name in _HASHES}  # type: ignore[arg-type]
    return fitting(trial.places, {name: place for name, place in hashes.items() if place is not None})


def other_partitioner(source: SourcePlan, trial: Trial) -> str:
    """The partitioner that the producers use in place of the configured one; nothing where that cannot be told."""
    by_hash, users = placed(source, trial), len(trial.places)
    if source.key_field is not None or not trial.misplaced or fits(by_hash[source.partitioner], users):
        return ""
    return next((name for name in _HASHES if fits(by_hash[name], users)), "")


def _placing(source: SourcePlan, trial: Trial) -> str:
    users = len(trial.places)
    said = f"their users are not in the partitions that partitioner {source.partitioner} gives them"
    if other := other_partitioner(source, trial):
        return f"{said}, but in those of {other}; set partitioner: {other}"
    if fits(placed(source, trial)[source.partitioner], users):
        return f"{said}, though it fits nearly all users; some producers choose partitions in another way"
    strays = sum(len(found) > 1 for found in trial.places.values())
    if users and 2 * strays > users:
        return f"{said}, and most users are in several: let the producers choose the partition by the key only"
    return f"{said}, and neither {' nor '.join(_HASHES)} fits; let the producers use one of them"


def _unreadable_keys(source: SourcePlan, trial: Trial) -> Iterator[Finding]:
    """Yield findings about keys that may contain more than the user and are not compared with a field."""
    if source.key_field is not None or source.user_field is not None:
        return
    keys = {record.key for record in trial.sample if record.key}
    forms = Counter(map(form_of_key, keys))
    for form in COMPOSITE_KEYS:
        if 2 * forms[form] > len(keys):
            message = f"the keys are {form}. Every distinct key counts as one user; if a key holds more, "
            yield Finding(path=f"sources.{source.name}.key", message=message + _by_field(source))


def _clipped(source: SourcePlan, views: Sequence[ViewPlan], trial: Trial) -> Iterator[Finding]:
    for view in views:
        taken = trial.views[view.name]
        clipped = len(taken.refused.get("clipped", ()))
        if 100 * clipped > CLIPPED_PERCENT * (taken.counted + clipped):
            path, message = f"views.{view.name}.items_per_user", remedy("clipped", source, [view])
            yield Finding(path=path, reason="clipped", records=clipped, message=message)


def _unmarked(views: Sequence[ViewPlan], trial: Trial) -> Iterator[Finding]:
    """Partitions whose records have no watermark, where a view waits for them."""
    bare = [at for at, records in trial.sample.records.items() if records and not trial.watermarks[at]]
    for view in views:
        if view.window.clock == "event" and bare:
            where = "no partition has" if len(bare) == len(trial.sample.records) else "some partitions do not have"
            yield Finding(
                path=f"views.{view.name}.window.clock",
                message=f"{where} a watermark among the newest records; after "
                f"{format_duration(view.window.idle_ms)} (window.idle) without one, the time of a partition advances "
                "only as fast as the wall clock: write watermarks to every partition, or set clock: wall",
            )


def _historic(source: SourcePlan, views: Sequence[ViewPlan], trial: Trial) -> Iterator[Finding]:
    """Views with `clock: wall` of which most events are older than a window."""
    if source.time_field is None or trial.unit or not trial.lags_ms:
        return
    lag = trial.lags_ms[len(trial.lags_ms) // 2]
    for view in views:
        window = view.window
        if window.clock != "wall" or lag - window.grace_ms <= window.shape.longest.length_ms:
            continue
        if window.first_ms is None:
            said = "windows begin with the first start, so they are not counted; to release history, set window.start"
        else:
            said = "with --backfill, those that are in the topic before the first start are counted, and no others"
        yield Finding(
            path=f"views.{view.name}.window.clock",
            message=f"most events are older than a window when they are written. With clock: wall, windows close by "
            f"the time of day: {said}. If such events keep coming, set clock: event",
        )


def _untimed(source: SourcePlan, views: Sequence[ViewPlan], trial: Trial) -> Iterator[Finding]:
    """A field with times of other windows, where the times of records count."""
    if source.time_field is not None or not views:
        return
    shortest = min(view.window.shape.shortest_ms for view in views)
    for name, unit, lag_ms in _fields(trial.sample, source, trial).times():
        if abs(lag_ms) > shortest:
            side = "before" if lag_ms > 0 else "after"
            yield Finding(
                path=f"sources.{source.name}.time",
                message=f"no time field is set, so the time of the record is used; field {name!r} looks like a "
                f"time, mostly {_length(abs(lag_ms))} {side} it. If events happened then, set time: "
                f"{{field: {name}, unit: {unit}}}",
            )


# -- clocks -----------------------------------------------------------------------------------------------------


def clocks(source: SourcePlan, trial: Trial, now_ms: int) -> Iterator[str]:
    """Compare the times of events, records and this machine, coarsely."""
    if not trial.sample:
        return
    if source.time_field is not None and trial.lags_ms:
        lag = trial.lags_ms[len(trial.lags_ms) // 2]
        side = "behind" if lag > 0 else "ahead of"
        apart = "mostly agree with" if abs(lag) < _NEAR_MS else f"are mostly {_length(abs(lag))} {side}"
        yield f"event times {apart} record times"
    if trial.newest_ms is None:
        yield "the records have no timestamp"
        return
    age = now_ms - trial.newest_ms
    if age <= -_AHEAD_MS:
        yield f"the time of the newest record is {_length(-age)} ahead of this machine"
    else:
        yield f"the newest record was written {f'{_length(age)} ago' if age >= _NEAR_MS else 'just now'}"


def _length(time_ms: int) -> str:
    for name, unit in _LENGTHS:
        if number := (time_ms + unit // 2) // unit:
            return f"about {number} {name}{'s' if number > 1 else ''}"
    return "less than a second"
