"""Survey of an application's sources by samples, and the decision whether views may begin on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import product

from pydantic import BaseModel, Field

from stream_dp.config.forecast import withdrawal_faults
from stream_dp.config.plan import Plan, SourcePlan, ViewPlan
from stream_dp.config.planner import build_plan
from stream_dp.control.editions import beginnings
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_accepted
from stream_dp.runtime.kafka.topics import sources_of
from stream_dp.runtime.sources.diagnosis import LEAST_USERS
from stream_dp.runtime.sources.findings import (
    CLIPPED_PERCENT,
    Finding,
    clocks,
    findings,
    other_partitioner,
    placed,
    share_words,
)
from stream_dp.runtime.sources.sampling import (
    SAMPLE_BYTES,
    SAMPLE_RECORDS,
    SAMPLE_SECONDS,
    Sample,
    StoppedBy,
    Taken,
    Trial,
    count_sample,
    read_sample,
)
from stream_dp.runtime.sources.schema_registry import SourceSchemas, open_registry
from stream_dp.windows.events import Schemas
from stream_dp.windows.plausible_times import BAD_WATERMARK

MOST_ITEMS = 10_000
"""Per user, that a view may have."""


def weighed(plan: Plan, view: ViewPlan, taken: Taken, count: Callable[[ViewPlan], Taken]) -> str:
    """Advice on the bound `items_per_user`, by the sample.

    Args:
        plan: the application.
        view: one of its views, of which much is left out.
        taken: what it makes of the sample.
        count: what a view makes of the sample.
    """
    levels = sorted(set(view.audiences.values()))
    level = next((level for level in levels if _keys(view, level, taken)), levels[-1])
    bound, other, others = view.items_per_user, view, taken
    while others.clipped_percent > CLIPPED_PERCENT and bound < MOST_ITEMS:
        bound = min(2 * bound, MOST_ITEMS)
        try:
            other = _with(plan, view, bound)
        except ConfigError as error:
            return f"{_words(view, level, taken)}. {bound} is not possible: {error.faults[0].message}"
        others = count(other)
    now, then = _keys(view, level, taken), _keys(other, level, others)
    if then < now:
        verdict = "Keep it, unless windows are much larger than this sample: a higher value would hide keys"
    elif not then:
        verdict = "Neither shows a key of this sample: take more records (--sample=N)"
    elif then == now:
        verdict = "Raise it only if what is dropped is worth the noise"
    else:
        verdict = f"Raise it to {bound} if the keys that it adds are worth the noise"
    return f"{_words(view, level, taken)}. {_words(other, level, others)}. {verdict}"


def _with(plan: Plan, view: ViewPlan, bound: int) -> ViewPlan:
    """The view with another bound.

    Raises:
        ConfigError: it cannot be planned with that.
    """
    views = plan.raw["views"]
    raw = {**plan.raw, "views": {**views, view.name: {**views[view.name], "items_per_user": bound}}}
    return build_plan(raw, plan.folder).views[view.name]


def _keys(view: ViewPlan, level: int, taken: Taken) -> int:
    """Return the number of keys of a window whose count is shown and above the noise."""
    least = view.kind.least_shown(level)
    return taken.keys_from(_noise(view, level) + 1 if least is None else least)


def _noise(view: ViewPlan, level: int) -> int:
    return view.levels[level].interval_of(view.window.shape.summands)


def _words(view: ViewPlan, level: int, taken: Taken) -> str:
    least = view.kind.least_shown(level)
    shown, of = "", "are above the noise"
    if least is not None:
        shown, of = f", and keys are shown from {least} on", f"reach {least}"
    return (
        f"With items_per_user: {view.items_per_user}, {taken.clipped_percent} % of the contributions are dropped. At "
        f"level {view.levels[level].name} the error of a count is up to {_noise(view, level)} (95 %){shown}. In this "
        f"sample, {_keys(view, level, taken):,} keys of a window {of}; the largest count is {taken.largest:,}"
    )


log = logging.getLogger("stream_dp.worker")

LIMITS: Mapping[StoppedBy, str] = {"": "", "time": "{seconds:.3g} s", "size": f"{SAMPLE_BYTES >> 20} MiB"}
"""Limits of a sample, in words."""

START_SECONDS = 3.0
"""Time that a first start may take for the samples."""
MOST_REASONS = 3
_FOR_GOOD_REASON = ("late", "before_start", "clipped")


class ViewSurvey(BaseModel):
    """Result of a sample for a view."""

    view: str
    begun: bool = Field(description="Whether it was started before.")
    counted: int = Field(description="Events that it counts.")
    refused: dict[str, int] = Field(description="Events that it does not count, by reason.")


class SourceSurvey(BaseModel):
    """Survey of one source: counts and settings, no user and no item."""

    source: str
    topic: str
    records: int = Field(description="Read, the newest of every partition.")
    stopped_by: StoppedBy = Field(
        description="Why there are fewer than asked for: the limit `time` or `size`; `topic`: there are no more; "
        "`partition`: some partitions have fewer; `transaction`: an open one hides the later records. Empty: there are "
        "as many."
    )
    limit: str = Field(description="The limit, with its unit; empty if none ended the sample.")
    watermarks: int = Field(description="Of the records.")
    refused: dict[str, int] = Field(description="Records that are no event for any view, by reason.")
    users: int = Field(description="Distinct ones.")
    users_placed_by: dict[str, int] = Field(description="By partitioner, how many stand where it puts them.")
    views: list[ViewSurvey]
    clocks: list[str] = Field(description="How the times of events, records and this machine agree.")
    findings: list[Finding]

    def words(self) -> list[str]:
        """The findings, a sentence each."""
        of = f"of {self.records - self.watermarks:,} records"
        told = [(one, f"{one.reason} ({one.records:,} {of}): " if one.reason else "") for one in self.findings]
        return [f"{one.path}: {reason}{one.message}" for one, reason in told]


async def survey(
    plan: Plan, client: Client, now_ms: int, records: int = SAMPLE_RECORDS, within_s: float = SAMPLE_SECONDS
) -> list[SourceSurvey]:
    """Sample every source of a plan, as if its settings held.

    Which views have begun, and when, is told by the settings that hold.

    Args:
        plan: the application; its sources are there, with their partitions.
        client: of its broker.
        now_ms: the clock of this machine.
        records: of each source.
        within_s: for all of them.

    Raises:
        ConfigError: the schema registry refuses the login, or is not trusted.
        BrokerError: the cluster or the schema registry does not answer, or refuses.
    """
    begun = beginnings(await read_accepted(plan, client))
    known = {name: at_ms for name, at_ms in begun.items() if at_ms <= now_ms}
    found = []
    each_s = within_s / len(sources_of(plan))
    async with open_registry(plan, patient=False) as schemas:
        for source in sources_of(plan).values():
            views = _on(source, plan)
            sample = await read_sample(client, source, records, each_s)
            read = await _schemas(schemas, source, sample)
            trial = count_sample(source, views, sample, known, now_ms, read)
            fresh = [view.name for view in views if view.name not in begun]
            withdrawals = withdrawal_faults(plan, fresh, now_ms, trial.reached_ms)
            noted = list(findings(source, views, trial, now_ms, with_names=True))
            noted += [Finding(path=one.path, message=one.message) for one in withdrawals]

            def count(view: ViewPlan, sample: Sample = sample, read: Schemas = read) -> Taken:
                return count_sample(view.source, [view], sample, known, now_ms, read).views[view.name]

            for view, one in product(views, noted):
                is_counted = not (view.kind.weights or view.kind.degrees)
                if is_counted and (one.path, one.reason) == (f"views.{view.name}.items_per_user", "clipped"):
                    one.message += f". {weighed(plan, view, trial.views[view.name], count)}"
            found.append(
                SourceSurvey(
                    source=source.name,
                    topic=source.topic,
                    records=len(trial.sample),
                    stopped_by=trial.sample.stopped_by,
                    limit=LIMITS.get(trial.sample.stopped_by, "").format(seconds=each_s),
                    watermarks=trial.watermarks.total(),
                    refused={reason: len(places) for reason, places in sorted(trial.refused.items())},
                    users=len(trial.places),
                    users_placed_by=placed(source, trial) if source.key_field is None else {},
                    views=[_of_view(name, taken, is_begun=name in known) for name, taken in trial.views.items()],
                    clocks=list(clocks(source, trial, now_ms)),
                    findings=noted,
                )
            )
    return found


async def check_first_starts(plan: Plan, client: Client, now_ms: int, *, backfill: bool = False) -> None:
    """Make sure that an application which was never started can count most of what its sources hold.

    Nothing is written. One that was started goes by the settings that hold, whatever the file says, and begins nothing.
    A source without a topic, or with other partitions, is left to whoever prepares the start.

    Args:
        plan: the application.
        client: of its broker.
        now_ms: the clock of this machine.
        backfill: windows that are over already are to be released: of those that would be withdrawn at once it warns.

    Raises:
        ConfigError: a view would refuse most records of most users because of faults; or watermarks close its windows,
            and all of them would be refused; or the producers use another partitioner. Late records, and records from
            before the first window, are not faults.
        BrokerError: the cluster or the schema registry does not answer, or refuses.
    """
    if await read_accepted(plan, client):
        return
    sources = sources_of(plan)
    present = await client.describe(list(sources))
    fresh = [one for topic, one in sources.items() if topic in present and present[topic].partitions == one.partitions]
    faults = []
    for source in fresh:
        views = _on(source, plan)
        sample = await read_sample(client, source, within_s=START_SECONDS / len(fresh))
        if not len(sample):
            why = "could not be read in time" if sample.stopped_by == "time" else "has no record yet"
            log.info("sources.%s: topic %s %s; its views begin unchecked", source.name, source.topic, why)
            continue
        async with open_registry(plan, patient=False) as schemas:
            trial = count_sample(source, views, sample, {}, now_ms, await _schemas(schemas, source, sample))
        for fault in withdrawal_faults(plan, [view.name for view in views if backfill], now_ms, trial.reached_ms):
            log.warning("%s", fault)
        found = list(findings(source, views, trial, now_ms, with_names=False))
        if _is_mostly_faulty(views, trial) or other_partitioner(source, trial):
            faults.append(_refusal(source, trial, found))
        elif _believes_no_watermark(views, trial):
            faults.append(_no_watermark(source, found))
        else:
            for one in found:
                log.warning("%s: %s%s", one.path, _share(one, trial), one.message)
    if faults:
        raise ConfigError(faults)


async def _schemas(schemas: Mapping[str, SourceSchemas], source: SourcePlan, sample: Sample) -> Schemas:
    return await schemas[source.topic].of(list(sample)) if source.topic in schemas else {}


def _share(one: Finding, trial: Trial) -> str:
    return f"{one.reason} ({share_words(one.records, trial.events)} of the newest records): " if one.reason else ""


def _is_mostly_faulty(views: Sequence[ViewPlan], trial: Trial) -> bool:
    """Return True if a view would refuse most records of most users, so one user cannot prevent a start."""
    for view in views:
        faulty, users = trial.users_with(trial.faulty(view.name))
        if users >= LEAST_USERS and 2 * faulty > users:
            return True
    return False


def _refusal(source: SourcePlan, trial: Trial, found: Sequence[Finding]) -> Fault:
    reasons = [_share(one, trial) + one.message for one in found if one.reason not in ("", *_FOR_GOOD_REASON)]
    return Fault(
        f"sources.{source.name}",
        f"a worker would refuse most records of more than half of the users in topic {source.topic}: "
        f"{'; '.join(reasons[:MOST_REASONS])}. Nothing was created or charged. `stream-dp check FILE --sample` shows "
        "more. To begin anyway, start with --unchecked-data",
    )


def _believes_no_watermark(views: Sequence[ViewPlan], trial: Trial) -> bool:
    """Return True if watermarks close windows and the sample has some, but a worker would believe none of them."""
    by_watermarks = any(view.window.clock == "event" for view in views)
    return by_watermarks and BAD_WATERMARK in trial.refused and not trial.watermarks.total()


def _no_watermark(source: SourcePlan, found: Sequence[Finding]) -> Fault:
    (words,) = [one.message for one in found if one.reason == BAD_WATERMARK]
    return Fault(
        f"sources.{source.name}",
        f"a worker would believe no watermark of topic {source.topic}: {words}. Nothing was created or charged. To "
        "begin anyway, start with --unchecked-data",
    )


def _on(source: SourcePlan, plan: Plan) -> list[ViewPlan]:
    return [view for view in plan.views.values() if view.source.name == source.name]


def _of_view(name: str, taken: Taken, *, is_begun: bool) -> ViewSurvey:
    refused = {reason: len(places) for reason, places in sorted(taken.refused.items())}
    return ViewSurvey(view=name, begun=is_begun, counted=taken.counted, refused=refused)
