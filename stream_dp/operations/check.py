"""A configuration checked: its plan, what this machine can do in time, and what a sample of the data shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, Field

from stream_dp.config.explanation import PlanDescription, describe
from stream_dp.config.plan import Plan
from stream_dp.config.shares import windows_in
from stream_dp.errors import ConfigError, Fault
from stream_dp.records.models import Amount, PrivacyCost
from stream_dp.runtime.capacity import ADVISED_KEYS, RATE_SHARE, SHARE, Computing, Rate, measure, rates
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.cluster import missing, open_secrets
from stream_dp.runtime.kafka.topic_checks import wrong_sources
from stream_dp.runtime.sources.survey import SourceSurvey, survey
from stream_dp.windows.durations import format_duration


class AudienceSummary(BaseModel):
    """Level of an audience in a view, its noise and its cost for one user."""

    view: str
    audience: str
    level: str = Field(description="That the audience starts with.")
    later: str | None = Field(description="The level that windows are unlocked to by their age. Null: none.")
    epsilon: Amount | None = Field(description="Of the counts of one window or pane. Null: it is no promise.")
    seen: str = Field(description="Which keys the audience sees: from how many users on, or how many of them.")
    noise_interval_95: int = Field(description="The noise of a count lies in plus or minus this with 95 % at least.")
    unit: str = Field(description="What is paid for by itself: window, or pane.")
    cost: PrivacyCost = Field(description="Of one window or pane at the starting level, at worst, with its keys.")
    period_cost: PrivacyCost = Field(description="Of all windows or panes of a period of the ledger.")
    lasts: str = Field(description="How far into a period the budget pays for the view.")
    period: str = Field(description="Length of the ledger's period.")


class Checked(BaseModel):
    """A configuration without faults.

    Attributes:
        description: of the plan, in words and numbers.
        audiences: what every audience sees of every view.
        better: sentences on views where another kind or mechanism shows clearly more keys at the same price.
        computing: by view, what this machine computes in time.
        rates: of each ledger, what is asked for and what this machine does.
        warnings: what the configuration and the samples warn of.
        on_this_machine: what is asked for and this machine cannot do in time; measured, so no two runs agree.
        missing: secrets and certificates that this machine lacks to connect.
        samples: of the sources, where they were sampled.
    """

    description: PlanDescription
    audiences: tuple[AudienceSummary, ...]
    better: tuple[str, ...]
    computing: dict[str, Computing]
    rates: tuple[Rate, ...]
    warnings: tuple[str, ...]
    on_this_machine: tuple[str, ...]
    missing: tuple[Fault, ...]
    samples: tuple[SourceSurvey, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        left_out: dict[str, Any] = {"description": True, "computing": {"__all__": {"view"}}}
        if not self.samples:
            left_out["samples"] = True
        return self.description.model_dump(mode="json") | self.model_dump(mode="json", exclude=left_out)


def check_plan(plan: Plan, samples: Sequence[SourceSurvey] = ()) -> Checked:
    """Describe a plan and measure what this machine can do of it; nothing is connected to.

    Args:
        plan: of the file.
        samples: from `sample`.
    """
    description = describe(plan)
    computing = {found.view: found for found in measure(plan)}
    asked = tuple(rates(plan, computing.values()))
    servers = [server for server in (plan.broker, plan.registry) if server is not None]
    return Checked(
        description=description,
        audiences=tuple(_audiences(plan, description)),
        better=tuple(_better(plan)),
        computing=computing,
        rates=asked,
        samples=tuple(samples),
        warnings=(
            *description.warnings,
            *(words for server in servers for words in open_secrets(server)),
            *(words for one in samples for words in one.words()),
        ),
        on_this_machine=tuple(_too_slow(plan, computing, asked)),
        missing=tuple(fault for server in servers for fault in missing(server)),
    )


def _audiences(plan: Plan, description: PlanDescription) -> Iterator[AudienceSummary]:
    ledgers = {ledger.name: ledger for ledger in description.ledgers}
    for described in description.views:
        view, ledger = plan.views[described.name], ledgers[described.ledger]
        share = next(one for one in ledger.shares if one.view == described.name)
        for audience, index in view.audiences.items():
            level, steps = described.levels[index], view.unlocks.get(audience, ())
            yield AudienceSummary(
                view=described.name,
                audience=audience,
                level=level.name,
                later=view.levels[steps[-1].level].name if steps else None,
                epsilon=level.epsilon,
                seen=described.explanation.seen[index],
                noise_interval_95=level.noise_interval_95,
                unit=described.unit,
                cost=level.cost,
                period_cost=PrivacyCost.spent(view.cost(index) * view.most_paid(share.windows_asked)),
                lasts=share.lasts,
                period=ledger.period,
            )


def _better(plan: Plan) -> Iterator[str]:
    for view in plan.views.values():
        windows = view.most_paid(windows_in(view, view.ledger.periods.longest))
        slack = None if view.ledger.pool is None else view.ledger.pool.slack
        if words := view.kind.better(view.planned_level, windows, slack):
            yield f"{view.name}: at the same price, a key is shown in half of the windows {words}."


def _too_slow(plan: Plan, computing: dict[str, Computing], asked: Sequence[Rate]) -> list[str]:
    offset = format_duration(plan.slots.offset_ms)
    fast = [
        f"{_ledgers(rate)} {rate.windows_a_second:.3g} windows a second; this machine releases about "
        f"{rate.windows_possible:.3g}, and safely 1/{RATE_SHARE} of that under load. Use longer windows or fewer "
        "views."
        for rate in asked
        if not rate.is_safe
    ]
    hasty = [_hasty(found, offset) for found in computing.values() if not found.advised(plan.slots.offset_ms)]
    return [*fast, *hasty]


def _hasty(found: Computing, offset: str) -> str:
    if found.is_constant:
        return (
            f"view {found.view}: the noise of a window takes {found.milliseconds_a_window:,.0f} ms, and release.offset "
            f"is {offset}. Raise release.offset to at least {SHARE} times as much, or make the view smaller."
        )
    return (
        f"view {found.view}: release.offset is {offset}, and half of it is enough for fewer than {ADVISED_KEYS:,} keys "
        "a window. Raise release.offset if a window may have more keys."
    )


def _ledgers(rate: Rate) -> str:
    one = len(rate.ledgers) == 1
    return f"{'ledger' if one else 'ledgers'} {', '.join(rate.ledgers)} {'needs' if one else 'need'}"


async def sample(plan: Plan, client: Client, records: int) -> list[SourceSurvey]:
    """Sample every source of a plan.

    Args:
        plan: of the file.
        client: of its broker.
        records: of each source.

    Raises:
        ConfigError: a source has no topic, or one with other partitions.
        BrokerError: the cluster does not answer, or refuses.
    """
    if faults := await wrong_sources(plan, client):
        raise ConfigError(faults)
    return await survey(plan, client, wall_clock_ms(), records)
