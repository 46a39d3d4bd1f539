"""What connections are made with: certificates and secrets, read when they are needed and shown to nobody."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import conn
from aiokafka.errors import SaslAuthenticationFailed
from faust.types.auth import AuthProtocol

from stream_dp.config.access import Broker, Sasl, Secret, Tls
from stream_dp.errors import ConfigError
from stream_dp.runtime.faust.app import credentials
from stream_dp.runtime.kafka.cluster import Cluster, TokenFile, missing, open_secrets, read_secret
from stream_dp.runtime.kafka.connections import TokenLogin
from tests.support.secured import make_certificates

HIDDEN = "hidden-from-everybody"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates, and a password."""
    make_certificates(tmp_path)
    (tmp_path / "password").write_text(f"{HIDDEN}\n")
    (tmp_path / "password").chmod(0o600)
    return tmp_path


def secret(folder: Path, name: str = "password", place: str = "sasl.password") -> Secret:
    return Secret(f"broker.{place}", folder / name)


def broker(folder: Path, **changes: Any) -> Broker:
    whole = Broker("kafka://a:1", "me", Tls(folder / "ca.pem"), Sasl("scram-sha-512", "user", secret(folder)))
    return replace(whole, **changes)


def test_plaintext_without_a_login_takes_addresses_and_a_name() -> None:
    cluster = Cluster.of(Broker("kafka://a:1,b:2", "me"))
    assert cluster.options == {
        "bootstrap_servers": "a:1,b:2",
        "client_id": "me",
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
    }
    assert credentials(cluster) is None


def test_login_over_tls_is_the_same_for_the_kafka_client_and_for_faust(folder: Path) -> None:
    cluster = Cluster.of(broker(folder))
    options, login = cluster.options, credentials(cluster)
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("user", HIDDEN)
    assert login.protocol is AuthProtocol.SASL_SSL
    assert login.mechanism.value == "SCRAM-SHA-512"
    assert (login.username, login.password) == ("user", HIDDEN)
    assert login.ssl_context is options["ssl_context"]


def test_certificates_and_names_of_brokers_are_always_checked(folder: Path) -> None:
    for tls in (Tls(), Tls(folder / "ca.pem")):
        context = Cluster.of(broker(folder, tls=tls)).options["ssl_context"]
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    own = Cluster.of(broker(folder, tls=Tls(folder / "ca.pem"))).options["ssl_context"]
    assert len(own.get_ca_certs()) == 1  # nobody beside the one that was named


def test_certificate_of_our_own_is_shown_with_the_password_of_its_key(folder: Path) -> None:
    tls = Tls(
        folder / "ca.pem",
        folder / "worker.crt",
        folder / "worker.key",
        secret(folder, "worker.key.password", "tls.key_password"),
    )
    cluster = Cluster.of(broker(folder, tls=tls, sasl=None))
    assert cluster.options["security_protocol"] == "SSL"
    assert credentials(cluster).context is cluster.options["ssl_context"]


async def test_token_is_read_again_for_every_connection(folder: Path) -> None:
    token = secret(folder, "token", "sasl.token")
    assert token.file is not None
    token.file.write_text("first")
    cluster = Cluster.of(broker(folder, sasl=Sasl("oauthbearer", "", token)))
    provider = cluster.options["sasl_oauth_token_provider"]
    assert credentials(cluster).oauth_cb is provider
    assert await provider.token() == "first"
    token.file.write_text("second\n")
    assert await provider.token() == "second"


async def test_token_that_is_gone_is_a_login_that_failed(folder: Path) -> None:
    """Of another error the client's task would die that learns where partitions are."""
    with pytest.raises(SaslAuthenticationFailed) as raised:
        await TokenFile(secret(folder, "none")).token()
    assert isinstance(raised.value.__cause__, ConfigError)


async def test_refusal_of_a_token_is_not_taken_for_consent(folder: Path) -> None:
    refused, taken = (TokenLogin(sasl_oauth_token_provider=TokenFile(secret(folder))) for _ in range(2))
    for login in (refused, taken):
        assert await login.step(None) == (f"n,,\x01auth=Bearer {HIDDEN}\x01\x01".encode(), True)
    with pytest.raises(SaslAuthenticationFailed):
        await refused.step(b'{"status":"invalid_token"}')
    assert await taken.step(b"") is None


async def test_connection_that_was_reset_is_not_told_of_when_it_is_forgotten() -> None:
    """The client keeps what it closes in a cycle, where Python may find the error before the one who has seen it."""
    told: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    protocol = conn.AIOKafkaProtocol(loop.create_future(), asyncio.StreamReader(), loop=loop)
    protocol.connection_lost(ConnectionResetError())
    closed = protocol._closed
    protocol._closed = loop.create_future()
    del closed
    gc.collect()
    assert told == []


def test_everything_that_cannot_be_read_is_told_at_once(folder: Path) -> None:
    tls = Tls(
        folder / "none.pem",
        folder / "none.crt",
        folder / "none.key",
        Secret("broker.tls.key_password", None, "NOBODY_SET"),
    )
    wrong = broker(folder, tls=tls, sasl=Sasl("plain", "user", secret(folder, "none")))
    told = [
        f"broker.tls.ca: cannot read {folder}/none.pem: No such file or directory",
        "broker.tls.key_password: the environment variable NOBODY_SET is not set",
        f"broker.tls.certificate: cannot read {folder}/none.crt: No such file or directory",
        f"broker.tls.key: cannot read {folder}/none.key: No such file or directory",
        f"broker.sasl.password: {folder}/none cannot be read: No such file or directory",
    ]
    with pytest.raises(ConfigError) as raised:
        Cluster.of(wrong)
    assert [str(fault) for fault in raised.value.faults] == told
    assert [str(fault) for fault in missing(wrong)] == told
    assert missing(broker(folder)) == missing(Broker("memory://", sasl=wrong.sasl)) == []


@pytest.mark.parametrize(
    ("certificate", "key", "password"),
    [("worker.crt", "worker.key", None), ("worker.crt", "worker.key", "password"), ("broker.pem", "worker.key", None)],
)
def test_key_that_cannot_be_used_is_a_fault_and_nobody_is_asked_for_its_password(
    folder: Path, certificate: str, key: str, password: str | None
) -> None:
    hidden = None if password is None else secret(folder, password)
    (fault,) = missing(broker(folder, tls=Tls(None, folder / certificate, folder / key, hidden)))
    assert fault.path == "broker.tls.certificate"
    assert "hold no certificate in PEM with its key, or the key's password is wrong or missing" in fault.message


def test_authority_that_is_no_certificate_is_a_fault(folder: Path) -> None:
    (fault,) = missing(broker(folder, tls=Tls(folder / "password")))
    assert str(fault) == f"broker.tls.ca: {folder}/password holds no certificate in PEM"


def test_secret_is_a_file_without_its_last_line_break_or_a_variable(folder: Path) -> None:
    assert read_secret(secret(folder)) == HIDDEN
    assert read_secret(Secret("place", None, "NAME"), {"NAME": " as it is "}) == " as it is "
    (folder / "password").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_secret(secret(folder))
    with pytest.raises(ConfigError, match="NAME is empty"):
        read_secret(Secret("place", None, "NAME"), {"NAME": ""})


def test_secret_that_everybody_can_read_is_warned_of(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    key = folder / "worker.key"
    tls = Tls(None, folder / "worker.crt", key, secret(folder, "worker.key.password", "tls.key_password"))
    assert open_secrets(broker(folder, tls=tls)) == []
    (folder / "password").chmod(0o604)
    key.chmod(0o644)
    warnings = [
        f"broker.sasl.password: {folder}/password can be read by everybody on this machine; `chmod 600` it",
        f"broker.tls.key: {key} can be read by everybody on this machine; `chmod 600` it",
    ]
    assert open_secrets(broker(folder, tls=tls)) == warnings
    with caplog.at_level(logging.WARNING, "stream_dp.worker"):
        for _ in range(3):
            Cluster.of(broker(folder, tls=tls))
    assert caplog.messages == warnings


def test_nothing_that_is_made_of_a_secret_shows_it(folder: Path) -> None:
    planned = broker(folder)
    cluster = Cluster.of(planned)
    shown = f"{planned!r} {planned} {cluster!r} {cluster} {credentials(cluster)!r} {planned.access}"
    assert HIDDEN not in shown
