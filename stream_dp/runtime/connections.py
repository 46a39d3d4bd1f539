"""The Kafka client's connections, made to end when they should: it makes ours once this module is imported."""

from __future__ import annotations

from typing import Any

from aiokafka import conn
from aiokafka.errors import SaslAuthenticationFailed


class Connection(conn.AIOKafkaConnection):
    """A connection that does not wait for a broker to say goodbye.

    Over TLS that takes as long as the broker holds back its last answer, and half a minute where that answer comes
    after the goodbye. Nothing is lost: whoever closes has had the answers that matter.
    """

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


conn.AIOKafkaConnection = Connection
conn.AIOKafkaProtocol = Protocol
conn.OAuthAuthenticator = TokenLogin
