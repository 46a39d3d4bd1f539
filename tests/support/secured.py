"""A Kafka that lets in only whom it knows, and to nothing but what they may: TLS, logins, and an authorizer."""

from __future__ import annotations

import base64
import ipaddress
import json
import subprocess
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

from aiokafka.protocol.admin import DeleteAclsRequest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stream_dp.runtime.kafka.client import Client, KafkaClient
from stream_dp.runtime.kafka.requests import OPERATIONS, RESOURCES
from stream_dp.runtime.kafka.rights import Right
from stream_dp.runtime.localkafka import broker as localkafka
from stream_dp.runtime.localkafka.broker import listens
from stream_dp.runtime.localkafka.jars import fetch_jars, java_command
from stream_dp.runtime.localkafka.processes import carries, spawn_detached, terminate
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.ports import free_ports

HOST = "127.0.0.1"
ADMIN = "admin"
USERS = (ADMIN, "worker", "partner", "public", "operator", "producer", "gateway")

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=OPEN://127.0.0.1:{open},CONTROLLER://127.0.0.1:{controller},LOGIN://127.0.0.1:{login},\
BARE://127.0.0.1:{bare},MUTUAL://127.0.0.1:{mutual}
advertised.listeners=OPEN://127.0.0.1:{open},LOGIN://127.0.0.1:{login},BARE://127.0.0.1:{bare},MUTUAL://127.0.0.1:{mutual}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,LOGIN:SASL_SSL,BARE:SASL_PLAINTEXT,MUTUAL:SSL
inter.broker.listener.name=OPEN
log.dirs=data
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false

authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=false
super.users=User:ANONYMOUS;User:admin

ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.mutual.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=(.*)$/$1/

sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER
listener.name.bare.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.bare.scram-sha-512.sasl.jaas.config={scram}
listener.name.login.scram-sha-512.sasl.jaas.config={scram}
listener.name.login.scram-sha-256.sasl.jaas.config={scram}
listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
{plain};
listener.name.login.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";
"""
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class Secured:
    """A secured Kafka that runs.

    Attributes:
        folder: its certificates and the passwords of its users.
        open: in plaintext, without a login: whoever connects there may do everything, as these tests' own tools do.
        login: with TLS and a login.
        bare: with a login and without TLS.
        mutual: with TLS, for those who show a certificate.
    """

    folder: Path
    open: str
    login: str
    bare: str
    mutual: str
    pid: int
    marker: str

    @classmethod
    def start(cls, folder: Path) -> Secured:
        """Run one in an empty folder, and return when a client can list topics."""
        folder.mkdir(parents=True, exist_ok=True)
        make_certificates(folder)
        names = ("open", "login", "bare", "mutual", "controller")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        plain = " ".join(f'user_{name}="{password_of(name)}"' for name in USERS)
        (folder / "server.properties").write_text(_SETTINGS.format(folder=folder, scram=_SCRAM, plain=plain, **ports))
        resources = files("stream_dp.runtime.localkafka")
        (folder / "log4j2.properties").write_text(resources.joinpath("log4j2.properties").read_text())
        for name in USERS:
            secret = folder / f"{name}.password"
            secret.write_text(password_of(name) + "\n")
            secret.chmod(0o600)
        jars, java = fetch_jars(), java_command()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [java, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
        tool += [f"--cluster-id={cluster}", "--config=server.properties"]
        for name in USERS:
            for kind in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
                tool += ["--add-scram", f"{kind}=[name={name},iterations=4096,password={password_of(name)}]"]
        subprocess.run(tool, cwd=folder, check=True, capture_output=True)
        marker = f"-Dstream.dp.kafka={uuid.uuid4().hex}"
        command = [
            java,
            "-Xmx768m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Dlog4j2.configurationFile=log4j2.properties",
            marker,
        ]
        command += ["-Dorg.apache.kafka.sasl.oauthbearer.allowed.unsecured=true"]
        command += ["-cp", f"{jars}/*", "kafka.Kafka", "server.properties"]
        pid = spawn_detached(command, folder, folder / "kafka.log")
        at = {name: f"{HOST}:{port}" for name, port in ports.items() if name != "controller"}
        made = cls(folder, pid=pid, marker=marker, **at)
        deadline = time.monotonic() + WITHIN_SECONDS
        while not (listens(ports["open"]) and localkafka.answers(made.open, 2)):
            if not carries(pid, marker) or time.monotonic() > deadline:
                made.stop()
                raise RuntimeError((folder / "kafka.log").read_text()[-4000:])
            time.sleep(0.1)
        return made

    def stop(self) -> None:
        """End it."""
        terminate(self.pid, self.marker, 20)

    def broker(self, user: str, **changes: object) -> str:
        """What stands under `broker` for somebody who logs in with SCRAM over TLS, as JSON, which is YAML."""
        login = {"mechanism": "scram-sha-512", "username": user}
        login |= {"password": {"file": str(self.folder / f"{user}.password")}}  # type: ignore[dict-item]
        whole = {"address": self.login, "tls": {"ca": str(self.folder / "ca.pem")}, "sasl": login}
        return json.dumps({key: value for key, value in {**whole, **changes}.items() if value is not None})


def password_of(user: str) -> str:
    """The password of a user of the broker."""
    return f"the-secret-of-{user}"


def token_of(user: str, lasts_s: int = 600) -> str:
    """A token that a broker takes which checks no signatures."""
    now = int(time.time())
    parts = [{"alg": "none"}, {"sub": user, "iat": now, "exp": now + lasts_s}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def make_certificates(folder: Path) -> None:
    """An authority, the broker's certificate for 127.0.0.1, a client's, and an authority that signed nothing."""
    ca_key, ca = _signed("test authority")
    _, other = _signed("another authority")
    (folder / "ca.pem").write_bytes(_pem(ca))
    (folder / "other-ca.pem").write_bytes(_pem(other))
    key, certificate = _signed("broker", ca_key, ca)
    (folder / "broker.pem").write_bytes(_key_pem(key) + _pem(certificate))
    key, certificate = _signed("worker", ca_key, ca)
    (folder / "worker.crt").write_bytes(_pem(certificate))
    (folder / "worker.key").write_bytes(_key_pem(key, b"the-secret-of-the-key"))
    (folder / "worker.key.password").write_text("the-secret-of-the-key")
    (folder / "broker.pem").chmod(0o600)
    (folder / "worker.key").chmod(0o600)
    (folder / "worker.key.password").chmod(0o600)


def _signed(
    name: str, authority_key: ec.EllipticCurvePrivateKey | None = None, authority: x509.Certificate | None = None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if authority is None else authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    )
    if authority is None:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    else:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
    return key, builder.sign(authority_key or key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: bytes | None = None) -> bytes:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


async def revoke(client: Client, right: Right) -> None:
    """Take a right away again, as whoever may do so."""
    assert isinstance(client, KafkaClient)
    request = DeleteAclsRequest(
        RESOURCES[right.resource],
        right.name,
        4 if right.prefixed else 3,
        right.principal,
        "*",
        OPERATIONS[right.operation],
        3,
    )
    answer = await client._admin._send_to_controller(request)
    ((code, _, found),) = answer.filter_responses
    assert code == 0
    assert len(found) == 1
