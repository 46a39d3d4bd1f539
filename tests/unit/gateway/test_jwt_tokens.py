"""JWTs as readers' tokens: which are accepted, what they give, and when keys are fetched."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, web
from aiohttp.test_utils import TestServer

from stream_dp.config.file_schema import JwtConfig
from stream_dp.config.planner import load_plan
from stream_dp.errors import ConfigError
from stream_dp.gateway import jwt_tokens
from stream_dp.gateway.jwt_tokens import JwtTokens, read_keys
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.tokens import Reader, RequestRate, Signed, Tokens, UncheckedError, reader_of
from tests.support.gateway import NOW, ask, gateway_of
from tests.support.issuing import PLAN, Issuer, key_of, signed, unsigned

Make = Callable[..., Any]
NOW_S = NOW // 1000


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def tokens(issuer: Issuer) -> JwtTokens:
    return JwtTokens(PLAN, ("public", "partner", "staff"), lambda: NOW, issuer.fetch, issuer.clock)


async def audiences(tokens: JwtTokens, token: str) -> list[str]:
    return list(await tokens.given(token))


@pytest.mark.parametrize("key", ["rsa", "ec", "okp"])
async def test_a_token_of_each_algorithm_gives_the_audience_of_the_claim_until_it_expires(
    tokens: JwtTokens, key: str
) -> None:
    given = await tokens.given(signed(key))
    assert list(given) == ["staff"]
    assert given["staff"] == Signed(given["staff"].id, "", "staff", "", "2023-11-14T22:23:20Z")
    assert not given["staff"].is_expired(NOW)
    assert given["staff"].is_expired(NOW + 600_000)


async def test_a_list_gives_several_audiences_and_those_that_there_are_not_give_nothing(tokens: JwtTokens) -> None:
    assert await audiences(tokens, signed(reads=["staff", "public", "nobody", 5, None])) == ["public", "staff"]
    assert await audiences(tokens, signed(reads=["nobody"])) == []
    assert await audiences(tokens, signed(aud=["other", PLAN.audience])) == ["staff"]


async def test_all_tokens_of_a_subject_share_an_id_and_so_its_limits(tokens: JwtTokens) -> None:
    first, later, other, nameless, another = [
        (await tokens.given(token))["staff"].id
        for token in (
            signed(),
            signed(exp=NOW_S + 700),
            signed(sub="bob"),
            signed(sub=None),
            signed(sub=None, exp=NOW_S + 5),
        )
    ]
    assert first == later
    assert len({first, other, nameless, another}) == 4
    assert "alice" not in first


@pytest.mark.parametrize("claims", [{"nbf": NOW_S}, {"iat": NOW_S - 5}, {"exp": NOW_S + 0.5}, {"exp": 10**30}])
async def test_times_that_are_right_are_accepted(tokens: JwtTokens, claims: dict[str, Any]) -> None:
    assert await audiences(tokens, signed(**claims)) == ["staff"]


async def test_a_flood_of_unknown_keys_makes_one_fetch_a_minute(tokens: JwtTokens, issuer: Issuer) -> None:
    flood = [signed(header={"kid": f"k{number}"}) for number in range(50)]
    found = await asyncio.gather(*(tokens.given(token) for token in flood), return_exceptions=True)
    assert (found, issuer.fetches) == ([{}] * 50, 1)
    issuer.now += jwt_tokens.AGAIN_SECONDS - 1
    assert (await audiences(tokens, flood[0]), issuer.fetches) == ([], 1)
    issuer.now += 1
    assert (await audiences(tokens, flood[0]), await audiences(tokens, flood[1]), issuer.fetches) == ([], [], 2)
    assert (await audiences(tokens, signed()), issuer.fetches) == (["staff"], 2)


async def test_after_a_rotation_the_new_key_is_fetched_and_the_former_gives_nothing(
    tokens: JwtTokens, issuer: Issuer
) -> None:
    assert await audiences(tokens, signed("rsa")) == ["staff"]
    issuer.names, issuer.now = ["rsa-2"], issuer.now + 60
    assert await audiences(tokens, signed("rsa-2")) == ["staff"]
    assert (await audiences(tokens, signed("rsa")), issuer.fetches) == ([], 2)


async def test_keys_are_renewed_without_a_wait_and_end_if_their_issuer_is_silent(
    tokens: JwtTokens, issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    assert await audiences(tokens, signed()) == ["staff"]
    issuer.now += jwt_tokens.RENEW_SECONDS
    issuer.fault = ClientError("no route")
    with caplog.at_level(logging.WARNING, "stream_dp.gateway"):
        assert await audiences(tokens, signed()) == ["staff"]
        await asyncio.sleep(0)
        assert (issuer.fetches, "no route" in caplog.text) == (2, True)
    issuer.now += jwt_tokens.KEEP_SECONDS - jwt_tokens.RENEW_SECONDS
    for _ in range(3):
        with pytest.raises(UncheckedError):
            await tokens.given(signed())
    assert issuer.fetches == 3
    issuer.fault, issuer.now = None, issuer.now + jwt_tokens.AGAIN_SECONDS
    assert await audiences(tokens, signed()) == ["staff"]


async def test_who_comes_while_keys_are_fetched_waits_for_them(tokens: JwtTokens, issuer: Issuer) -> None:
    answered = asyncio.Event()

    async def slow(_: str) -> bytes:
        await answered.wait()
        return issuer.jwks()

    tokens.fetch = slow
    asking = [asyncio.create_task(tokens.given(signed(key))) for key in ("rsa", "ec")]
    await asyncio.sleep(0)
    asking[0].cancel()
    answered.set()
    assert list(await asking[1]) == ["staff"]


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"{}", b'{"keys": {}}', b"\xff", b"[" * 100_000], ids=lambda one: one[:9].decode("latin-1")
)
async def test_what_is_no_jwks_is_no_answer(tokens: JwtTokens, document: bytes) -> None:
    async def answers(_: str) -> bytes:
        return document

    tokens.fetch = answers
    with pytest.raises(UncheckedError):
        await tokens.given(signed())


def test_keys_that_must_not_check_signatures_are_passed_over() -> None:
    good = key_of("ec").as_dict(private=False)
    others: list[Any] = [
        key_of("oct").as_dict(),
        key_of("weak").as_dict(private=False),
        {**good, "kid": "for encryption", "use": "enc"},
        {**good, "kid": 5},
        {**good, "kid": "broken", "x": "AAAA"},
        {**good, "kid": "curve", "crv": "P-999"},
        {"kty": "PQC", "kid": "new"},
        {"kid": "none"},
        "text",
        None,
    ]
    assert list(read_keys(json.dumps({"keys": [*others, good]}).encode())) == ["ec"]


@pytest.fixture
def gateway(tmp_path: Path, release: Make, tokens: JwtTokens) -> Gateway:
    staff, partner = [release({"home": 910}, audience="staff")], [release({"home": 920})]
    found = gateway_of(tmp_path, {("pages", "staff"): staff, ("pages", "public"): partner}, public=())
    found.tokens.signed = tokens.given
    return found


async def test_the_gateway_answers_for_the_audiences_of_a_token_and_for_no_other(gateway: Gateway) -> None:
    app, bearer = gateway.app(), {"authorization": f"Bearer {signed(reads=['staff', 'public'])}"}
    assert (await ask(app, "/v1/views", **bearer)).json["audiences"] == ["public", "staff"]
    for audience, status in {"staff": 200, "public": 200, "partner": 404}.items():
        assert (await ask(app, f"/v1/views?audience={audience}", **bearer)).status == status
    assert (await ask(app, "/v1/views", authorization=f"Bearer {unsigned('none')}")).status == 401
    stream = await ask(app, "/v1/views/pages/events?audience=staff", **bearer)
    assert stream.body.startswith(b"retry")


async def test_a_browser_signs_in_with_a_token_and_gets_a_cookie_for_each_audience(gateway: Gateway) -> None:
    app, token = gateway.app(), signed(reads=["staff", "public"])
    own = {"origin": "http://localhost", "content_type": "application/json"}
    assert (await ask(app, "/v1/session", "POST", json.dumps({"token": token}), **own)).status == 204
    cookies = f"sdp-public={token}; sdp-staff={token}"
    assert (await ask(app, "/v1/views", cookie=cookies)).json["audiences"] == ["public", "staff"]
    assert (await ask(app, "/v1/views", cookie=f"sdp-partner={token}")).status == 401
    assert (await ask(app, "/v1/session", "POST", json.dumps({"token": unsigned("none")}), **own)).status == 401


async def test_a_token_that_cannot_be_checked_is_503_within_the_limits(gateway: Gateway, issuer: Issuer) -> None:
    issuer.fault = TimeoutError()
    gateway.requests = RequestRate(1, 2, lambda: 0)
    app, bearer = gateway.app(), {"authorization": f"Bearer {signed()}"}
    answers = [await ask(app, "/v1/views", **bearer) for _ in range(3)]
    assert [one.json["type"] for one in answers] == ["issuer_silent", "issuer_silent", "too_many"]
    assert (answers[0].status, answers[0].headers["retry-after"]) == (503, "10")
    own = {"origin": "http://localhost", "content_type": "application/json", "client": "10.0.0.2"}
    assert (await ask(app, "/v1/session", "POST", json.dumps({"token": signed()}), **own)).status == 503


async def test_public_audiences_need_no_issuer(tokens: JwtTokens, issuer: Issuer) -> None:
    issuer.fault = TimeoutError()
    known = Tokens(None, lambda: NOW, signed=tokens.given)
    reader = await reader_of(known, ("public",), None, {"sdp-staff": signed()}, "1")
    assert reader == Reader({"public": None}, "1", is_unchecked=True)


async def test_a_stream_ends_when_its_token_expires_and_not_because_no_file_has_it(tokens: JwtTokens) -> None:
    now = [NOW]
    known = Tokens(None, lambda: now[0], signed=tokens.given)
    entry = (await known.given(signed()))["staff"]
    assert known.ended(entry) is None
    now[0] += 600_000
    assert known.ended(entry) == "expired"


@asynccontextmanager
async def answering(status: int, body: bytes, **headers: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers=headers)

    app = web.Application()
    app.router.add_get("/keys", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/keys"))


async def test_the_document_is_fetched_from_that_address_only_and_not_without_bound() -> None:
    async with answering(200, b"{}") as address:
        assert await jwt_tokens.fetch(address) == b"{}"
    async with answering(302, b"", Location=address) as other:
        with pytest.raises(ValueError, match="302"):
            await jwt_tokens.fetch(other)
    async with answering(200, b" " * ((1 << 20) + 1)) as large:
        with pytest.raises(ValueError, match="too large"):
            await jwt_tokens.fetch(large)


SERVE = "serve: {jwt: {issuer: https://issuer.example, audience: a, jwks: https://issuer.example/keys, claim: reads}}\n"


def test_the_file_names_the_issuer(visits_file: Path) -> None:
    visits_file.write_text(visits_file.read_text() + SERVE)
    assert load_plan(visits_file).serve.jwt == JwtConfig(
        issuer="https://issuer.example", audience="a", jwks="https://issuer.example/keys", claim="reads"
    )


def test_all_faults_of_the_section_are_listed_at_once(visits_file: Path) -> None:
    visits_file.write_text(visits_file.read_text() + 'serve: {jwt: {issuer: "", jwks: http://x/keys, claims: [a]}}\n')
    with pytest.raises(ConfigError) as caught:
        load_plan(visits_file)
    assert {str(fault) for fault in caught.value.faults} == {
        "serve.jwt.issuer: must not be empty",
        'serve.jwt.jwks: must be an address with TLS, as "https://host/keys"',
        "serve.jwt.claims: unknown key; did you mean 'claim'?",
        "serve.jwt.audience: is required",
        "serve.jwt.claim: is required",
    }


def test_without_the_library_the_command_says_which_extra_is_missing(
    visits_file: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "stream_dp.gateway.jwt_tokens", None)
    visits_file.write_text(visits_file.read_text() + SERVE)
    said = call("serve", str(visits_file))
    assert (said.code, "stream-dp[jwt]" in said.err) == (2, True)
