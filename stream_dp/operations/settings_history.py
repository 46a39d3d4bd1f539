"""Settings of an application: those in effect, and all earlier ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stream_dp.config.differences import Setting, differences
from stream_dp.config.file_schema import ENTRIES
from stream_dp.config.plan import Plan
from stream_dp.config.yaml_data import Data, escape, parse_yaml, write_yaml
from stream_dp.control.acceptance import SettingsHistory
from stream_dp.control.editions import Posted, editions, plan_holding, presented
from stream_dp.errors import AccessError, BrokerError, ConfigError
from stream_dp.operations import plain
from stream_dp.runtime.construction import explain_unplannable, plan_settings
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.control_topic import read_accepted, read_history
from stream_dp.text_files import read_text
from stream_dp.windows.durations import moment


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
        history = await read_history(plan, client)
    except AccessError:
        return Effective(plan)
    known = history.accepted
    try:
        counted = await asyncio.to_thread(plan_holding, known, plan)
    except ConfigError as error:
        raise explain_unplannable(known[-1].number, history.used, error) from None
    return Effective(counted, _number(known), _differing(known, plan))


async def read_differing(plan: Plan, client: Client) -> tuple[int, tuple[str, ...]]:
    """Return the number of the settings in effect, and the settings of the file that are not.

    Args:
        plan: of the file.
        client: of its broker.

    Raises:
        BrokerError: the cluster does not answer, or refuses.
    """
    known = await read_accepted(plan, client)
    return _number(known), _differing(known, plan)


def _number(known: Sequence[Posted]) -> int:
    return known[-1].number if known else 0


def _differing(known: Sequence[Posted], plan: Plan) -> tuple[str, ...]:
    return tuple(setting.path for setting in differences(known[-1].sections, plan.raw)) if known else ()


def changes_made(history: SettingsHistory) -> list[list[Setting]]:
    """Return the changes that each of the settings made, or would have made, to those in effect before them."""
    found: list[list[Setting]] = []
    former: Posted | None = None
    for posted in history.posted:
        found.append([] if former is None else differences(former.sections, posted.sections))
        if history.state(posted.number) != "refused":
            former = posted
    return found


def history_json(application: str, history: SettingsHistory) -> dict[str, Any]:
    """Return all settings of an application, and the editions of its views, for machines."""
    return {
        "application": application,
        "settings": [
            plain(posted)
            | {
                "changed": plain(made),
                "state": history.state(posted.number),
                "refused_because": history.reason(posted.number),
            }
            for posted, made in zip(history.posted, changes_made(history), strict=True)
        ],
        "editions": [plain(one) | {"never_holds": one.never_holds} for one in editions(history.accepted)],
    }


async def read_settings(plan: Plan, client: Client) -> SettingsHistory:
    """Read all settings of an application; at least one was accepted.

    Args:
        plan: of a file of it.
        client: of its broker.

    Raises:
        BrokerError: the application was never started, or the cluster does not answer.
    """
    return check_started(await read_history(plan, client), plan)


def check_started(history: SettingsHistory, plan: Plan) -> SettingsHistory:
    """Return a history in which at least one of the settings was accepted.

    Raises:
        BrokerError: none was.
    """
    if not history.accepted:
        raise BrokerError(
            f"application {plan.id} was never started at {plan.broker.address}. "
            "Start a worker first: `stream-dp worker FILE`"
        )
    return history


def plannable_accepted(history: SettingsHistory, local: Plan) -> list[Posted]:
    """Return the accepted settings without those that cannot be planned here and that no worker has used.

    A worker takes these back when other settings are posted (`stream_dp.runtime.verdicts.judge`).

    Args:
        history: history of the application's settings.
        local: the plan of a file of the application.
    """
    known = history.accepted
    while known and known[-1].number > history.used:
        try:
            plan_settings(known, local)
        except ConfigError:
            known = known[:-1]
        else:
            break
    return known


def plannable(history: SettingsHistory, local: Plan) -> list[Posted]:
    """Return the settings that the next ones follow: the accepted ones, and the waiting ones that would be accepted.

    Args:
        history: history of the application's settings.
        local: the plan of a file of the application.

    Raises:
        ConfigError: no settings can be planned here.
    """
    known = plannable_accepted(history, local)
    if not known:
        raise ConfigError(
            "no settings can be planned here. Start a worker: it takes them back and begins with its file",
            f"settings {history.accepted[-1].number}",
        )
    for posted in history.waiting:
        with suppress(ConfigError):
            plan_settings([*known, posted], local)
            known = [*known, posted]
    return known


def as_file(file: Path, history: SettingsHistory, number: int) -> str:
    """Return settings as the text of a file. The sections of each machine are those of a file, with its variables.

    Args:
        file: of the application.
        history: of the application.
        number: of the settings.

    Raises:
        ConfigError: no settings have this number.
    """
    if number > len(history.posted):
        raise ConfigError(f"settings {number} do not exist; the newest settings are {len(history.posted)}", "--show")
    posted = history.posted[number - 1]
    own, _ = parse_yaml(read_text(file))
    data: dict[str, Data] = {key: value for key, value in own.items() if key not in ENTRIES}
    note = f", {' '.join(posted.note.split())}" if posted.note else ""
    head = f"# settings {posted.number}, posted {moment(posted.at_ms)}{note}\n"
    return head + write_yaml({**data, **{name: escape(entries) for name, entries in posted.sections.items()}})
