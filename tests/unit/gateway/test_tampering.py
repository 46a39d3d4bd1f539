"""Requests that must fail, each for one reason; and audiences of which no byte depends on another."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest

from stream_dp.gateway import routes
from stream_dp.gateway.boards import Boards
from stream_dp.gateway.jwt_tokens import JwtTokens
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.tokens import RequestRate, revoke_token
from stream_dp.gateway.web import SECURITY
from tests.support.chosen import spread
from tests.support.gateway import NOW, Answer, ask, gateway_of, token_of
from tests.support.issuing import PLAN, WRONG_TOKENS, Issuer, signed

Make = Callable[..., Any]
VIEWS, SESSION = "/v1/views", "/v1/session"
WINDOWS, SERIES, EVENTS = (f"{VIEWS}/pages/{name}" for name in ("windows", "series", "events"))


class Try(NamedTuple):
    """A request, and why it must fail; names in capitals stand for tokens."""

    status: int
    kind: str
    target: str
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = {}


def bad(target: str) -> Try:
    return Try(400, "bad_request", target)


def absent(target: str, **headers: str) -> Try:
    return Try(404, "not_found", target, headers=headers)


def refused(target: str = VIEWS, **headers: str) -> Try:
    return Try(401, "unauthorized", target, headers=headers)


def session(status: int, kind: str, body: bytes = b"", method: str = "POST", **headers: str) -> Try:
    own = {"origin": "http://localhost", "content_type": "application/json", **headers}
    return Try(status, kind, SESSION, method, body, own)


def each(name: str, make: Callable[[str], Try], *texts: str) -> dict[str, Try]:
    return {f"{name} {text[:40]!r}": make(text) for text in texts}


PARAMETERS = {
    "unknown parameter": bad(f"{VIEWS}?x=1"),
    "token in the address": bad(f"{VIEWS}?token=TOKEN"),
    "access_token in the address": bad(f"{VIEWS}?access_token=TOKEN"),
    "limit twice": bad(f"{WINDOWS}?limit=1&limit=2"),
    "audience twice": bad(f"{VIEWS}?audience=public&audience=public"),
    **each("limit", lambda text: bad(f"{WINDOWS}?limit={text}"), "0", "501", "-1", "x", "1e3", "%C2%B2", "9" * 30, ""),
    **each("from", lambda text: bad(f"{WINDOWS}?from={text}"), "x", "2013-13-01", "2013-01-01T00:00:00", "1", "%00"),
    **each("until", lambda text: bad(f"{WINDOWS}?until={text}"), "x", "2013-02-30", "now", "%F0"),
    **each(
        "cursor", lambda text: bad(f"{WINDOWS}?cursor={text}"), "x", "1", "1.", ".1", "1.2.3", "--1.2", "9" * 40, "²."
    ),
    **each("start", lambda text: bad(f"{WINDOWS}/{text}"), "x", "0", "2013", "2013-01-01T25:00:00Z", "%2e%2e"),
    **each("revisions", lambda text: bad(f"{WINDOWS}?revisions={text}"), "old", "ALL", "1"),
    **each("revision", lambda text: bad(f"{WINDOWS}/1970-01-01?revision={text}"), "0", "x", "-1", "9999999"),
    "end": bad(f"{WINDOWS}/1970-01-01?end=x"),
    "no item": bad(SERIES),
    "21 items": bad(f"{SERIES}?" + "&".join(f"item={n}" for n in range(21))),
    **each("smooth", lambda text: bad(f"{SERIES}?item=a&smooth={text}"), "1", "2", "4", "7", "x"),
    **each("diff", lambda text: bad(f"{SERIES}?item=a&diff={text}"), "0", "2", "x"),
    "too many entries": bad(f"{SERIES}?item=a&item=b&limit=1001"),
    **each(
        "after",
        lambda text: bad(f"{EVENTS}?after={text}"),
        *("x", "00000000", "-5", "00000000-x", "0000000G-1", "00000000-1~", "00000000--2", "00000000-" + "9" * 30),
    ),
    "after without a view": bad("/v1/events?view=pages&view=pages&after=x"),
    "Last-Event-ID": Try(400, "bad_request", EVENTS, headers={"last_event_id": "x"}),
    **each("schema", lambda text: bad(f"/v1/schema?name={text}"), "entry", "x", "Record"),
}
PATHS = each(
    "path",
    absent,
    *("/v1", "/v1/", "/v1/view", f"{VIEWS}/", f"{VIEWS}/nothing/windows", f"{VIEWS}/PAGES/windows", f"{WINDOWS}/"),
    *(f"{VIEWS}/searches/windows", f"{VIEWS}/searches/series?item=x", f"{VIEWS}/searches/events"),
    *(f"{VIEWS}/searches/windows/1970-01-01", "/v1/events?view=searches", "/v1/events?view=pages&view=searches"),
    *(f"{VIEWS}/pages%00/windows", f"{VIEWS}/%2e%2e/windows", f"{VIEWS}/%ff/windows", f"{VIEWS}//windows"),
    *(f"{VIEWS}/{'a' * 3000}/windows", f"{WINDOWS}/1999-01-01"),
    *(f"{WINDOWS}/1970-01-01?revision=9", f"{WINDOWS}/1970-01-01?end=1970-01-09"),
    *("/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/%2e%2e%2fapp.py", "/..%5capp.py", "/static/../../app.py"),
    *("/....//app.py", "/%252e%252e/app.py", "//etc/passwd", "/%2fetc%2fpasswd", "/C:/x", "/vendor/../../api.py"),
    *("/%00", "/a%00b", "/%ff%fe", "/%c0%ae%c0%ae/app.py", "/%f0%9f", "/" + "a" * 3000, "/" + "%61" * 1000),
    *("/console", "/v1/status", "/v1/settings", "/v1/grants", "/v1/plan", "/v1/accounts", "/.git/config", "/metrics"),
    *("/visits-accounts", "/v1/tokens", "/readers.tokens", "/docs", "/v2/views", "/%3f"),
) | {
    "long address": Try(414, "bad_request", f"{WINDOWS}?cursor={'1' * 4096}"),
    "long path": Try(414, "bad_request", "/" + "a" * 4096),
}
BEARER = {"authorization": "Bearer TOKEN"}
OTHERS = {
    "other audience by a token": absent(f"{VIEWS}?audience=public", **BEARER),
    "no audience by a token": absent(f"{VIEWS}?audience=nobody", **BEARER),
    "empty audience by a token": absent(f"{VIEWS}?audience=", **BEARER),
    "other audience's window": absent(f"{WINDOWS}?audience=partner", **BEARER),
    "other audience by a cookie": absent(f"{VIEWS}?audience=partner", cookie="sdp-staff=TOKEN"),
    "other audience's view": absent(f"{VIEWS}/secrets/windows", **BEARER),
    "other audience by a JWT": absent(f"{VIEWS}?audience=public", authorization="Bearer JWT"),
    "no view by a token": absent(f"{VIEWS}/nothing/windows", **BEARER),
    "audience in capitals": absent(f"{VIEWS}?audience=STAFF", **BEARER),
    "audience with NUL": absent(f"{VIEWS}?audience=staff%00", **BEARER),
    **each(
        "audience without a credential",
        lambda text: refused(f"{text}audience=staff"),
        *(f"{VIEWS}?", f"{WINDOWS}?", f"{SERIES}?item=a&", f"{EVENTS}?", "/v1/events?", "/v1/ledgers?", "/v1/schema?"),
    ),
    "no audience without a credential": refused(f"{VIEWS}?audience=nobody"),
}
CREDENTIALS = {
    f"{where}: {credential[:30]}": refused(target, authorization=credential)
    for where, target in {"own": VIEWS, "other": f"{VIEWS}?audience=staff", "none": f"{VIEWS}/nothing/windows"}.items()
    for credential in (
        *("", "Bearer", "Bearer ", "bearer sdp_", "Basic TOKEN", "TOKEN", "Token TOKEN", "Bearer TOKENx"),
        *("Bearer TOKEN TOKEN", "Bearer TOKENTOKEN", "Bearer  TOKEN", "Bearer TOKEN,Bearer TOKEN", "Bearer TOKEN\t"),
        *("Bearer CUT", "Bearer UPPER", "Bearer EXPIRED", "Bearer REVOKED", "Bearer OPERATOR", "Bearer HASH"),
        *("Bearer \xff\xfe", "Bearer sdp_" + "A" * 43, "Bearer TOKEN=", "Bearer sdp_' OR 1=1"),
    )
} | {
    f"cookie: {cookie[:40]}": refused(cookie=cookie)
    for cookie in (
        *("sdp-staff=EXPIRED", "sdp-staff=REVOKED", "sdp-staff=CUT", "sdp-staff=", "sdp-public=TOKEN"),
        *("sdp-partner=TOKEN", "__Host-sdp-partner=TOKEN", 'sdp-staff="TOKENx"', "sdp-staff=HASH", "sdp-staff=%00"),
    )
}
SIGNED = {f"JWT: {name}": refused(authorization=f"Bearer WRONG {name}") for name in WRONG_TOKENS}
SESSIONS = {
    **{
        f"{method} from {origin!r}": session(403, "wrong_origin", method=method, origin=origin)
        for method in ("POST", "DELETE")
        for origin in (
            *("https://evil.example", "null", "", "http://localhost:81", "https://localhost", "http://localhost/"),
            *("http://localhost.evil.example", "http://evil.example?http://localhost", "HTTP://LOCALHOST"),
        )
    },
    "without TLS elsewhere": session(403, "tls_required", host="stream.example", origin="http://stream.example"),
    **{
        f"as {kind}": session(400, "bad_request", b'{"token": "TOKEN"}', content_type=kind)
        for kind in ("text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx")
    },
    **{
        f"body {body[:25]!r}": session(400, "bad_request", body)
        for body in (
            *(b"", b"[]", b"{", b"null", b'"TOKEN"', b'{"token": 5}', b'{"token": null}', b'{"token": ["TOKEN"]}'),
            *(b"\xff", b'{"token": "\xff"}', b'{"tokens": "TOKEN"}', b'{"token": "TOKEN"} {}', b"[" * 60_000),
            *(b'{"token": {"token": "TOKEN"}}', b'{"token": "\\ud800"}', b"token=TOKEN", b"\xef\xbb\xbf{}"),
        )
    },
    "a large body": session(413, "too_large", b" " * 70_000),
    **{
        f"session with {token}": session(401, "unauthorized", json.dumps({"token": token}).encode())
        for token in ("", "x", "sdp_x", "CUT", "EXPIRED", "REVOKED", "OPERATOR", "Bearer TOKEN", "é", "TOKEN\n", "\0")
    },
    "session with a JWT": session(401, "unauthorized", b'{"token": "WRONG alg none"}'),
    "a body where none belongs": Try(405, "bad_request", VIEWS, "POST", b'{"token": "TOKEN"}'),
}
METHODS = {
    f"{method} {target}": Try(405, "bad_request", target, method)
    for target, methods in {
        VIEWS: ("POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "OPTIONS", "CONNECT", "get", "X" * 50),
        WINDOWS: ("POST", "DELETE"),
        EVENTS: ("POST", "PUT"),
        SESSION: ("GET", "HEAD", "PUT", "PATCH"),
        "/openapi.json": ("POST",),
        "/livez": ("DELETE",),
        "/app.js": ("POST", "PUT", "DELETE"),
    }.items()
    for method in methods
}
FORMS = {
    f"{target} as {form}": Try(406, "not_acceptable", target, headers={"accept": form})
    for target, forms in {
        WINDOWS: ("text/html", "application/xml", "application/json;q=0", "x", "text/event-stream"),
        VIEWS: ("text/csv", "application/vnd.apache.arrow.stream"),
    }.items()
    for form in forms
}
TRIES = {**PARAMETERS, **PATHS, **OTHERS, **CREDENTIALS, **SIGNED, **SESSIONS, **METHODS, **FORMS}


@pytest.fixture
def gateway(tmp_path: Path, release: Make, refusal: Make) -> Gateway:
    records = {
        ("pages", "public"): [release({"home": 900}), refusal(day=3)],
        ("pages", "staff"): [release({"home": 910}, audience="staff", level=1)],
        ("searches", "staff"): [release({"x": 5}, view="searches", audience="staff")],
        ("pages", "partner"): [release({"home": 905})],
        ("secrets", "partner"): [release({"home": 905})],
    }
    found = gateway_of(tmp_path, records)
    found.requests = found.failures = RequestRate(1, 1000, lambda: 0)
    issuer = Issuer()
    found.tokens.signed = JwtTokens(PLAN, ("public", "staff"), lambda: NOW, issuer.fetch, issuer.clock).given
    return found


@pytest.fixture
def named(gateway: Gateway) -> Mapping[str, str]:
    """Tokens of the staff by the words that stand for them."""
    token, expired, revoked = (token_of(gateway, "staff", ms) for ms in (None, NOW, None))
    entry = gateway.tokens.entry(revoked)
    assert entry is not None
    assert gateway.tokens.file is not None
    revoke_token(gateway.tokens.file, entry.id)
    gateway.tokens.look()
    known = gateway.tokens.entry(token)
    assert known is not None
    names = {"TOKEN": token, "CUT": token[:-1], "UPPER": token.upper(), "EXPIRED": expired, "REVOKED": revoked}
    return {**names, "OPERATOR": token.replace("sdp_", "sdpo_"), "HASH": known.sha256, "JWT": signed()}


def filled(text: str, named: Mapping[str, str]) -> str:
    """A text with the tokens that its words stand for."""
    head, wrong, name = text.partition("WRONG ")
    if wrong:
        return head + WRONG_TOKENS[name.removesuffix('"}')]() + ('"}' if name.endswith('"}') else "")
    for word, token in named.items():
        text = text.replace(word, token)
    return text


async def answer_of(gateway: Gateway, one: Try, named: Mapping[str, str]) -> Answer:
    body = one.body if len(one.body) > 100 else filled(one.body.decode("latin-1"), named).encode("latin-1")
    headers = {name: filled(value, named) for name, value in one.headers.items()}
    return await ask(gateway.app(), filled(one.target, named), one.method, body, **headers)


def test_there_are_some_hundred_ways_to_fail() -> None:
    assert len(TRIES) == sum(map(len, (PARAMETERS, PATHS, OTHERS, CREDENTIALS, SIGNED, SESSIONS, METHODS, FORMS)))
    assert len(TRIES) >= 200


@pytest.mark.parametrize("name", spread(3, TRIES))
async def test_a_request_that_must_fail_fails_for_its_reason(
    gateway: Gateway, named: Mapping[str, str], name: str
) -> None:
    one = TRIES[name]
    answer = await answer_of(gateway, one, named)
    if one.method != "HEAD":
        assert (answer.json["status"], answer.json["type"]) == (one.status, one.kind)
    assert answer.status == one.status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    assert {header: answer.headers[header.lower()] for header in SECURITY} == SECURITY
    assert "set-cookie" not in answer.headers
    if one.status in (401, 404):
        usual = await answer_of(
            gateway, absent("/x") if one.status == 404 else refused(authorization="Bearer x"), named
        )
        assert (answer.body, answer.headers) == (usual.body, usual.headers)


async def test_the_same_credentials_are_good_where_they_belong(gateway: Gateway, named: Mapping[str, str]) -> None:
    for headers in (BEARER, {"cookie": "sdp-staff=TOKEN"}, {"authorization": "Bearer JWT"}, {}):
        assert (await answer_of(gateway, Try(200, "", VIEWS, headers=headers), named)).status == 200
    made = session(204, "", b'{"token": "TOKEN"}')
    assert (await answer_of(gateway, made, named)).status == 204


class Work(Counter[str]):
    """Calls of functions of the package while this is entered, and of hashes."""

    def __enter__(self) -> Work:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call" and what.__name__ in ("openssl_sha256", "sha256", "compare_digest"):
            self[what.__name__] += 1
        if event == "call" and "/stream_dp/" in frame.f_code.co_filename:
            self[frame.f_code.co_qualname] += 1


async def test_guesses_make_the_same_work_whether_they_are_near_or_not(
    gateway: Gateway, named: Mapping[str, str]
) -> None:
    def guess(credential: str, target: str = VIEWS) -> Try:
        return Try(0, "", target, headers={"authorization": f"Bearer {credential}"})

    tokens = [guess(word) for word in ("CUT", "REVOKED", "OPERATOR", "sdp_" + "A" * 43, "HASH", "")]
    audiences = [guess("TOKEN", f"{VIEWS}?audience={name}") for name in ("public", "partner", "nobody")]
    views = [guess("TOKEN", f"{VIEWS}/{name}/windows") for name in ("secrets", "nothing")]
    work = {}
    for name, guesses in {"tokens": tokens, "audiences": audiences, "views": views}.items():
        found = []
        for one in guesses:
            await answer_of(gateway, one, named)
            with Work() as counted:
                await answer_of(gateway, one, named)
            found.append(counted)
        assert all(other == found[0] for other in found), name
        work[name] = found[0]
    hashes = [{name: count for name, count in one.items() if "." not in name} for one in work.values()]
    secret = [(one.get("openssl_sha256"), one.get("compare_digest")) for one in hashes]
    assert secret == [secret[0]] * 3
    assert secret[0][1] == 1


def worlds(tmp_path: Path, release: Make, refusal: Make) -> Iterator[Gateway]:
    """Two gateways: the same releases for the public, and others for the rest."""
    mine = [release({"home": 900 + day, "<b>": 40}, day=day) for day in range(6)]
    mine += [release({"home": 901}, day=1, revision=2, level=1), refusal(day=7), release({}, day=8)]
    rest: list[dict[tuple[str, str], Any]] = [
        {("pages", "staff"): [release({"home": 910}, audience="staff", level=1)]},
        {
            ("pages", "staff"): [refusal(audience="staff", day=day) for day in range(40)],
            ("pages", "partner"): [release({f"{'x' * 100}{n}": 400 for n in range(500)}, day=9)],
            ("searches", "staff"): [release({"x": 5}, view="searches", audience="staff")],
        },
    ]
    for place, theirs in enumerate(rest):
        folder = tmp_path / str(place)
        folder.mkdir()
        yield gateway_of(folder, {("pages", "public"): mine, **theirs})


async def test_no_byte_of_an_audience_depends_on_another(tmp_path: Path, release: Make, refusal: Make) -> None:
    targets = [VIEWS, WINDOWS, f"{WINDOWS}?limit=2", f"{WINDOWS}?revisions=all", f"{WINDOWS}/1970-01-02", "/v1/ledgers"]
    targets += [f"{WINDOWS}/1970-01-01", f"{SERIES}?item=home&item=x&smooth=3&diff=1", "/v1/schema", "/openapi.json"]
    targets += ["/", "/readyz", "/livez", EVENTS, f"{EVENTS}?after=00000000-2", f"{EVENTS}?after=00000000-99"]
    targets += ["/v1/events", "/v1/events?after=pages.00000000-0", f"{VIEWS}?audience=staff", f"{WINDOWS}?audience=x"]
    targets += [f"{VIEWS}/searches/{name}" for name in ("windows", "series?item=x", "events")]
    forms = ["*/*", "text/csv", "application/vnd.apache.arrow.stream", "text/html"]
    answers = []
    for gateway in worlds(tmp_path, release, refusal):
        gateway.requests = gateway.failures = RequestRate(1, 1000, lambda: 0)
        app = gateway.app()
        found = [await ask(app, target, accept=form) for target in targets for form in forms]
        tag = {"if_none_match": found[4].headers["etag"], "accept_encoding": "gzip"}
        found += [await ask(app, target, **tag) for target in targets]
        answers.append([(one.status, one.headers, one.body) for one in found])
    assert {status for status, _, _ in answers[0]} == {200, 401, 404, 406}
    assert answers[0] == answers[1]


async def test_what_memory_drops_of_an_audience_does_not_depend_on_another(
    tmp_path: Path, release: Make, refusal: Make
) -> None:
    held = []
    for gateway in worlds(tmp_path, release, refusal):
        boards = Boards(9000, started=True)
        for board in gateway.boards:
            boards.put(board)
            boards.bound(board.audience)
        assert all(sum(b.bytes_held for b in boards.of(name).values()) <= 9000 for name in ("public", "staff"))
        app = routes.Gateway(gateway.serve, boards, gateway.tokens, lambda: NOW).app()
        held.append([(await ask(app, f"{WINDOWS}/1970-01-0{day}")).body for day in range(1, 10)])
    assert held[0] == held[1]
    assert b'"gone"' in held[0][0]
