"""Parameters of every connection to the cluster of a plan: addresses, TLS, login, client id."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import SaslAuthenticationFailed

from stream_dp.config.access import Broker, Registry, Secret, Tls
from stream_dp.errors import ConfigError, Fault
from stream_dp.runtime.kafka import connections, unpacking  # noqa: F401  (connections are made with these options)
from stream_dp.text_files import read_fault, read_text

log = logging.getLogger("stream_dp.worker")

READ_COMMITTED = "read_committed"
"""Isolation level of a consumer that reads no records of open or aborted transactions."""
READ_UNCOMMITTED = "read_uncommitted"
"""Isolation level of a consumer that reads every record, and gets high watermarks as the ends of partitions."""
OPEN_TO_OTHERS = 0o007
"""Of a file's mode: what everybody else on the machine may do with it."""


class TokenFile(AbstractTokenProvider):
    """A token that another program keeps fresh in a file, which is read again for every connection."""

    def __init__(self, token: Secret) -> None:
        """Set up the provider.

        Args:
            token: where it is.
        """
        self._token = token

    async def token(self) -> str:
        """The token as it is now.

        Raises:
            SaslAuthenticationFailed: it cannot be read; what the client takes from here as a connection that failed.
        """
        try:
            return read_secret(self._token)
        except ConfigError as error:
            raise SaslAuthenticationFailed from error


@dataclass(frozen=True)
class Cluster:
    """A cluster, its secrets read. Neither it nor a client that is made with `options` shows them.

    Attributes:
        broker: the cluster as a plan has it.
        options: what aiokafka's clients take: addresses, client id, TLS and login.
    """

    broker: Broker
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        """Its address alone."""
        return f"Cluster({self.broker.url!r})"

    @property
    def address(self) -> str:
        """The bootstrap address: "host:port[,host:port...]"."""
        return self.broker.address

    def consumer(self, *, isolation_level: str = READ_COMMITTED, **options: Any) -> AIOKafkaConsumer:
        """Return a new consumer without a group.

        Args:
            isolation_level: `READ_COMMITTED` for every consumer that reads records.
            options: further arguments of `AIOKafkaConsumer`.
        """
        return AIOKafkaConsumer(
            **self.options, group_id=None, enable_auto_commit=False, isolation_level=isolation_level, **options
        )

    @classmethod
    def of(cls, broker: Broker) -> Cluster:
        """Read the certificates and secrets that a plan names.

        Args:
            broker: the cluster of a plan, not the embedded log.

        Raises:
            ConfigError: some cannot be read, or are none; `faults` has everything.
        """
        faults: list[Fault] = []
        context = tls_context("broker", broker.tls, faults)
        options: dict[str, Any] = {"bootstrap_servers": broker.address, "client_id": broker.client_id}
        options["security_protocol"] = ("SASL_" if broker.sasl else "") + ("SSL" if broker.tls else "PLAINTEXT")
        options["ssl_context"] = context
        if broker.sasl is not None:
            options["sasl_mechanism"] = broker.sasl.mechanism.upper()
            with _faults_into(faults):
                secret = read_secret(broker.sasl.secret)
                if broker.sasl.username:
                    options |= {"sasl_plain_username": broker.sasl.username, "sasl_plain_password": secret}
                else:
                    options["sasl_oauth_token_provider"] = TokenFile(broker.sasl.secret)
        if faults:
            raise ConfigError(faults)
        warn_of_open(open_secrets(broker))
        unpacking.install()
        return cls(broker, options)


def warn_of_open(warnings: Sequence[str]) -> None:
    """Say what is to be said of secrets, each once, however often a cluster is connected to."""
    for words in warnings:
        _warn(words)


@cache
def _warn(words: str) -> None:
    log.warning("%s", words)


def read_secret(secret: Secret, environ: Mapping[str, str] | None = None) -> str:
    """Return the text of a file or a variable, without a line break at its end.

    Args:
        secret: where it is.
        environ: the environment, by default the process's.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    try:
        if secret.file is None:
            found = (os.environ if environ is None else environ)[secret.env]
        else:
            found = read_text(secret.file).rstrip("\r\n")
    except KeyError:
        raise ConfigError(f"the environment variable {secret.env} is not set", secret.place) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{secret.file} {read_fault(error)}", secret.place) from None
    if not found:
        raise ConfigError(f"{secret.file or secret.env} is empty", secret.place)
    return found


def missing(server: Broker | Registry) -> list[Fault]:
    """Return the faults of certificates and secrets of a cluster or a registry on this machine."""
    if isinstance(server, Broker) and server.is_embedded:
        return []
    faults: list[Fault] = []
    tls_context(_whose(server), server.tls, faults)
    if (secret := _login(server)) is not None:
        with _faults_into(faults):
            read_secret(secret)
    return faults


def open_secrets(server: Broker | Registry) -> list[str]:
    """Return warnings about secrets that everybody on this machine can read."""
    tls, secret = server.tls, _login(server)
    files: dict[str, Path | None] = {}
    if secret is not None:
        files[secret.place] = secret.file
    if tls is not None:
        files |= {f"{_whose(server)}.tls.key": tls.key or tls.certificate}
        if tls.key_password is not None:
            files[tls.key_password.place] = tls.key_password.file
    return [
        f"{place}: {file} can be read by everybody on this machine; `chmod 600` it"
        for place, file in files.items()
        if file is not None and file.exists() and file.stat().st_mode & OPEN_TO_OTHERS
    ]


def _login(server: Broker | Registry) -> Secret | None:
    if isinstance(server, Registry):
        return server.password
    return None if server.sasl is None else server.sasl.secret


def _whose(server: Broker | Registry) -> str:
    """Where it stands in the configuration."""
    return "registry" if isinstance(server, Registry) else "broker"


def tls_context(whose: str, tls: Tls | None, faults: list[Fault]) -> ssl.SSLContext | None:
    """Return the TLS context: a server's certificate has to be signed, and for the name that was requested.

    Args:
        whose: what holds `tls` in the configuration.
        tls: as a plan has it.
        faults: gets what cannot be used.
    """
    if tls is None:
        return None
    context = ssl.create_default_context() if tls.ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls.ca is not None:
        with _pem(f"{whose}.tls.ca", tls.ca, "holds no certificate in PEM", faults):
            context.load_verify_locations(tls.ca)
    if tls.certificate is not None:
        before = len(faults)
        password = ""  # an encrypted key without a password is refused, and nobody is asked
        if tls.key_password is not None:
            with _faults_into(faults):
                password = read_secret(tls.key_password)
        for place, file in ((f"{whose}.tls.certificate", tls.certificate), (f"{whose}.tls.key", tls.key)):
            if file is not None:
                with _pem(place, file, "", faults):
                    file.read_bytes()
        if len(faults) == before:
            holds = "holds" if tls.key is None else f"and {tls.key} hold"
            wrong = f"{holds} no certificate in PEM with its key, or the key's password is wrong or missing"
            with _pem(f"{whose}.tls.certificate", tls.certificate, wrong, faults):
                context.load_cert_chain(tls.certificate, tls.key, password)
    return context


@contextmanager
def _pem(place: str, file: Path, wrong: str, faults: list[Fault]) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        faults.append(Fault(place, f"{file} {wrong}"))
    except OSError as error:
        faults.append(Fault(place, f"cannot read {file}: {error.strerror}"))


@contextmanager
def _faults_into(faults: list[Fault]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        faults += error.faults
