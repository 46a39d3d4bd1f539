"""The settings of an application: those in effect, and every one that was ever posted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from stream_dp.config.differences import Setting, differences
from stream_dp.config.models import ENTRIES
from stream_dp.config.plan import Plan
from stream_dp.config.yaml_data import Data, escape, parse_yaml, write_yaml
from stream_dp.control.editions import Held, Posted, editions, plan_holding, presented
from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault
from stream_dp.operations.numbers import moment
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_history


@dataclass(frozen=True, slots=True)
class Effective:
    """The plan in effect of an application that a file describes.

    Attributes:
        counted: with every edition of every view, by which workers count.
        number: of the settings in effect; 0 where the application was never started, or they may not be read.
        differs: the settings of the file that are not in effect.
    """

    counted: Plan
    number: int = 0
    differs: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The plan as operators see it: of every view that was not removed its newest edition."""
        return presented(self.counted)


async def read_effective(plan: Plan, client: Client) -> Effective:
    """Read the plan in effect: the file's own where the application was never started.

    It is the file's own, too, for an account that may not read the settings, such as a reader's.

    Args:
        plan: of the file.
        client: of its broker.

    Raises:
        ConfigError: the settings in effect cannot be planned here.
        BrokerError: the cluster does not answer.
    """
    try:
        known = await read_history(plan, client)
    except AccessError:
        return Effective(plan)
    return Effective(await asyncio.to_thread(plan_holding, known, plan), len(known), _differing(known, plan))


async def read_differing(plan: Plan, client: Client) -> tuple[int, tuple[str, ...]]:
    """Return the number of the settings in effect, and the settings of the file that are not.

    Args:
        plan: of the file.
        client: of its broker.

    Raises:
        BrokerError: the cluster does not answer, or refuses.
    """
    known = await read_history(plan, client)
    return len(known), _differing(known, plan)


def _differing(known: Sequence[Posted], plan: Plan) -> tuple[str, ...]:
    return tuple(setting.path for setting in differences(known[-1].sections, plan.raw)) if known else ()


@dataclass(frozen=True, slots=True)
class SettingsHistory:
    """Every settings of an application, by number from 1 on.

    Attributes:
        application: its id.
        known: the settings, oldest first.
    """

    application: str
    known: Sequence[Posted]

    @property
    def changes(self) -> list[list[Setting]]:
        """What each of the settings changed of those before."""
        return [[], *(differences(former.sections, latter.sections) for former, latter in pairwise(self.known))]

    @property
    def editions(self) -> list[Held]:
        """Every edition of every view."""
        return editions(self.known)

    def numbered(self, number: int) -> Posted:
        """Return settings by their number.

        Raises:
            ConfigError: there are none of this number.
        """
        if number > len(self.known):
            raise ConfigError([Fault("--show", f"there are no settings {number}; the newest are {len(self.known)}")])
        return self.known[number - 1]

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        return {
            "application": self.application,
            "settings": [
                {
                    "number": posted.number,
                    "posted_ms": posted.at_ms,
                    "posted": moment(posted.at_ms),
                    "note": posted.note,
                    "changed": [setting_json(one) for one in changed],
                    "begins_ms": posted.begins,
                    "ends_ms": posted.ends,
                    "sections": posted.sections,
                }
                for posted, changed in zip(self.known, self.changes, strict=True)
            ],
            "editions": [
                {
                    "view": one.view,
                    "edition": one.edition,
                    "settings": one.settings,
                    "from_ms": one.from_ms,
                    "until_ms": one.until_ms,
                    "never_holds": one.never_holds,
                }
                for one in self.editions
            ],
        }


async def read_settings(plan: Plan, client: Client) -> SettingsHistory:
    """Read every settings of an application.

    Args:
        plan: of a file of it.
        client: of its broker.

    Raises:
        BrokerError: the application was never started, or the cluster does not answer.
    """
    known = await read_history(plan, client)
    if not known:
        raise BrokerError(
            f"application {plan.id} was never started at {plan.broker.address}. "
            "Start a worker first: `stream-dp worker FILE`"
        )
    return SettingsHistory(plan.id, known)


def as_file(file: Path, posted: Posted) -> str:
    """Return settings as the text of a file; each machine's own is as a file has it, variables not put in.

    Args:
        file: of the application.
        posted: the settings.
    """
    own, _ = parse_yaml(file.read_text(encoding="utf-8"))
    data: dict[str, Data] = {key: value for key, value in own.items() if key not in ENTRIES}
    note = f", {' '.join(posted.note.split())}" if posted.note else ""
    head = f"# settings {posted.number}, posted {moment(posted.at_ms)}{note}\n"
    return head + write_yaml({**data, **{name: escape(entries) for name, entries in posted.sections.items()}})


def setting_json(setting: Setting) -> dict[str, Any]:
    """A setting that changed, for machines."""
    return {"path": setting.path, "change": setting.change, "before": setting.before, "after": setting.after}
