"""`stream-dp worker`: run one worker of an application until it is stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import uvloop

from stream_dp.agents import AGENTS
from stream_dp.cli.command_line import FILE, Parsed, host_and_port
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.worker.assembly import Options
from stream_dp.runtime.worker.health import Address
from stream_dp.runtime.worker.logs import FORMATS, speak
from stream_dp.runtime.worker.process import run_worker
from stream_dp.windows.durations import parse_duration


def _address(text: str) -> Address:
    return Address(*host_and_port(text))


@click.command()
@FILE
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="State folder of this worker; each worker of a machine needs its own. [default: data_dir of FILE]",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="If stored state or a topic was lost: charge what was published at its worst cost, refuse windows that lack "
    "counts, and continue after them. For one start only.",
)
@click.option(
    "--backfill",
    is_flag=True,
    help="At the first start of a view with a window.start in the past: release and charge the windows that are over. "
    "Feed their events first (`stream-dp feed`): a window that was released empty stays empty.",
)
@click.option(
    "--unchecked-data",
    is_flag=True,
    help="Start views for the first time even if most records of their sources would be refused, for instance if the "
    "producers are corrected meanwhile.",
)
@click.option(
    "--start-within",
    metavar="DURATION",
    type=Parsed("duration", parse_duration),
    default="5m",
    show_default=True,
    help="How long the start may wait for the broker or the group. A running recovery is not cut off.",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    type=_address,
    help="Answer /metrics (for Prometheus), /livez and /readyz there. HOST is 127.0.0.1 unless given. The counters are "
    "exact, so whoever reaches the port must be trusted like an operator. [default: off]",
)
@click.option(
    "--log-format",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="Log lines of text, or one JSON object a line.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log what Faust and the Kafka client do.")
def worker(
    file: Path,
    data_dir: Path | None,
    start_within: int,
    http: Address | None,
    log_format: str,
    verbose: bool,
    **allowed: Any,  # noqa: ANN401  the flags of Options
) -> None:
    """Run one worker of the application that FILE describes.

    The worker creates missing topics (not the sources), claims them, takes its share of the partitions, and counts,
    releases and sharpens until SIGINT or SIGTERM. Start up to one worker per partition, on any machines, with the
    same FILE and key file. A worker that was killed continues when it is started again. A data folder serves one
    worker at a time.

    If the broker does not answer, the worker waits: at the start for --start-within, later without limit. If the
    broker refuses the login, a certificate or a right, the worker ends (`stream-dp acl` prints the rights). The log
    says what the worker waits for. SIGINT and SIGTERM end it within 10 s, a second signal at once.

    Before views start for the first time, the newest records of their sources are checked, as `stream-dp check FILE
    --sample` does. If most would be refused (no key, no JSON, a missing field, another partitioner or unit of
    time), the start is refused with code 2 and the remedy; nothing is created or charged. The log of a running
    worker says, roughly, what is refused and clipped, and when a budget will not last.

    Counters are since the first record: `stream-dp status` shows those of all workers; counters.json in the state
    folder, and /metrics with --http, those of this worker's partitions. Metadata of refused records is in the
    dead-letter topic.

    If the release topics have windows that the worker's tables do not know, state was lost: the worker ends with
    code 2, because releasing them again would spend the budget twice. Restore the data folder and the changelog
    topics from a copy. Without a copy use --accept-loss: it reads the release topics from the beginning, charges
    every such window at its worst cost, and never releases it again, nor sharper. The same applies to a deleted
    topic of the application, even if it was made again. --accept-loss creates what is missing and continues;
    windows that lack counts are published as refusals with reason "lost".

    At the first start of the application, the sources, ledgers, ladders, audiences and views of FILE are posted to
    the control topic as settings 1. Later starts use the settings in effect; `stream-dp apply FILE` changes them
    while workers run. If FILE differs, the log says so. If a view of settings 1 has a window.start and windows of
    it are over, the worker does not start: it prints how many windows would be released at once and what they cost.
    Add --backfill to continue.

    A worker with other sources or keys than the running ones waits until they have ended.

    Exit codes: 0 stopped; 1 failed, start it again; 2 wrong configuration.
    """
    speak(log_format, verbose=verbose)
    plan = load_plan(file)
    if data_dir is not None:
        plan = replace(plan, data_dir=data_dir)
    if plan.broker.is_embedded:
        raise ConfigError(
            "broker: memory:// exists inside one process only, so this worker could read nothing. Start a real Kafka "
            "with `stream-dp kafka up`, or run `stream-dp demo`"
        )
    uvloop.run(run_worker(plan, AGENTS, Options(**allowed), start_within_s=start_within / 1000, http=http))
