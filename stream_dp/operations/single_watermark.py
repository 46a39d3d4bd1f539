"""A watermark without events: it closes the last windows of a source whose producer writes no watermarks."""

from __future__ import annotations

from collections.abc import Sequence

from stream_dp.config.plan import SourcePlan, ViewPlan
from stream_dp.errors import ConfigError
from stream_dp.operations.feed import begins_ms
from stream_dp.runtime.factory import SourceRecords
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.sources.sampling import count_sample, read_sample
from stream_dp.windows.durations import format_duration, moment
from stream_dp.windows.outlying_times import longest_gap_ms
from stream_dp.windows.plausible_times import PlausibleTimes

OPTION = "--watermark"


async def write_watermark(
    source: SourcePlan, views: Sequence[ViewPlan], time_ms: int, client: Client, now_ms: int, *, unchecked: bool
) -> None:
    """Write a watermark to every partition of a source.

    Args:
        source: the source.
        views: the views that count it.
        time_ms: time of the watermark.
        client: a client of the broker.
        now_ms: the clock of this machine.
        unchecked: write it even if it is far from the newest events and watermarks.

    Raises:
        ConfigError: no view waits for watermarks, workers would not believe this one, the topic is missing or has
            another number of partitions, a later watermark was written before, or the time is outlying.
        BrokerError: the cluster does not answer.
    """
    if all(view.window.clock != "event" for view in views):
        raise ConfigError(f"no view of source {source.name} has clock: event, so none waits for watermarks", OPTION)
    plausible = PlausibleTimes.of(map(begins_ms, views), (view.window.max_ahead_ms for view in views))
    if not plausible.has(time_ms, now_ms):
        believed = f"from {moment(plausible.from_ms)} to {moment(plausible.until(now_ms))}"
        words = f"workers do not believe a watermark of {moment(time_ms)}. Give a time {believed}"
        raise ConfigError(f"{words}, which is now plus window.max_ahead", OPTION)
    partitions = await client.partitions(source.topic)
    if partitions != source.partitions:
        found = "does not exist" if partitions is None else f"has {partitions} partitions, not {source.partitions}"
        raise ConfigError(f"topic {source.topic} {found}", f"sources.{source.name}")
    await _check_distance(source, views, time_ms, client, now_ms, unchecked=unchecked)
    await client.publish(SourceRecords(source).watermark(time_ms))


async def _check_distance(
    source: SourcePlan, views: Sequence[ViewPlan], time_ms: int, client: Client, now_ms: int, *, unchecked: bool
) -> None:
    """Compare a watermark with the newest records of the topic.

    Raises:
        ConfigError: a later watermark was written before, or the time is outlying.
    """
    trial = count_sample(source, views, await read_sample(client, source), {}, now_ms)
    reached_ms = trial.reached_ms
    if reached_ms is not None and time_ms <= reached_ms:
        words = f"the topic already has a watermark of {moment(reached_ms)}, so this one would change nothing"
        raise ConfigError(words, OPTION)
    bulk = trial.spread.bulk
    known = [at for at in (reached_ms, None if bulk is None else bulk.last_ms) if at is not None]
    gap_ms = longest_gap_ms(view.window.shape for view in views)
    if known and time_ms - max(known) > gap_ms and not unchecked:
        raise ConfigError(
            f"{moment(time_ms)} is more than {format_duration(gap_ms)} later than the newest events and watermarks in "
            f"topic {source.topic}, which reach {moment(max(known))}. It closes all windows up to then, and each is "
            "charged. Correct the time, or add --unchecked-data",
            OPTION,
        )
