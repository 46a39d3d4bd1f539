"""A setting that the demo changes while the worker runs, as `stream-dp tune` does."""

from __future__ import annotations

from dataclasses import dataclass

from stream_dp.accounting import Cost
from stream_dp.cli.apply.changing import Wish, proposed
from stream_dp.cli.apply.waiting import wait_until_known
from stream_dp.cli.demo.runs import CARRIERS, TEMPLATE, DemoRun
from stream_dp.cli.numbers import cents_up, moment
from stream_dp.cli.tune import tuned
from stream_dp.control.editions import plan_of
from stream_dp.errors import StateError
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import post, read_history

SETTING = "selection.epsilon=3/40"
NOTE = "a longer list of carriers"


@dataclass(frozen=True, slots=True)
class Tuned:
    """New settings that the worker goes by.

    Attributes:
        number: of the settings.
        from_ms: start of the first window under them.
        before: what choosing the carriers of a window cost until then, at worst.
        after: what it costs since.
    """

    number: int
    from_ms: int
    before: Cost
    after: Cost

    @property
    def command(self) -> str:
        """The command that does the same."""
        return f"stream-dp tune {TEMPLATE} {CARRIERS} {SETTING} --from {moment(self.from_ms)}"

    @property
    def words(self) -> str:
        """What it means."""
        costs = f"{cents_up(self.before.epsilon)} -> {cents_up(self.after.epsilon)}"
        return f"From the window of {moment(self.from_ms)} on; choosing costs epsilon {costs} at worst"


async def tune_carriers(run: DemoRun, client: Client, from_ms: int) -> Tuned:
    """Pay more for the choice of the carriers from a window on; wait until the worker goes by that.

    Args:
        run: a run whose worker runs.
        client: of its broker.
        from_ms: start of the window.

    Raises:
        ConfigError: that cannot be.
        StateError: somebody else has changed the settings, or the worker does not say that it goes by them.
    """
    wish = Wish(from_ms, backfill=False, yes=True, dry_run=False, as_json=False, note=NOTE)
    known = await read_history(run.plan, client)
    before = plan_of(known[-1], run.plan)
    after = tuned(before, CARRIERS, [SETTING])
    proposal, posted, holding = await proposed(run.plan, known, before, after, client, wish)
    if not await post(run.plan, client, posted):
        raise StateError("somebody else has changed the settings of this run; start the demo again")
    heard = await wait_until_known(posted.number, holding, client, lambda _: None, ran=True)
    if not (heard.known_by and heard.by_everybody):
        raise StateError(f"the worker does not say that it goes by settings {posted.number}; see {run.log_file}")
    costs = (plan.views[CARRIERS].keys_at_worst for plan in (before, after))
    return Tuned(posted.number, proposal.begins[CARRIERS], *costs)
