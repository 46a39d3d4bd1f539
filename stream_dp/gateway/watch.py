"""What the console knows of an application: read again when its topics change, and told to the console's streams."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.config.plan import Plan
from stream_dp.control.acceptance import SettingsHistory
from stream_dp.control.editions import Posted, plan_holding, plan_of, presented
from stream_dp.control.grant_records import Order
from stream_dp.errors import BrokerError, OutageError, StreamDPError
from stream_dp.gateway.boards import compact
from stream_dp.gateway.reader import Connect
from stream_dp.gateway.streams import Stream, frame
from stream_dp.operations import plain
from stream_dp.operations.budgets import as_json, read_ledgers
from stream_dp.operations.grants import grant_json, read_grants
from stream_dp.operations.settings_changes import Basis, Draft, rollout
from stream_dp.operations.settings_history import history_json, plannable, read_settings
from stream_dp.operations.status import read_status
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.kafka.client import Client
from stream_dp.runtime.kafka.topics import Topics

LOOK_SECONDS = 1.0
"""Time between two questions where the topics end."""
STATUS_SECONDS = 10.0
"""Least time between two looks at the reports of workers, which report as often."""
LEDGERS_SECONDS = 5.0
EASE = 10
"""Reading the same again takes at most one part in so many of the time."""
LOG = logging.getLogger("stream_dp.gateway")
EVENTS = {"status": "status", "ledgers": "account", "settings": "settings", "grants": "grant"}
"""What is watched, and the event that says that it has changed."""


class Observed(NamedTuple):
    """Something that was read: its position, a tag that changes with every byte of it, and it as JSON."""

    position: str
    tag: str
    body: bytes


@dataclass
class ApplicationWatch:
    """Reads what operators may see, as long as it runs; waits where there is no broker.

    Attributes:
        plan: of the file.
        connect: opens a client.
        changed: is told what has changed.
        look_seconds: see `LOOK_SECONDS`.
        status_seconds: see `STATUS_SECONDS`.
        seen: by name, what was read.
        basis: what changes of settings are worked out from; None until it is known.
        rollout: how far workers are with the settings that were posted last here.
        silent: whether nothing can be read now.
        fault: why.
    """

    plan: Plan
    connect: Connect
    changed: Callable[[str], None]
    look_seconds: float = LOOK_SECONDS
    status_seconds: float = STATUS_SECONDS
    seen: dict[str, Observed] = field(default_factory=dict)
    basis: Basis | None = None
    rollout: dict[str, Any] | None = None
    silent: bool = False
    fault: str = ""
    orders: Sequence[Order] = ()
    _held: tuple[Sequence[Posted], int, Plan, Plan] | None = None
    _history: SettingsHistory = field(default_factory=SettingsHistory)
    _again: asyncio.Event = field(default_factory=asyncio.Event)
    _due: dict[str, float] = field(default_factory=dict)
    _ends: dict[str, str] = field(default_factory=dict)
    _following: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Read until this is cancelled."""
        try:
            while True:
                try:
                    async with self.connect() as client:
                        while True:
                            await self.look(client)
                            self.silent = False
                            with suppress(TimeoutError):
                                await asyncio.wait_for(self._again.wait(), self.look_seconds)
                            self._again.clear()
                except (StreamDPError, KafkaError, OSError, TimeoutError) as error:
                    if not self.silent:
                        LOG.warning("the application cannot be read now: %s", error)
                    self.silent, self.fault = True, str(error)
                await asyncio.sleep(self.look_seconds)
        finally:
            if self._following is not None:
                self._following.cancel()

    def look_again(self) -> None:
        """Read at once what may have changed."""
        self._again.set()

    async def look(self, client: Client) -> None:
        """Read what has changed."""
        topics = Topics.of(self.plan)
        named = {"settings": topics.control, "ledgers": topics.accounts, "status": topics.status}
        states = await client.describe(list(named.values()))
        places = [TopicPartition(name, at) for name, state in states.items() for at in range(state.partitions)]
        ends = await client.ends(places)
        at = dict.fromkeys(named, "00000000-0")
        for name, topic in named.items():
            if topic in states:
                end = sum(end for place, end in ends.items() if place.topic == topic)
                at[name] = f"{states[topic].id[:8]}-{end}"
        is_changed = self._ends.get("settings") != at["settings"]
        if is_changed:
            await self._read_control(client)
            self._due = {}
        if self._due.get("status", 0) <= time.monotonic():
            topic = at["status"].partition("-")[0]
            await self._timed("status", self.status_seconds, lambda: self._read_status(client, topic))
        if is_changed:  # told when changes are worked out from them, not before
            if self._held is not None:
                self._see("settings", at["settings"], history_json(self.plan.id, self._history))
            self._ends = {"settings": at["settings"]}
        if self._ends.get("ledgers") != at["ledgers"] and self._due.get("ledgers", 0) <= time.monotonic():
            await self._timed("ledgers", LEDGERS_SECONDS, lambda: self._read_ledgers(client, at["ledgers"]))
            self._ends["ledgers"] = at["ledgers"]
        if self._held is not None:
            self._see_grants(at["settings"])

    async def _timed(self, name: str, every_s: float, read: Callable[[], Awaitable[None]]) -> None:
        began = time.monotonic()
        await read()
        self._due[name] = began + max(every_s, EASE * (time.monotonic() - began))

    async def _read_control(self, client: Client) -> None:
        """Read settings and grants; of an application that was never started there are none."""
        local = self.plan
        try:
            history = await read_settings(local, client)
        except OutageError:
            raise
        except BrokerError:
            self._held = self.basis = None
            for name in ("settings", "grants"):
                self.seen.pop(name, None)
            return
        known = await asyncio.to_thread(plannable, history, local)
        before, holding = await asyncio.to_thread(lambda: (plan_of(known[-1], local), plan_holding(known, local)))
        self.orders = await read_grants(holding, client)
        self._held = known, history.next_number, before, holding
        self._history = history

    async def _read_status(self, client: Client, topic: str) -> None:
        found = await read_status(self.plan, client)
        if self._held is not None:
            self.basis = Basis(self.plan, *self._held, found.reports)
        self._see("status", f"{topic}-{found.reports.now_ms}", found.as_json())

    async def _read_ledgers(self, client: Client, position: str) -> None:
        shown = self.plan if self._held is None else presented(self._held[3])
        try:
            found = list((await read_ledgers(shown, client)).values())
        except OutageError:
            raise
        except BrokerError:
            found = []  # nothing was charged yet
        self._see("ledgers", position, {"ledgers": [as_json(shown, statement) for statement in found]})

    def _see_grants(self, position: str) -> None:
        now_ms = wall_clock_ms()
        self._see("grants", position, {"grants": [grant_json(order, now_ms) for order in self.orders]})

    def _see(self, name: str, position: str, value: object) -> None:
        body = compact(value)
        tag = f"{position}-{hashlib.sha256(body).hexdigest()[:8]}"
        if name not in self.seen or self.seen[name].tag != tag:
            self.seen[name] = Observed(position, tag, body)
            self.changed(name)

    def follow(self, change: Draft) -> None:
        """Tell the streams how far workers are with a change that was posted; they stop hearing of an earlier one."""
        if self._following is not None:
            self._following.cancel()
        self._following = asyncio.create_task(self._follow(change))
        self.look_again()

    async def _follow(self, change: Draft) -> None:
        told = {"settings": change.posted.number, "by_all": False, "over": False, "workers": None}
        self._tell(told)
        with suppress(StreamDPError, KafkaError, OSError, TimeoutError):
            async with self.connect() as client:
                async for found in rollout(change, client):
                    told |= {"by_all": found.by_all, "workers": plain(found)}
                    self._tell(told)
        self._tell({**told, "over": True})

    def _tell(self, progress: dict[str, Any]) -> None:
        self.rollout = progress
        self.changed("settings")

    def event(self, name: str) -> bytes:
        """Return the data of the event that something has changed."""
        seen = self.seen[name]
        head = b'{"position":"%s","href":"/v1/%s","' % (seen.position.encode(), name.encode())
        if name == "status":
            return head + b'status":' + seen.body + b"}"
        if name == "settings":
            return head + b'settings":%d,"rollout":%s}' % (self._number, compact(self.rollout))
        return head[:-2] + b"}"

    @property
    def _number(self) -> int:
        return 0 if self.basis is None else self.basis.number


@dataclass(eq=False)
class OperatorStream(Stream):
    """One operator's stream: what has changed, each thing once however often it did since."""

    watch: ApplicationWatch | None = None

    def begin(self) -> None:
        """Note what is new since the positions that the client comes back with; without any, only what comes."""
        for name, one in ({} if self.watch is None else self.watch.seen).items():
            event = EVENTS[name]
            if event in self.after:
                topic, offset = self.after[event]
                self.positions[event] = f"{topic}-{offset}"
            elif not self.after:
                self.positions[event] = one.position
            if self.positions.get(event) != one.position:
                self.change(name)

    def change(self, name: str) -> None:
        """Note that something has changed."""
        self._waiting[name, _NO_WINDOW] = 0
        self._awake.set()

    def _next(self) -> bytes:
        name, _ = place = next(iter(self._waiting))
        self._waiting.pop(place)
        if self.watch is None or name not in self.watch.seen:
            return b": gone\n\n"
        self.positions[EVENTS[name]] = self.watch.seen[name].position
        return frame(EVENTS[name], self.watch.event(name), self._id())


_NO_WINDOW = (0, 0)
