"""Where a cluster is and how to get in: what may stand under `broker` and `registry`, and what a plan makes of it.

A secret never stands in the file. The file names where it is, a plan holds that name, and it is read when a connection
is made: so no plan, page or message can show it, and a file can be checked where its secrets are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, PlainValidator

from stream_dp.errors import Fault
from stream_dp.kinds.fields import Section, Text

MEMORY = "memory://"
_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#@\s]*)?")
_HOST_PORT = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")

Mechanism = Literal["scram-sha-512", "scram-sha-256", "plain", "oauthbearer"]
_SENT_AS_IT_IS = {"plain": "the password", "oauthbearer": "the token"}


@dataclass(frozen=True, slots=True)
class Secret:
    """Where a secret is: in a file or in a variable of the environment.

    Attributes:
        place: what names it in the configuration, for messages.
        file: its file; None where it is in the environment.
        env: the name of its variable; empty where it is in a file.
    """

    place: str
    file: Path | None = None
    env: str = ""


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates: those that a server is checked by, and the one that it checks.

    Attributes:
        ca: file of the certificates that may sign the server's; None: those that the system trusts.
        certificate: file of our own certificate; None: we have none.
        key: file of its key; None: it stands beside the certificate.
        key_password: what that key is encrypted with.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class Sasl:
    """A login: the mechanism, the user, and where the password or, without a user, the token is."""

    mechanism: Mechanism
    username: str
    secret: Secret


@dataclass(frozen=True, slots=True)
class Broker:
    """The cluster of a plan.

    Attributes:
        url: "kafka://host:port[,host:port...]" or "memory://".
        client_id: what connections are called in the logs and quotas of the cluster.
        tls: None: connections are in plaintext.
        sasl: None: there is no login.
    """

    url: str
    client_id: str = "stream-dp"
    tls: Tls | None = None
    sasl: Sasl | None = None

    def __str__(self) -> str:
        """The address as a file has it."""
        return self.url

    @property
    def is_embedded(self) -> bool:
        """True if it is the embedded log."""
        return self.url == MEMORY

    @property
    def address(self) -> str:
        """The bootstrap address: "host:port[,host:port...]"."""
        return self.url.removeprefix("kafka://")

    @property
    def access(self) -> str:
        """Security of the connection, in words; empty for plaintext without a login."""
        if self.is_embedded:
            return ""
        words = [] if self.tls is None else ["TLS with a certificate" if self.tls.certificate else "TLS"]
        if self.sasl is not None:
            words.append(" as ".join(filter(None, (self.sasl.mechanism, self.sasl.username))))
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Registry:
    """The schema registry of a plan.

    Attributes:
        url: "http://..." or "https://...", without a slash at its end; what its interface knows stands behind it.
        tls: None: over https, the certificates that the system trusts.
        username: empty: there is no login.
        password: of the login.
    """

    url: str
    tls: Tls | None = None
    username: str = ""
    password: Secret | None = None


def check_registry(value: str) -> str:
    """The address of a schema registry, without a slash at its end.

    Args:
        value: "http://host:port" or "https://host:port", with the path under which the interface of Confluent's stands.

    Raises:
        ValueError: none of these.
    """
    if "@" in value:
        raise ValueError("must have no user and password: write them under registry.username and .password")
    if not _URL.fullmatch(value):
        raise ValueError(f'{value!r} is no registry: write "http://host:port" or "https://host:port", and its path')
    return value.rstrip("/")


def check_broker(value: str) -> str:
    """A broker address in its full form.

    Args:
        value: "memory://", "kafka://host:port", or "host:port"; several Kafka hosts are parted by commas.

    Raises:
        ValueError: none of these.
    """
    if value == MEMORY:
        return value
    if "@" in value:
        raise ValueError("must have no user and password: write them under broker.sasl")
    hosts = value.removeprefix("kafka://").split(",")
    for host in hosts:
        match = _HOST_PORT.fullmatch(host)
        if match is None or not 1 <= int(match.group(1)) <= 65535:
            raise ValueError(f'{value!r} is no broker: write "kafka://host:port" or "memory://"')
    return "kafka://" + ",".join(hosts)


def _mapping(words: str) -> BeforeValidator:
    """Refuse what is no mapping, without the value: it may be a secret, and messages are shown and logged."""

    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError(words)
        return value

    return BeforeValidator(check)


def _word(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be text")
    return value


class SecretConfig(Section):
    """Where a secret is."""

    file: Annotated[str | None, PlainValidator(_word)] = None
    env: Annotated[str | None, PlainValidator(_word)] = None


SecretPlace = Annotated[SecretConfig | None, _mapping("must not be in the file: write {file: PATH} or {env: NAME}")]


class TlsConfig(Section):
    """Certificates that are trusted, and the one that is shown."""

    ca: Text | None = None
    certificate: Text | None = None
    key: Text | None = None
    key_password: SecretPlace = None


AnyTls = Annotated[
    TlsConfig | None,
    _mapping('write "true" for TLS with the certificates that the system trusts, or a mapping: {ca: FILE}'),
    BeforeValidator(lambda value: {} if value is True else value),
]


class SaslConfig(Section):
    """A login."""

    mechanism: Annotated[Mechanism, BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)]
    username: Text | None = None
    password: SecretPlace = None
    token: SecretPlace = None


class BrokerConfig(Section):
    """The cluster and how to get in."""

    address: Annotated[str, AfterValidator(check_broker)]
    client_id: Text | None = None
    tls: AnyTls = None
    sasl: Annotated[SaslConfig | None, _mapping("must be a mapping of mechanism, username, password or token")] = None


def _broker(value: object) -> object:
    return BrokerConfig(address=check_broker(value)) if isinstance(value, str) else value


AnyBrokerConfig = Annotated[BrokerConfig, BeforeValidator(_broker)]
"""An address alone, or a mapping."""


class RegistryConfig(Section):
    """Where the schemas of values are, and how to get in."""

    url: Annotated[str, AfterValidator(check_registry)]
    tls: AnyTls = None
    username: Text | None = None
    password: SecretPlace = None


def _registry(value: object) -> object:
    return RegistryConfig(url=check_registry(value)) if isinstance(value, str) else value


AnyRegistryConfig = Annotated[RegistryConfig, BeforeValidator(_registry)]
"""An address alone, or a mapping."""


def access_faults(broker: BrokerConfig) -> Iterator[Fault]:
    """Return the faults of settings under `broker` that do not go together."""
    sasl, secrets = broker.sasl, {}
    if sasl is not None:
        secrets = {"broker.sasl.password": sasl.password, "broker.sasl.token": sasl.token}
        has_token = sasl.mechanism == "oauthbearer"
        for name, is_required in {"username": not has_token, "password": not has_token, "token": has_token}.items():
            if is_required == (getattr(sasl, name) is None):
                words = "is required with" if is_required else "cannot be combined with"
                yield Fault(f"broker.sasl.{name}", f"{words} {sasl.mechanism}")
        if sasl.mechanism in _SENT_AS_IT_IS and broker.tls is None:
            what = _SENT_AS_IT_IS[sasl.mechanism]
            yield Fault("broker.tls", f"is required with {sasl.mechanism}: without TLS, {what} is sent in plaintext")
    yield from _common_faults("broker", broker.tls, secrets)


def registry_faults(registry: RegistryConfig) -> Iterator[Fault]:
    """Return the faults of settings under `registry` that do not go together."""
    given = {"username": registry.username, "password": registry.password}
    for name, value in given.items():
        if value is None and any(given.values()):
            yield Fault(f"registry.{name}", "is required: a login is a username and a password")
    if registry.username is not None and ":" in registry.username:
        yield Fault("registry.username", "must not contain ':', which separates it from the password")
    if registry.url.startswith("http:"):
        if registry.password is not None:
            yield Fault("registry.url", "must begin with https:// : without TLS, the password is sent in plaintext")
        if registry.tls is not None:
            yield Fault("registry.tls", "cannot be combined with http:// ; write https:// in registry.url")
    yield from _common_faults("registry", registry.tls, {"registry.password": registry.password})


def _common_faults(whose: str, tls: TlsConfig | None, secrets: Mapping[str, SecretConfig | None]) -> Iterator[Fault]:
    if tls is not None and tls.certificate is None:
        for name in ("key", "key_password"):
            if getattr(tls, name) is not None:
                yield Fault(f"{whose}.tls.{name}", f"needs {whose}.tls.certificate")
    of_key = {} if tls is None else {f"{whose}.tls.key_password": tls.key_password}
    for place, secret in {**of_key, **secrets}.items():
        if secret is not None and (secret.file is None) == (secret.env is None):
            yield Fault(place, "must be in one place: write {file: PATH} or {env: NAME}")


def plan_broker(config: BrokerConfig, name: str, folder: Path) -> Broker:
    """The cluster of a plan.

    Args:
        config: what the file says, without a fault.
        name: of the application: the client id where none is given.
        folder: what its relative paths are relative to.
    """
    sasl = config.sasl
    password = sasl and _secret("broker.sasl.password", sasl.password, folder)
    secret = password or (sasl and _secret("broker.sasl.token", sasl.token, folder))  # one of them is required
    login = Sasl(sasl.mechanism, sasl.username or "", secret) if sasl and secret else None
    return Broker(config.address, config.client_id or name, _plan_tls("broker", config.tls, folder), login)


def plan_registry(config: RegistryConfig | None, folder: Path) -> Registry | None:
    """The schema registry of a plan, None where there is none.

    Args:
        config: what the file says, without a fault.
        folder: what its relative paths are relative to.
    """
    if config is None:
        return None
    password = _secret("registry.password", config.password, folder)
    return Registry(config.url, _plan_tls("registry", config.tls, folder), config.username or "", password)


def _plan_tls(whose: str, given: TlsConfig | None, folder: Path) -> Tls | None:
    if given is None:
        return None
    password = _secret(f"{whose}.tls.key_password", given.key_password, folder)
    return Tls(_path(given.ca, folder), _path(given.certificate, folder), _path(given.key, folder), password)


def _secret(place: str, given: SecretConfig | None, folder: Path) -> Secret | None:
    return None if given is None else Secret(place, _path(given.file, folder), given.env or "")


def _path(written: str | None, folder: Path) -> Path | None:
    return None if written is None else folder.joinpath(written)
