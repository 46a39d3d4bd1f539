"""The reader: the newest releases of a view, from Kafka or from a gateway."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from stream_dp.client.from_gateway import GatewaySource
from stream_dp.client.from_kafka import KafkaSource
from stream_dp.client.sources import Item, Mark, Patience, Tombstone
from stream_dp.errors import Fault, ParameterError
from stream_dp.records.codec import AnyRecord
from stream_dp.records.history import History, Seen
from stream_dp.records.models import TimeRange
from stream_dp.windows.durations import parse_moment

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Expired:
    """A window that is no longer there: its retention is over. What was released of it was not wrong."""

    view: str
    audience: str
    window: TimeRange


@dataclass
class _Known:
    """The windows that were read, and what is yielded for an item."""

    yields_all: bool
    _history: History = field(default_factory=History)
    _is_full_read: bool = True
    _former: Mapping[tuple[int, int], Seen] = field(default_factory=dict)

    def take(self, item: Item) -> Iterator[AnyRecord | Expired]:
        """Return what is yielded for an item. A full read begins a new history: a new topic begins with revision 1."""
        if item is Mark.BEGIN:
            self._former, self._history, self._is_full_read = self._windows, History(), True
        elif item is Mark.END:
            yield from (_expired(seen) for window, seen in self._former.items() if window not in self._windows)
            if not self.yields_all:
                for _, seen in sorted(self._windows.items(), key=lambda entry: entry[0]):
                    yield from (record for record in (seen.release, seen.refusal) if record is not None)
            self._is_full_read = False
        elif isinstance(item, Tombstone):
            gone = [seen for names in self._history.seen for seen in self._history.drop(*names, *item)]
            yield from map(_expired, gone if self._is_yielding else ())
        elif not isinstance(item, Mark) and self._history.take(item) and self._history.newest and self._is_yielding:
            yield self._history.newest

    @property
    def _is_yielding(self) -> bool:
        return self.yields_all or not self._is_full_read

    @property
    def _windows(self) -> Mapping[tuple[int, int], Seen]:
        return next(iter(self._history.seen.values()), {})


def _expired(seen: Seen) -> Expired:
    record = seen.release or seen.refusal
    assert record is not None  # noqa: S101 - a window is known by its records
    return Expired(record.view, record.audience, record.window)


@dataclass(frozen=True)
class Releases:
    """Releases of one view for one audience; read them with `async for`.

    First comes the newest release of every window, in order of time, and behind it its refusal if that is newer; then
    every release and refusal as it is published. A release is whole: its parts are joined. To end, leave the loop; each
    loop begins anew.

    Attributes:
        address: "kafka://host:port[,host:port...]"; or "https://..." of a gateway.
        view: name of the view.
        audience: name of the audience; of a gateway it may be left out: it is that of the token.
        application: id of the application, which its topics begin with; for Kafka alone.
        since: only windows that begin then or later: a datetime with a time zone, RFC 3339 text, or a date.
        follow: wait for more; False: end when everything that is there has been read.
        revisions: "newest"; or "all": former ones, too, as far as they are there. A gateway has one for each window.
        expired: yield `Expired` for a window that was yielded and is no longer there.
        token: a reader's token, for a gateway.
        kafka: further arguments of `aiokafka.AIOKafkaConsumer`, such as `security_protocol` and `ssl_context`.
        wait_seconds: time that it waits for an answer, until everything that is there has been read. Later
            interruptions are waited out, however long.

    Raises:
        ParameterError: a parameter is wrong.
    """

    address: str
    _: KW_ONLY
    view: str
    audience: str = ""
    application: str = ""
    since: datetime | str | None = None
    follow: bool = True
    revisions: Literal["newest", "all"] = "newest"
    expired: bool = False
    token: str | None = field(default=None, repr=False)
    kafka: Mapping[str, Any] = field(default_factory=dict, repr=False)
    wait_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Check the parameters."""
        if faults := list(self._faults()):
            raise ParameterError(faults)

    async def __aiter__(self) -> AsyncGenerator[AnyRecord | Expired, None]:
        """Read.

        Raises:
            AccessError: the token, the login or the rights do not allow it, or no longer.
            BrokerError: there is no such topic, or the request is refused.
            OutageError: nothing answers within `wait_seconds`.
            StateError: a record cannot be read, or is of a newer stream-dp.
        """
        patience, since_ms = Patience(self.wait_seconds), self._since_ms
        known = _Known(self.revisions == "all")
        async with aclosing(self._source(patience).items()) as items:
            async for item in items:
                if not isinstance(item, Mark | Tombstone) and since_ms is not None and item.window.start_ms < since_ms:
                    continue
                for found in known.take(item):
                    if self.expired or not isinstance(found, Expired):
                        yield found
                if item is Mark.END:
                    if not self.follow:
                        return
                    patience.seconds = None

    def _source(self, patience: Patience) -> KafkaSource | GatewaySource:
        if self._is_kafka:
            hosts = self.address.removeprefix("kafka://").rstrip("/")
            topic = f"{self.application}.releases.{self.view}.{self.audience}"
            return KafkaSource(hosts, topic, self.view, self.audience, self.kafka, patience)
        url = self.address.rstrip("/")
        return GatewaySource(url, self.view, self.audience, self.token, self._since_ms, self.revisions, patience)

    @property
    def _is_kafka(self) -> bool:
        return self.address.startswith("kafka://")

    @property
    def _since_ms(self) -> int | None:
        text = self.since.isoformat() if isinstance(self.since, datetime) else self.since
        return None if text is None else parse_moment(text)

    def _faults(self) -> Iterator[Fault]:
        url = urlsplit(self.address)
        if url.scheme not in ("kafka", "http", "https") or not url.netloc or "@" in url.netloc:
            yield Fault("address", 'write "kafka://host:port" or "https://host", without a password')
        names = {"view": self.view, "audience": self.audience, "application": self.application}
        for name, value in names.items():
            if (value or name == "view" or self._is_kafka) and not _NAME.fullmatch(value):
                yield Fault(name, f"{value!r} is no name" if value else "is required")
        if self.token is not None and (self._is_kafka or (url.scheme == "http" and url.hostname not in _LOOPBACK)):
            yield Fault("token", "is for a gateway, and only sent over https://")
        try:
            _ = self._since_ms
        except ValueError as error:
            yield Fault("since", str(error))
