"""`stream-dp worker`: run one worker of an application until it is told to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import uvloop

from stream_dp.agents import AGENTS
from stream_dp.config.planning import load_plan
from stream_dp.errors import ConfigError
from stream_dp.runtime.worker.health import LOOPBACK, Address
from stream_dp.runtime.worker.logs import FORMATS, speak
from stream_dp.runtime.worker.process import run_worker
from stream_dp.runtime.worker.worker import Options
from stream_dp.windows.durations import parse_duration


def _duration(_context: click.Context, _parameter: click.Parameter, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _address(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Address | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) >= 1 << 16:
        raise click.BadParameter(f"write PORT or HOST:PORT, with a port of at most 65535, not {text!r}")
    return Address(host.removeprefix("[").removesuffix("]") or LOOPBACK, int(port))


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="State folder of this worker; each worker of a machine needs its own. [default: data_dir of FILE]",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Where stored state or a topic was lost: charge what was published at worst, refuse windows that miss counts, "
    "go on behind them. For one start only.",
)
@click.option(
    "--backfill",
    is_flag=True,
    help="At the first start of a view with a window.start in the past: release and charge the windows that are over "
    "already. Feed their events before (`stream-dp feed`): what was released empty stays so.",
)
@click.option(
    "--unchecked-data",
    is_flag=True,
    help="Begin views for the first time though most of what their sources hold would be refused: where the producers "
    "are mended meanwhile. Without it such a start is refused.",
)
@click.option(
    "--start-within",
    callback=_duration,
    default="5m",
    show_default=True,
    help="How long the start may wait for one thing: the broker, the group. A recovery that goes on is not cut off.",
)
@click.option(
    "--http",
    metavar="[HOST:]PORT",
    callback=_address,
    help="Answer /metrics (for Prometheus), /livez and /readyz there. HOST is 127.0.0.1 unless given: the counters are "
    "exact, so whoever reaches the port has to be trusted like an operator. [default: nowhere]",
)
@click.option(
    "--log-format",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="How the log is written: lines of text, or one JSON object a line.",
)
@click.option("-v", "--verbose", is_flag=True, help="Say what Faust and the Kafka client are doing, too.")
def worker(
    file: Path,
    data_dir: Path | None,
    accept_loss: bool,
    backfill: bool,
    unchecked_data: bool,
    start_within: int,
    http: Address | None,
    log_format: str,
    verbose: bool,
) -> None:
    """Run one worker of the application that FILE describes.

    Creates the topics that are missing (not the source topics) and claims all of them, takes its share of the
    partitions, counts, releases and sharpens until it gets SIGINT or SIGTERM. Start as many as there are partitions,
    on any machines, with the same FILE and key file; one that was killed goes on where it was when it is started
    again. A data folder serves one worker at a time.

    A broker that does not answer is waited for: at the start as long as --start-within says, afterwards as long as it
    takes. One that refuses the login, a certificate or a right is not: the worker ends and says so (`stream-dp acl`
    prints the rights). What the worker waits for stands in its log. SIGINT and SIGTERM end it within 10 s, a second one
    at once.

    Before views begin that were never started, the newest records of their sources are looked at, as `stream-dp check
    FILE --sample` does. Where most would be refused (no key, no JSON, a missing field, another partitioner, another
    unit of time), the start is refused with code 2 and the remedy: nothing is made and nothing charged. A worker that
    runs says in its log what it refuses and clips, coarsely, and when a budget will not last.

    How many records were read, and for every view counted, refused (by reason) and released, is shown by `stream-dp
    status` for all workers, and for the partitions of this one by counters.json in the state folder, and by /metrics
    where --http is given: since the first record, whoever had the partitions. What was refused stands, as metadata, in
    the dead-letter topic.

    A worker that finds windows in the release topics which its tables do not know ends with code 2 and says so: their
    state was lost, and releasing them again would spend the budget a second time. Restore the data folder and the
    changelog topics if there is a copy. Without one, --accept-loss reads the release topics from the beginning,
    charges every such window to the ledger as dear as it can have been, and never releases it again, nor sharper.

    The same holds for a topic of the application that was deleted, whether or not it was made again: a worker that runs
    ends within seconds and one that starts does not, both with code 2, and say what is lost with it. --accept-loss
    creates what is missing and goes on; windows that miss counts are published as refusals with reason "lost".

    What FILE says of sources, ledgers, ladders, audiences and views holds at the first start that the application ever
    has: it is posted to the control topic as the first settings. Afterwards those hold that stand there, and
    `stream-dp apply FILE` changes them while workers run; a worker whose FILE says otherwise says so and goes by the
    settings. Where a view of the first settings has a window.start and windows of it are over by then, the worker does
    not start: it says for each view how many would be released at once and what they cost, and goes on with --backfill.

    A worker that reads other sources than those that run, or has other keys, waits until they have ended.

    Exit codes: 0 stopped, 1 failed and can be started again, 2 wrong configuration.
    """
    speak(log_format, verbose=verbose)
    plan = load_plan(file)
    if data_dir is not None:
        plan = replace(plan, data_dir=data_dir)
    if plan.broker.is_embedded:
        raise ConfigError(
            "broker: memory:// lives inside one process, so a worker of its own would have nothing to read; "
            "`stream-dp demo` runs on it, and `stream-dp kafka up` starts a real Kafka"
        )
    uvloop.run(
        run_worker(
            plan,
            AGENTS,
            Options(accept_loss=accept_loss, backfill=backfill, unchecked_data=unchecked_data),
            start_within_s=start_within / 1000,
            http=http,
        )
    )
