"""The Kafka client's connections, made to end when they should: it makes ours once this module is imported.

And no request of ours makes a topic: a cluster may create one that is asked for, with settings of its own.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from aiokafka import client, conn
from aiokafka.admin import client as admin
from aiokafka.errors import KafkaError, RequestTimedOutError, SaslAuthenticationFailed
from aiokafka.protocol.metadata import MetadataRequest

CONNECT_SECONDS = 4.0
"""Time that a broker may take to let a connection in, login included."""
AGAIN_SECONDS = 5.0
"""Time that one that did not is left alone."""
RETRY_SECONDS = 1.0, 2.0, 4.0, 8.0
"""Time that it has the next times: others wait behind it, and it may only be slow."""
PATIENCE_SECONDS = 2.0
"""Time until a missing answer makes the client probe the broker with another connection."""


@dataclass(slots=True)
class _Broker:
    """Shared knowledge of an event loop's connections about a broker."""

    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    answered: float = -math.inf
    silent: float = -math.inf
    """When it was last found to let nobody in; later than that it did."""
    failures: int = 0
    """Number of times in a row that it let nobody in."""


_BROKERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, int], _Broker]] = WeakKeyDictionary()


class Connection(conn.AIOKafkaConnection):
    """A connection that does not wait for a broker that is frozen, nor for one to say goodbye.

    A frozen broker takes requests and says nothing; the others give it up after 9 s, and another one leads. The client
    would wait for 40 s or longer, with its requests for others behind; and a request of a group may take long where all
    is well. So what takes long is waited for as long as the broker lets somebody else in.

    Over TLS a goodbye takes as long as the broker holds back its last answer, and half a minute where that answer comes
    after the goodbye. Nothing is lost: whoever closes has had the answers that matter.
    """

    _is_in = False
    """True if the broker has let it in; before, there is only the time that a connection may take."""

    async def connect(self) -> Any:
        """See `AIOKafkaConnection`.

        Raises:
            TimeoutError: the broker lets nobody in, or did not a moment ago.
        """
        broker, now = self._broker, time.monotonic()
        if now - broker.silent < AGAIN_SECONDS:
            raise TimeoutError(f"{self.host}:{self.port} does not answer")
        within_s = (CONNECT_SECONDS, *RETRY_SECONDS)[min(broker.failures, len(RETRY_SECONDS))]
        try:
            async with asyncio.timeout(min(self._request_timeout, within_s)):
                streams = await super().connect()
        except TimeoutError:
            broker.silent, broker.failures = time.monotonic(), broker.failures + 1
            raise
        self._is_in = True
        broker.answered, broker.silent, broker.failures = time.monotonic(), -math.inf, 0
        return streams

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """See `AIOKafkaConnection`; returns what gives the answer."""
        answer = super().send(request, expect_response)
        return self._answered(answer) if expect_response and self._is_in else answer

    async def _answered(self, answer: Coroutine[Any, Any, Any]) -> Any:
        waiting = asyncio.ensure_future(answer)
        try:
            within_s = PATIENCE_SECONDS
            while not (await asyncio.wait([waiting], timeout=within_s))[0]:
                await self._look()
                within_s = 2 * PATIENCE_SECONDS
            return waiting.result()
        except TimeoutError as error:  # aiokafka would look for the connection, which may have a successor by now
            self.close(conn.CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error
        finally:
            waiting.cancel()

    async def _look(self) -> None:
        """Look whether the broker lives; for all who wait for it at once. Who refuses a login, or hangs up, does.

        Raises:
            TimeoutError: it says nothing, or nobody is there.
        """
        broker = self._broker
        async with broker.looking:
            if time.monotonic() - broker.answered < PATIENCE_SECONDS:
                return
            other = type(self)(
                self._host,
                self._port,
                client_id=self._client_id,
                ssl_context=self._ssl_context,
                security_protocol=self._security_protocol,
                sasl_mechanism=self._sasl_mechanism,
                sasl_plain_username=self._sasl_plain_username,
                sasl_plain_password=self._sasl_plain_password,
                sasl_oauth_token_provider=self._sasl_oauth_token_provider,
            )
            try:
                await other.connect()
            except (ConnectionResetError, KafkaError):
                broker.answered = time.monotonic()
            except OSError as error:  # TimeoutError is one
                raise TimeoutError(f"{self.host}:{self.port} does not answer") from error
            finally:
                other.close()

    @property
    def _broker(self) -> _Broker:
        return _BROKERS.setdefault(self._loop, {}).setdefault((self._host, self._port), _Broker())

    def close(self, reason: Any = None, exc: BaseException | None = None) -> Any:
        """See `AIOKafkaConnection`; returns a future of the end."""
        transport = self._writer.transport if self._writer is not None else None
        closed = super().close(reason, exc)
        if transport is not None and self._ssl_context is not None:
            transport.abort()
        return closed


class Protocol(conn.AIOKafkaProtocol):
    """The end of a connection, of which its user knows already: nobody is told again when it is forgotten."""

    def connection_lost(self, exc: Exception | None) -> None:
        """See `StreamReaderProtocol`."""
        super().connection_lost(exc)
        if self._closed.done() and not self._closed.cancelled():
            self._closed.exception()


class TokenLogin(conn.OAuthAuthenticator):
    """A login with a token that knows a refusal: the client's own takes the broker's reason for its consent."""

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """See `OAuthAuthenticator`.

        Raises:
            SaslAuthenticationFailed: the broker refuses the token.
        """
        if self._token_sent and payload:
            raise SaslAuthenticationFailed
        taken: tuple[bytes, bool] | None = await super().step(payload)
        return taken


class Metadata(MetadataRequest):
    """A query about topics that creates none."""

    def __init__(self, topics: list[str] | None = None, allow_auto_topic_creation: bool | None = None) -> None:
        """See `MetadataRequest`; topics are never created, whatever is said here."""
        del allow_auto_topic_creation
        super().__init__(topics, allow_auto_topic_creation=False)


client.MetadataRequest = Metadata
admin.MetadataRequest = Metadata
conn.AIOKafkaConnection = Connection
conn.AIOKafkaProtocol = Protocol
conn.OAuthAuthenticator = TokenLogin
