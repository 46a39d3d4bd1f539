"""`stream-dp reproduce`: published experiments, run again."""

from __future__ import annotations

import click

from stream_dp.cli.reproduce.gap_figure import gap
from stream_dp.cli.reproduce.lossless_figure import lossless
from stream_dp.cli.reproduce.subset_figure import subset
from stream_dp.cli.reproduce.topk_figure import topk


@click.group()
def reproduce() -> None:
    """Run a published experiment again and compare it with what was published.

    Needs the extra `analysis`: pip install 'stream-dp[analysis]'.
    """


reproduce.add_command(gap)
reproduce.add_command(lossless)
reproduce.add_command(subset)
reproduce.add_command(topk)
