"""What the samples of an application's sources say, in numbers and words, and whether views may begin on them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from stream_dp.config.loading import unknown
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.config.remedies import NO_FAULTS, OF_RECORDS, remedy, share_words
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.client import Client
from stream_dp.runtime.factory import event_format, partitioner
from stream_dp.runtime.origins import begun
from stream_dp.runtime.sampling import SAMPLE_RECORDS, SAMPLE_SECONDS, Trial, count_sample, read_sample
from stream_dp.runtime.topics import sources_of
from stream_dp.windows.diagnosis import Fields, fits, fitting, most_common_form
from stream_dp.windows.durations import format_duration

log = logging.getLogger("stream_dp.worker")

START_SECONDS = 3.0
"""How long a first start may take over the samples."""
LEAST_EVENTS = 20
"""No view is kept from beginning by fewer."""
CLIPPED_PERCENT = 20
"""Of what users would add to windows; with more clipped, `items_per_user` is worth a thought."""
_HASHES = ("murmur2", "crc32")
_NEAR_MS = 10_000
_AHEAD_MS = 60_000
_LENGTHS = (("year", 366 * 86_400_000), ("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))


class Finding(BaseModel):
    """Something to mend, or to know."""

    path: str = Field(description="Where in the file it is about.")
    reason: str = Field(description="As counters have it; empty where no record is refused for it.")
    records: int = Field(description="Of how many records of the sample it is true.")
    message: str = Field(description="What it is, and what to do.")


class ViewSurvey(BaseModel):
    """What a view makes of a sample."""

    view: str
    begun: bool = Field(description="Whether it was started before.")
    counted: int = Field(description="Events that it counts.")
    refused: dict[str, int] = Field(description="Events that it does not count, by reason.")


class SourceSurvey(BaseModel):
    """What the sample of a source says; counts and settings, no user and no item."""

    source: str
    topic: str
    records: int = Field(description="Read, the newest of every partition.")
    cut_short: bool = Field(description="Whether the time or the bytes for it were used up.")
    watermarks: int = Field(description="Of the records.")
    refused: dict[str, int] = Field(description="Records that are no event for any view, by reason.")
    users: int = Field(description="Distinct ones.")
    users_placed_by: dict[str, int] = Field(description="By partitioner, how many stand where it puts them.")
    views: list[ViewSurvey]
    clocks: list[str] = Field(description="How the times of events, records and this machine agree.")
    findings: list[Finding]


async def survey(
    plan: Plan, client: Client, now_ms: int, records: int = SAMPLE_RECORDS, within_s: float = SAMPLE_SECONDS
) -> list[SourceSurvey]:
    """Sample every source of a plan.

    Args:
        plan: the application; its sources are there, with their partitions.
        client: of its broker.
        now_ms: the clock of this machine.
        records: of each source.
        within_s: for all of them.

    Raises:
        BrokerError: the cluster does not answer, or refuses.
    """
    known = await begun(plan, client)
    found = []
    for source in sources_of(plan).values():
        views = _on(source, plan)
        sample = await read_sample(client, source, records, within_s / len(sources_of(plan)))
        trial = count_sample(source, views, sample, known, now_ms)
        found.append(_told(source, views, trial, known, now_ms))
    return found


async def check_first_starts(plan: Plan, client: Client, now_ms: int) -> None:
    """Make sure that views which were never started can count most of what their sources hold.

    Nothing is written. A source without a topic, or with other partitions, is left to whoever prepares the start.

    Args:
        plan: the application.
        client: of its broker.
        now_ms: the clock of this machine.

    Raises:
        ConfigError: a view would refuse most of the sample for faults of the records. Late ones, and those from before
            its first window, are no fault.
        BrokerError: the cluster does not answer, or refuses.
    """
    known = await begun(plan, client)
    sources = sources_of(plan)
    present = await client.describe(list(sources))
    fresh = {
        source.name: source
        for topic, source in sources.items()
        if topic in present and present[topic].partitions == source.partitions
        and any(view.name not in known for view in _on(source, plan))
    }
    faults = []
    for source in fresh.values():
        views = [view for view in _on(source, plan) if view.name not in known]
        sample = await read_sample(client, source, within_s=START_SECONDS / len(fresh))
        if not len(sample):
            log.info("sources.%s: topic %s has no record yet that could be looked at", source.name, source.topic)
            continue
        trial = count_sample(source, views, sample, known, now_ms)
        findings = list(_findings(source, views, trial, now_ms, with_names=False))
        worst = max(trial.faulty(view.name) for view in views)
        if 2 * worst > trial.events >= LEAST_EVENTS:
            faults.append(_refusal(source, trial, worst, findings))
            continue
        for finding in findings:
            share = share_words(finding.records, trial.events)
            log.warning("%s: of the newest records %s: %s", finding.path, share, finding.message)
    if faults:
        raise ConfigError(faults)


def _refusal(source: SourcePlan, trial: Trial, worst: int, findings: Sequence[Finding]) -> Fault:
    reasons = [
        f"{share_words(one.records, trial.events)} ({one.reason}): {one.message}"
        for one in findings
        if one.reason and 2 * one.records > worst
    ]
    return Fault(
        f"sources.{source.name}",
        f"of the newest records of topic {source.topic} {share_words(worst, trial.events)} would be refused: "
        f"{'; '.join(reasons)}. Nothing was made or charged. `stream-dp check FILE --sample` says more; with "
        "--unchecked-data the worker begins all the same",
    )


def _on(source: SourcePlan, plan: Plan) -> list[ViewPlan]:
    return [view for view in plan.views.values() if view.source.name == source.name]


def _told(
    source: SourcePlan, views: Sequence[ViewPlan], trial: Trial, known: Mapping[str, int], now_ms: int
) -> SourceSurvey:
    return SourceSurvey(
        source=source.name,
        topic=source.topic,
        records=len(trial.sample),
        cut_short=trial.sample.is_cut_short,
        watermarks=trial.watermarks.total(),
        refused={reason: len(places) for reason, places in sorted(trial.refused.items())},
        users=len(trial.places),
        users_placed_by=_placed(source, trial),
        views=[
            ViewSurvey(
                view=view.name,
                begun=view.name in known,
                counted=trial.views[view.name].counted,
                refused={reason: len(at) for reason, at in sorted(trial.views[view.name].refused.items())},
            )
            for view in views
        ],
        clocks=list(_clocks(source, trial, now_ms)),
        findings=list(_findings(source, views, trial, now_ms, with_names=True)),
    )


# -- findings ---------------------------------------------------------------------------------------------------


def _findings(
    source: SourcePlan, views: Sequence[ViewPlan], trial: Trial, now_ms: int, *, with_names: bool
) -> Iterator[Finding]:
    """What to mend, those first of which most records are; with the names of fields, for the terminal of an operator."""
    of_all = [
        Finding(
            path=f"sources.{source.name}",
            reason=reason,
            records=len(places),
            message=_cause(reason, source, views, trial, with_names=with_names) or remedy(reason, source, views),
        )
        for reason, places in trial.refused.items()
    ]
    if trial.misplaced:
        message = _placing(source, trial) or remedy("wrong_partition", source, views)
        path = f"sources.{source.name}.partitioner"
        of_all.append(Finding(path=path, reason="wrong_partition", records=len(trial.misplaced), message=message))
    if trial.mistimed:
        of_all.append(_mistimed(source, trial))
    of_views = [
        Finding(path=f"views.{view.name}", reason=reason, records=len(places), message=remedy(reason, source, [view]))
        for view in views
        for reason, places in trial.views[view.name].refused.items()
        if reason not in NO_FAULTS | OF_RECORDS and len(places) > len(trial.mistimed)
    ]
    yield from sorted([*of_all, *of_views], key=lambda one: -one.records)
    yield from _clipped(source, views, trial)
    yield from _unmarked(views, trial)
    if trial.sample and (newest := max(record.timestamp for record in trial.sample)) > now_ms + _AHEAD_MS:
        message = f"the newest record bears a time {_length(newest - now_ms)} ahead of this machine; set the clocks"
        yield Finding(path=f"sources.{source.name}", reason="", records=0, message=message)


def _cause(
    reason: str, source: SourcePlan, views: Sequence[ViewPlan], trial: Trial, *, with_names: bool
) -> str:
    """What the records that are refused for a reason look like, if they look like something."""
    places = set(trial.refused[reason])
    records = [record for record in trial.sample if (record.partition, record.offset) in places]
    if reason == "malformed_json":
        return f"their value is no JSON; {most_common_form(record.value for record in records)}"
    fields = Fields(records)
    form = event_format(source, views)
    paths = {name: f"views.{view.name}.item" for view in views for name in [view.item_field]}
    paths |= {form.time: f"sources.{source.name}.time.field"} if form.time is not None else {}
    paths |= {form.user: f"sources.{source.name}.user"} if form.user is not None else {}
    match reason:
        case "missing_field":
            return _missing(fields, paths, with_names=with_names)
        case "wrong_type":
            return _mistyped(fields, paths, source, max((record.timestamp for record in records), default=0))
        case "key_mismatch" if with_names and (same := fields.like_keys()):
            return f"their key is what field {same[0]!r} says; write sources.{source.name}.user: {same[0]}"
    return ""


def _missing(fields: Fields, paths: Mapping[str, str], *, with_names: bool) -> str:
    missing = fields.missing(paths)
    if not missing:
        return ""
    said = " and ".join(f"field {name!r} ({paths[name]}) is not there" for name in missing)
    if not with_names:
        return said
    if around := fields.around(paths):
        return f"{said}; it is inside {around[0]!r}: put it at the top of the event"
    names = fields.names
    if not names:
        return said
    near = [guess for name in missing if (guess := unknown(name, names)).startswith("did you mean")]
    return f"{said}; there are {', '.join(map(repr, names))}{'; ' + near[0] if near else ''}"


def _mistyped(fields: Fields, paths: Mapping[str, str], source: SourcePlan, written_ms: int) -> str:
    """What is not of its type: the values themselves, the time, or a text."""
    if what := fields.no_objects():
        return f"their value is {what}; let the producers write one JSON object a record"
    time = source.time_field
    for name, path in paths.items():
        found, wanted = fields.types(name), ("a text", "a whole number")
        if name == time:
            wanted = ("a text",) if source.time_unit == "iso" else ("a whole number",)
        if not found or found in wanted:
            continue
        said = f"field {name!r} ({path}) is {found}, not {' or '.join(wanted)}"
        unit = fields.unit(name, written_ms) if name == time else ""
        return f"{said}; write sources.{source.name}.time.unit: {unit}" if unit else said
    return ""


def _mistimed(source: SourcePlan, trial: Trial) -> Finding:
    unit = trial.unit
    mend = f"write sources.{source.name}.time.unit: {unit}"
    if unit not in ("ms", "s"):
        mend = f"let the producers write {source.time_unit}; there is no unit for {unit}"
    said = f"read in {source.time_unit} their times are many years away from those of their records, and read in {unit} "
    return Finding(
        path=f"sources.{source.name}.time.unit",
        reason="wrong_unit",
        records=len(trial.mistimed),
        message=f"{said}they are not; {mend}",
    )


def _placed(source: SourcePlan, trial: Trial) -> dict[str, int]:
    hashes = {name: partitioner(replace(source, partitioner=name)) for name in _HASHES}  # type: ignore[arg-type]
    return fitting(trial.places, {name: place for name, place in hashes.items() if place is not None})


def _placing(source: SourcePlan, trial: Trial) -> str:
    placed, users = _placed(source, trial), len(trial.places)
    said = f"they stand in another partition than partitioner {source.partitioner} puts their users"
    others = [name for name in _HASHES if name != source.partitioner and fits(placed[name], users)]
    if others:
        return f"{said}, and where {others[0]} does; write partitioner: {others[0]}"
    if fits(placed.get(source.partitioner, 0), users):
        return f"{said}, which fits nearly all users; some producers choose partitions otherwise"
    strays = sum(len(found) > 1 for found in trial.places.values())
    if users and 2 * strays > users:
        return f"{said}, and most users are in several: let the producers choose the partition by the key alone"
    return f"{said}, and neither {' nor '.join(_HASHES)} fits; let the producers use one of them"


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
                reason="",
                records=0,
                message=f"{where} a watermark among the newest records; without one, windows close "
                f"{format_duration(view.window.idle_ms)} (window.idle) after the wall clock at the earliest: write "
                "watermarks to every partition, or clock: wall",
            )


# -- clocks -----------------------------------------------------------------------------------------------------


def _clocks(source: SourcePlan, trial: Trial, now_ms: int) -> Iterator[str]:
    if not trial.sample:
        return
    if source.time_field is not None and trial.lags_ms:
        lag = trial.lags_ms[len(trial.lags_ms) // 2]
        side = "behind" if lag > 0 else "ahead of"
        apart = "agree with" if abs(lag) < _NEAR_MS else f"are {_length(abs(lag))} {side}"
        yield f"the times of events mostly {apart} those of their records"
    age = now_ms - max(record.timestamp for record in trial.sample)
    yield f"the newest record was written {_length(age)} ago" if age >= _NEAR_MS else (
        "the newest record was written just now"
        if age > -_AHEAD_MS
        else f"the newest record bears a time {_length(-age)} ahead of this machine"
    )


def _length(time_ms: int) -> str:
    for name, unit in _LENGTHS:
        if number := time_ms // unit:
            return f"about {number} {name}{'s' if number > 1 else ''}"
    return "less than a second"
