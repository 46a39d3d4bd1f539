"""A configuration checked: its plan, what this machine can do in time, and what a sample of the data shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stream_dp.config.descriptions import PlanDescription
from stream_dp.config.explanation import describe
from stream_dp.config.plan import Plan
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.bootstrap import wrong_sources
from stream_dp.runtime.capacity import ADVISED_KEYS, RATE_SHARE, Computing, Rate, measure, rates
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.cluster import missing, open_secrets
from stream_dp.runtime.sources.survey import SourceSurvey, survey


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration without faults.

    Attributes:
        plan: what it comes to.
        description: of the plan, in words and numbers.
        computing: by view, what this machine computes in time.
        rates: of each ledger, what is asked for and what this machine does.
        samples: of the sources, where they were sampled.
        warnings: what the configuration and the samples warn of.
        on_this_machine: what is asked for and this machine cannot do in time; measured, so no two runs agree.
        lacking: secrets and certificates that this machine lacks to connect.
    """

    plan: Plan
    description: PlanDescription
    computing: dict[str, Computing]
    rates: tuple[Rate, ...]
    samples: tuple[SourceSurvey, ...]
    warnings: tuple[str, ...]
    on_this_machine: tuple[str, ...]
    lacking: tuple[Fault, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            **self.description.model_dump(mode="json"),
            "computing": {name: found.model_dump(exclude={"view"}) for name, found in self.computing.items()},
            "rates": [rate.model_dump() for rate in self.rates],
            "warnings": list(self.warnings),
            "on_this_machine": list(self.on_this_machine),
            "missing": [{"path": fault.path, "message": fault.message} for fault in self.lacking],
            **({"samples": [sample.model_dump() for sample in self.samples]} if self.samples else {}),
        }


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
        plan=plan,
        description=description,
        computing=computing,
        rates=asked,
        samples=tuple(samples),
        warnings=(
            *description.warnings,
            *(words for server in servers for words in open_secrets(server)),
            *(words for one in samples for words in one.words()),
        ),
        on_this_machine=tuple(_too_slow(computing, asked, description.offset)),
        lacking=tuple(fault for server in servers for fault in missing(server)),
    )


def _too_slow(computing: dict[str, Computing], asked: Sequence[Rate], offset: str) -> list[str]:
    fast = [
        f"{', '.join(rate.ledgers)}: {rate.windows_a_second:.3g} windows a second are asked for, and it "
        f"releases about {rate.windows_possible:.3g}; more than one part in {RATE_SHARE} is too much to stay in time "
        "under load: make windows longer, or have fewer views"
        for rate in asked
        if not rate.is_safe
    ]
    hasty = [
        f"view {name}: half of the offset of {offset} covers fewer than {ADVISED_KEYS:,} keys; "
        "where a window may have more, raise release.offset"
        for name, found in computing.items()
        if not found.advised
    ]
    return [*fast, *hasty]


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
