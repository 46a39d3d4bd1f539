"""Schema registries for tests: a real one, in a process of its own, and a small one that does what a test wants."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.runtime.localkafka.jars import cache_folder, java_command, java_problem, maven_command, maven_problem
from stream_dp.testing.application import WITHIN_SECONDS

VERSION = "3.0.9"
"""Of Apicurio Registry: the last one that runs on Java 17."""
_GET = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
"""Later ones do not say where what they got is, or want the parents of its pom, which are not all there."""
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


def named(url: str) -> tuple[str, str]:
    """What puts a registry into the configuration of `tests.support.visits`."""
    return "erase_within: 20s", f'erase_within: 20s\nregistry: "{url}"'


def real_registry_problem() -> str | None:
    """Why a real registry cannot run on this machine; None when it can."""
    return java_problem() or (None if _folder().is_dir() else maven_problem())


def _folder() -> Path:
    return cache_folder() / "registry" / VERSION


def _fetch() -> Path:
    """The jars of the registry, fetched once."""
    folder = _folder()
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
        archive = partial / "registry.tar.gz"
        command = [maven_command(), "-q", "-B", "--strict-checksums", _GET, "-Dtransitive=false", f"-Ddest={archive}"]
        command += [f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"]
        try:
            subprocess.run(command, check=True, timeout=900)
            with tarfile.open(archive) as found:
                found.extractall(partial, filter="data")
            archive.unlink()
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


class RealRegistry:
    """Apicurio Registry, by the interface of Confluent's that it has.

    Attributes:
        url: what a configuration has.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def register(self, subject: str, schema: Any, references: Sequence[tuple[str, str, int]] = ()) -> int:
        """Register a schema and give its number.

        Args:
            subject: under what.
            schema: the schema.
            references: (name, subject, version) of what it refers to.
        """
        refers = [{"name": name, "subject": to, "version": version} for name, to, version in references]
        body = {"schema": json.dumps(schema), "schemaType": "AVRO", "references": refers}
        asked = urllib.request.Request(
            f"{self.url}/subjects/{subject}/versions",
            json.dumps(body).encode(),
            {"Content-Type": _MEDIA_TYPE},
            method="POST",
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return int(json.load(answer)["id"])


@contextmanager
def real_registry(folder: Path) -> Iterator[RealRegistry]:
    """A real registry on a free port of loopback, empty; it keeps what it has in memory."""
    port = free_port()
    command = [java_command(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.management.enabled=false"]
    (jar,) = _fetch().glob("apicurio-registry-app-*-runner.jar")
    log = folder / "registry.log"
    with log.open("wb") as output, subprocess.Popen([*command, "-jar", jar], stdout=output, stderr=output) as process:
        registry = RealRegistry(f"http://127.0.0.1:{port}/apis/ccompat/v7")
        try:
            _wait_for(registry.url, process, log)
            yield registry
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + WITHIN_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the registry did not start: {log.read_text()[-2000:]}") from None
            time.sleep(0.1)


class FakeRegistry:
    """What a registry answers, in a test's own loop.

    Attributes:
        url: what a configuration has.
        answers: by path, the status and the body.
        asked: the paths it was asked for.
        logins: the headers with which it was asked.
        broken: what it answers to everything instead, None for nothing.
    """

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.broken: tuple[int, Any] | None = None
        self.hangs = False

    def add(self, number: int, schema: Any, **more: Any) -> None:
        """Have a schema under a number."""
        self.answers[f"/schemas/ids/{number}"] = 200, {"schema": json.dumps(schema), **more}

    async def answer(self, request: web.Request) -> web.Response:
        path = request.raw_path
        self.asked.append(path)
        self.logins.append(request.headers.get("Authorization"))
        while self.hangs:
            await asyncio.sleep(0.01)
        missing = 404, {"error_code": 40403, "message": "Schema not found"}
        status, body = self.broken or self.answers.get(path, missing)
        if isinstance(body, bytes):
            return web.Response(body=body, status=status)
        return web.json_response(body, status=status, content_type=_MEDIA_TYPE)


@asynccontextmanager
async def fake_registry(tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeRegistry]:
    """A registry that has nothing yet."""
    registry = FakeRegistry()
    server = web.Application()
    server.router.add_route("*", "/{path:.*}", registry.answer)
    runner = web.AppRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    host, port = runner.addresses[0][:2]
    registry.url = f"{'http' if tls is None else 'https'}://{host}:{port}"
    try:
        yield registry
    finally:
        registry.hangs = False
        await runner.cleanup()


def basic(username: str, password: str) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
