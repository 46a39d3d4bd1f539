"""The gateway over HTTPS: by its own certificate, behind a proxy, and never in plaintext elsewhere than on loopback."""

# ruff: noqa: F811 - fixtures
from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from stream_dp.config.plan import Plan
from stream_dp.gateway.tokens import new_token
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.runtime.localkafka.broker import free_port
from stream_dp.testing.application import WITHIN_SECONDS
from tests.support.published import VISITS, Call, call, release, visits, visits_file  # noqa: F401 - fixtures
from tests.support.secured import make_certificates
from tests.support.serving import World, ready

Make = Callable[..., Any]
SECURE = "; HttpOnly; Max-Age=34560000; Path=/; SameSite=strict; Secure"
LASTING = "max-age=31536000"


@pytest.fixture
def world(visits: Plan, tmp_path: Path) -> World:
    make_certificates(tmp_path)
    return World(visits, tmp_path / "readers.tokens")


def trusting(folder: Path) -> ssl.SSLContext:
    """A client's side of TLS that trusts the authority of the tests alone."""
    return ssl.create_default_context(cafile=folder / "ca.pem")


def of_own_page(url: str, **headers: str) -> Mapping[str, str]:
    return {"Origin": url, "Content-Type": "application/json", **headers}


async def signed_in(session: aiohttp.ClientSession, url: str, token: str, **headers: str) -> str:
    """Sign in; return the cookie that is set."""
    named = of_own_page(url, **{name.replace("_", "-"): value for name, value in headers.items()})
    async with session.post("/v1/session", json={"token": token}, headers=named) as answer:
        assert (answer.status, answer.headers["Strict-Transport-Security"]) == (204, LASTING), await answer.text()
        return answer.headers["Set-Cookie"]


async def test_over_tls_a_session_reads_what_its_token_gives(world: World, release: Make, tmp_path: Path) -> None:
    world.publish(release({"home": 40}, audience="staff"), audience="staff")
    _, token = new_token(world.tokens, "staff", wall_clock_ms())
    pair = tmp_path / "broker.pem"
    async with world.serving(trusted=trusting(tmp_path), ssl_certfile=pair, ssl_keyfile=pair) as session:
        await ready(session)
        url = f"https://127.0.0.1:{world.port}"
        asked = "/v1/views?audience=staff"
        async with session.get(asked) as answer:
            assert answer.status == 401
        cookie = await signed_in(session, url, token)
        assert cookie == f"__Host-sdp-staff={token}{SECURE}"
        kept = {"Cookie": cookie.partition(";")[0]}
        async with session.get(asked, headers=kept) as answer:
            assert (answer.status, answer.headers["Strict-Transport-Security"]) == (200, LASTING)
            assert [view["name"] for view in (await answer.json())["views"]] == ["pages"]
        async with session.get("/v1/events?audience=staff", headers=kept) as stream:
            assert (await stream.content.readline()).startswith(b"retry: ")
        async with session.delete("/v1/session", headers=of_own_page(url, **kept)) as answer:
            assert answer.headers["Set-Cookie"].startswith('__Host-sdp-staff=""; ')
            assert "Max-Age=0; " in answer.headers["Set-Cookie"]
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{world.port}/livez")


async def test_behind_a_proxy_that_has_tls_cookies_are_those_of_tls(world: World) -> None:
    _, token = new_token(world.tokens, "staff", wall_clock_ms())
    async with world.serving() as session:
        proxied = {"X_Forwarded_Proto": "https", "Host": "releases.example", "X_Forwarded_For": "203.0.113.9"}
        assert await signed_in(session, "https://releases.example", token, **proxied) == (
            f"__Host-sdp-staff={token}{SECURE}"
        )
        named = of_own_page("http://releases.example", Host="releases.example")
        async with session.post("/v1/session", json={"token": token}, headers=named) as answer:
            assert (answer.status, (await answer.json())["type"]) == (403, "tls_required")


@pytest.fixture
def file(visits_file: Path) -> Path:
    """Of an application whose broker does not answer, with tokens of readers and of operators."""
    tokens = "serve: {tokens: ./readers.tokens}\nconsole: {tokens: ./operators.tokens}\n"
    visits_file.write_text(VISITS.replace("memory://", "127.0.0.1:1") + tokens, encoding="utf-8")
    make_certificates(visits_file.parent)
    return visits_file


@pytest.mark.parametrize("command", ["serve", "console"])
async def test_the_programs_serve_https_with_the_files_that_they_are_given(
    file: Path, tmp_path: Path, command: str
) -> None:
    port, pair = free_port(), str(tmp_path / "broker.pem")
    words = ("--host", "0.0.0.0", "--port", str(port), "--tls-cert", pair, "--tls-key", pair)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "stream_dp.cli", command, str(file), *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert program.stdout is not None
        async with asyncio.timeout(WITHIN_SECONDS):
            assert f"https://0.0.0.0:{port}/" in (await program.stdout.readline()).decode()
            connector = aiohttp.TCPConnector(ssl=trusting(tmp_path))
            async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:
                async with session.get("/") as answer:
                    assert (answer.status, answer.headers["Strict-Transport-Security"]) == (200, LASTING)
                async with session.get("/v1/status" if command == "console" else "/v1/views") as answer:
                    assert answer.status == 401
    finally:
        program.terminate()
        await program.wait()


@pytest.mark.parametrize("command", ["serve", "console"])
def test_elsewhere_than_on_loopback_nothing_starts_without_tls(visits_file: Path, call: Call, command: str) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "gate.example"):
        said = call(command, visits_file, "--host", host)
        assert (said.code, "is not loopback and tokens would be sent in plaintext" in said.err) == (2, True)
    (visits_file.parent / "a.pem").touch()
    said = call(command, visits_file, "--host", "0.0.0.0", "--tls-cert", visits_file.parent / "a.pem")
    assert (said.code, "--tls-cert and --tls-key belong together" in said.err) == (2, True)
