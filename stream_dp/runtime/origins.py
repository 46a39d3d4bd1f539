"""When the views of an application began: the first start of each stands in the control topic, for ever.

A view is a name and what is asked under it (its fingerprint): changed under the same name, it is another question, and
does not take the place of the former one as long as that has a beginning here.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from stream_dp.config.plan import Plan
from stream_dp.errors import Fault
from stream_dp.runtime.client import Client, Outgoing
from stream_dp.runtime.topics import Topics

ORIGIN = b"origin/"
"""Control records under such a key are origins; of several of one view the first in the log holds for every worker."""


class Origin(msgspec.Struct, tag_field="type", tag="origin"):
    """That a view began: its name, its fingerprint in hexadecimal, and the start of its first window in ms."""

    view: str
    fingerprint: str
    start_ms: int


@dataclass(frozen=True, slots=True)
class Origins:
    """What the control topic tells of the beginnings of an application's views.

    Attributes:
        begun: by view that was started before, the start of its first window, in ms.
        changed: by view, what is wrong with those that began as other questions under their names, and not as these.
    """

    begun: Mapping[str, int]
    changed: Mapping[str, Fault]


async def read_origins(plan: Plan, client: Client) -> Origins:
    """Read when the views of an application began.

    Args:
        plan: the application. Its control topic need not be there yet: none of its views has begun then.
        client: a client of its broker.

    Raises:
        BrokerError: the cluster does not answer.
    """
    control = Topics.of(plan).control
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    """By view and fingerprint, where the first window begins."""
    if await client.describe([control]):
        async for record in client.follow([control], until_end=True):
            if record.key is not None and record.key.startswith(ORIGIN) and record.value is not None:
                origin = msgspec.json.decode(record.value, type=Origin)
                found[origin.view].setdefault(origin.fingerprint, origin.start_ms)
    own = {name: view.fingerprint.hex() for name, view in plan.views.items()}
    begun = {name: found[name][asked] for name, asked in own.items() if asked in found[name]}
    changed = {
        name: Fault(
            f"views.{name}",
            "its source, item field, window, bounds, kind, ladder or thresholds were changed since it first began; "
            "give the changed view a new name, or set it back",
        )
        for name, asked in own.items()
        if found[name] and asked not in found[name]
    }
    return Origins(begun, changed)


async def begin(plan: Plan, client: Client, now_ms: int, known: Mapping[str, int]) -> Mapping[str, int]:
    """Record the first start of every view that has not begun; the control topic is there.

    Safe to run by any number of workers at once: all of them get the same.

    Args:
        plan: the application.
        client: a client of its broker.
        now_ms: the wall clock; a view without a configured start begins with the window that it is in.
        known: those that have begun.

    Returns:
        The start of the first window of every view, in ms.

    Raises:
        BrokerError: the cluster does not answer.
    """
    records = []
    for view in plan.views.values():
        if view.name not in known:
            window = view.window
            start = window.charged(now_ms).start_ms if window.first_ms is None else window.first_ms
            key = ORIGIN + f"{view.name}/{uuid.uuid4()}".encode()
            value = msgspec.json.encode(Origin(view.name, view.fingerprint.hex(), start))
            records.append(Outgoing(Topics.of(plan).control, 0, key, value))
    if not records:
        return known
    await client.publish(records)
    return (await read_origins(plan, client)).begun
