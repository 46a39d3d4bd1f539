"""A broker that does not answer is waited for: said once when it falls silent, once when it is back."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from aiokafka import errors
from aiokafka.conn import AIOKafkaConnection, collect_hosts, create_conn
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.protocol.admin import SaslHandShakeRequest
from aiokafka.protocol.metadata import MetadataRequest

from stream_dp.errors import AccessError, BrokerError, ConfigError, Fault, OutageError, StreamDPError
from stream_dp.runtime.kafka.cluster import Cluster

PROBE_SECONDS = 5.0
_AUTHORIZATION = {
    errors.TopicAuthorizationFailedError: "topic",
    errors.GroupAuthorizationFailedError: "group",
    errors.TransactionalIdAuthorizationFailed: "transactional id",
    errors.ClusterAuthorizationFailedError: "",
}
"""Right that an account lacks, by the error; the cluster refuses a producer that may write to no topic at all."""


def not_allowed(address: str, error: BaseException) -> AccessError | None:
    """The error of an account that lacks a right, None if an error does not say so.

    Args:
        address: of the cluster.
        error: what a client raised; it may have hidden the broker's answer behind another error.
    """
    for one in _causes(error):
        for kind in _AUTHORIZATION:
            if isinstance(one, kind):
                return lacks_right(address, kind, _named(one))
            if kind.__name__ in str(one):
                return lacks_right(address, kind)
    return None


def lacks_right(address: str, kind: type[BaseException], name: str = "") -> AccessError | None:
    """The same for the code of an answer, about something with a name where that is known."""
    what = _AUTHORIZATION.get(kind)
    if what is None:
        return None
    use = f"use {what} {name}" if name else f"use a {what} that it needs"
    remedy = "`stream-dp acl FILE` prints the rights that are needed"
    return AccessError(
        f"the cluster at {address} does not let this account {use if what else 'write to any topic'}; {remedy}"
    )


async def diagnose(cluster: Cluster) -> ConfigError | None:
    """Why the cluster lets nobody in with the credentials that there are; None if it just does not answer, or does.

    Args:
        cluster: how it is reached.
    """
    hosts = collect_hosts(cluster.address, randomize=False)
    found = await asyncio.gather(*(_refusal(cluster, host, port) for host, port, _ in hosts))
    refused = next((one for one in found if isinstance(one, Fault)), None)
    return None if refused is None or True in found else ConfigError([refused])


async def _refusal(cluster: Cluster, host: str, port: int) -> Fault | bool:
    """Why one broker refuses; else whether it lets us in."""
    options = {name: value for name, value in cluster.options.items() if name != "bootstrap_servers"}
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            connection = await create_conn(host, port, **options)
            try:
                await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (errors.KafkaError, OSError, EOFError) as error:
        return await _explained(cluster, host, port, error) or False
    return True


async def explain_silence(cluster: Cluster) -> str:
    """Return why a cluster cannot be reached although it refused no one, and what to do; empty if unknown.

    A broker answers the first request at any of its addresses, and advertises the address for later requests. If that
    is a name in another network, such as a container's, later requests fail, and aiokafka reports only that there was
    no answer.

    Args:
        cluster: settings of the connection to the cluster.
    """
    hosts = [(host, port) for host, port, _ in collect_hosts(cluster.address, randomize=False)]
    failures = await asyncio.gather(*(_connection_failure(host, port) for host, port in hosts))
    unresolved = [host for (host, _), failure in zip(hosts, failures, strict=True) if failure == UNRESOLVED]
    if len(unresolved) == len(hosts):
        names = ", ".join(dict.fromkeys(unresolved))
        return f"this machine cannot resolve {names}. Correct `broker`, or the name resolution of this machine"
    for (host, port), failure in zip(hosts, failures, strict=True):
        if not failure:
            return await _advertised_failure(cluster, host, port)
    return ""


async def _advertised_failure(cluster: Cluster, host: str, port: int) -> str:
    """Return which address that a broker advertises cannot be reached, and the remedy; empty if all can."""
    options = {name: value for name, value in cluster.options.items() if name != "bootstrap_servers"}
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            connection = await create_conn(host, port, **options)
            try:
                answer = await connection.send(MetadataRequest([]))
            finally:
                connection.close()
    except (errors.KafkaError, OSError, EOFError):
        return ""
    advertised = [(str(broker[1]), int(broker[2])) for broker in answer.brokers]
    failures = await asyncio.gather(*(_connection_failure(*address) for address in advertised))
    remedy = "In the settings of the broker, set advertised.listeners to an address that clients can reach"
    if not all(failures):  # other brokers advertise addresses that work
        remedy = "That broker is down, or its advertised.listeners is not an address that clients can reach"
    for (other, other_port), failure in zip(advertised, failures, strict=True):
        if failure:
            return (
                f"the broker at {host}:{port} answers, but it advertises {other}:{other_port}, and this machine "
                f"{failure}. {remedy}"
            )
    return ""


UNRESOLVED = "cannot resolve that name"


async def _connection_failure(host: str, port: int) -> str:
    """Return why this machine cannot connect to an address; empty if it can."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (socket.gaierror, UnicodeError):  # UnicodeError: a label is empty or too long
        return UNRESOLVED
    except TimeoutError:
        return "gets no answer there"
    except OSError as error:
        return f"cannot connect to it: {error.strerror or error}"
    writer.transport.abort()
    return ""


async def _explained(cluster: Cluster, host: str, port: int, error: BaseException) -> Fault | None:
    at = f"the broker at {host}:{port}"
    for one in _causes(error):
        if isinstance(one, ConfigError):
            return one.faults[0]
        found = _of_tls(host, one) or _of_login(cluster, one)
        if found is not None:
            return Fault(f"broker.{found.path}".removesuffix("."), f"{at} {found.message}")
    return None if isinstance(error, ConnectionRefusedError | TimeoutError) else await _of_port(cluster, host, port, at)


async def _of_port(cluster: Cluster, host: str, port: int, at: str) -> Fault | None:
    """Return the protocol of a port, where it differs from ours; such a port closes the connection in silence."""
    broker = cluster.broker
    if broker.tls is None and await _speaks_tls(host, port):
        return Fault("broker.tls", f"{at} speaks TLS; write `tls: true`, or name the CA that signed its certificate")
    if broker.tls is not None and await _mechanisms(host, port, security_protocol="PLAINTEXT") is not None:
        return Fault("broker.tls", f"{at} speaks no TLS on this port; use its port for TLS, or leave tls out")
    context = cluster.options["ssl_context"]
    takes = await _mechanisms(host, port, security_protocol="SSL" if context else "PLAINTEXT", ssl_context=context)
    if takes and broker.sasl is None:
        return Fault("broker.sasl", f"{at} wants a login; it takes {', '.join(takes)}")
    if takes and broker.sasl is not None and broker.sasl.mechanism not in takes:
        known = ", ".join(takes)
        return Fault("broker.sasl.mechanism", f"{at} does not take {broker.sasl.mechanism}; it takes {known}")
    return None


def _of_tls(host: str, error: BaseException) -> Fault | None:
    match error:
        case ssl.SSLCertVerificationError(verify_code=62 | 64):  # of another host name, or IP address
            return Fault("address", f"shows a certificate that is not for {host}; write a name that is in it")
        case ssl.SSLCertVerificationError():
            why = error.verify_message
            return Fault("tls.ca", f"shows a certificate that is not trusted ({why}); name the CA that signed it")
        case ssl.SSLError(reason=str(reason)) if "ALERT" in reason:
            words = reason.rpartition("ALERT_")[2].replace("_", " ").lower()
            return Fault("tls.certificate", f"refuses our certificate, or that we show none ({words})")
    return None


def _of_login(cluster: Cluster, error: BaseException) -> Fault | None:
    sasl = cluster.broker.sasl
    if sasl is None:
        return None
    match error:
        case errors.SaslAuthenticationFailed() if not sasl.username:
            return Fault("sasl.token", "refuses the token; it may be out of date, or for another cluster")
        case errors.SaslAuthenticationFailed():
            return Fault("sasl", f"refuses the login of {sasl.username}: the name or the password is wrong")
        case errors.IllegalSaslStateError():
            return Fault("sasl", "takes no login on this port; use the port that does, or leave sasl out")
    return None


async def _speaks_tls(host: str, port: int) -> bool:
    """Return True if a port answers a TLS handshake. Nothing is sent behind that, so it matters not whose it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    writer.transport.abort()
    return True


async def _mechanisms(host: str, port: int, **options: Any) -> list[str] | None:
    """The mechanisms of login that a port takes, none if it wants no login; None if nobody answers there like this."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            connection: AIOKafkaConnection = await create_conn(host, port, **options)
            try:
                answer = await connection.send(SaslHandShakeRequest(""))
            finally:
                connection.close()
    except (errors.KafkaError, OSError, EOFError):
        return None
    return sorted(name.lower() for name in answer.enabled_mechanisms)


def _named(error: BaseException) -> str:
    """Return the names that an authorization error is about."""
    given = error.args[0] if error.args else ""
    names = sorted(given) if isinstance(given, set | frozenset | list) else [str(given).rpartition(" ")[2]]
    return ", ".join(names)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


log = logging.getLogger("stream_dp.worker")

T = TypeVar("T")

NOTICED_SECONDS = 5
RETRY_SECONDS = 0.5


@contextmanager
def answering(address: str) -> Iterator[None]:
    """Tell a cluster that does not answer from one that refuses.

    Raises:
        OutageError: it did not answer, or not in a way that is final: asking again may help.
        AccessError: the account lacks a right.
        BrokerError: it refused for another reason.
    """
    try:
        yield
    except (KafkaError, OSError) as error:  # TimeoutError is an OSError
        if (refused := not_allowed(address, error)) is not None:
            raise refused from error
        kind, how = (OutageError, "does not answer") if is_silence(error) else (BrokerError, "refuses")
        raise kind(f"the cluster at {address} {how}: {str(error) or 'no answer in time'}") from error


def is_silence(error: KafkaError | OSError) -> bool:
    """Return True if an error means that the cluster did not answer, or not in a way that is final."""
    return isinstance(error, OSError | KafkaTimeoutError) or bool(error.retriable)


async def patiently(ask: Callable[[], Awaitable[T]], explain: Callable[[], Awaitable[str]] | None = None) -> T:
    """Repeat a query of the broker until there is an answer, and return it.

    Args:
        ask: the query.
        explain: returns why there is no answer; logged once if the answer takes unusually long.
    """
    explaining = None if explain is None else asyncio.create_task(_explain_later(explain))
    try:
        while True:
            with suppress(OutageError):
                return await ask()
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        if explaining is not None:
            explaining.cancel()


async def _explain_later(explain: Callable[[], Awaitable[str]]) -> None:
    """Log why the broker does not answer, unless it answers in the meantime.

    A query may wait forever: the producer of aiokafka 0.14.0 looks up its coordinator again and again.
    """
    await asyncio.sleep(NOTICED_SECONDS)
    with suppress(StreamDPError):  # the query itself raises errors about certificates
        if why := await explain():
            log.warning("%s", why)


class Outage:
    """Outage of the broker, as the parts of a worker that wait for it know it together.

    They never give up: what is waited for arrives, or the worker is told to stop.
    """

    def __init__(self, address: str) -> None:
        """Set up the outage of a cluster that answers.

        Args:
            address: how the cluster is called in the log.
        """
        self.address = address
        self._silent = 0
        """How many wait for longer than is usual."""
        self._since: float | None = None
        self._over = -math.inf

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Around what the broker has to answer.

        Seconds in which the process stood still do not count: then it was not the broker that kept silent.
        """
        loop, is_silent = asyncio.get_running_loop(), False
        next_second: asyncio.TimerHandle

        def second(left: int) -> None:
            nonlocal next_second, is_silent
            if left:
                next_second = loop.call_later(1, second, left - 1)
            else:
                is_silent = True
                self._fall_silent()

        next_second = loop.call_later(1, second, NOTICED_SECONDS - 1)
        try:
            yield
        finally:
            next_second.cancel()
            self._silent -= is_silent
        if self._since is not None and not self._silent:
            self._over = time.monotonic()
            seconds, self._since = self._over - self._since, None
            log.warning("the broker at %s answers again, after %.0f s; the worker goes on", self.address, seconds)

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a query, repeated while the broker does not answer.

        Raises:
            BrokerError: it refuses.
        """
        async with self.waiting():
            return await patiently(ask)

    @property
    def is_silent(self) -> bool:
        """True if the broker is waited for at present, and has been for longer than is usual."""
        return self._since is not None

    def was_within(self, seconds: float) -> bool:
        """Return True if the broker is silent, or was less than so many seconds ago."""
        return self._since is not None or time.monotonic() - self._over < seconds

    def _fall_silent(self) -> None:
        self._silent += 1
        if self._since is None:
            self._since = time.monotonic() - NOTICED_SECONDS
            log.warning("the broker at %s does not answer; the worker waits for it", self.address)
