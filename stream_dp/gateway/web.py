"""HTTP that readers' gateway and operators' console share: errors, headers, sizes, forms, changes, the application."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import mimetypes
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.gateway.api import LARGEST_ANSWER, RequestError
from stream_dp.gateway.boards import compact
from stream_dp.gateway.streams import EventResponse, Hub, PositionError, Stream, parse_positions
from stream_dp.gateway.tokens import LOOK_SECONDS, Entry, RequestRate, Tokens, UncheckedError

LONGEST_URL, LARGEST_BODY = 4 << 10, 64 << 10
COMPRESSED_FROM, KEPT_TO = 1 << 10, 160 << 10
"""Bytes of a body: of those between, the compressed ones that were asked for last are kept."""
STATIC = Path(__file__).with_name("static")
LOG = logging.getLogger("stream_dp.gateway")
JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
PROBLEM = "application/problem+json"
FORMS = {JSON: "json", CSV: "csv", ARROW: "arrow"}
NOT_FOUND = "There is nothing here for these credentials."
STATUSES: Mapping[str, tuple[int, str]] = {
    "bad_request": (400, "The request is wrong"),
    "unauthorized": (401, "A token is needed"),
    "tls_required": (403, "TLS is needed"),
    "wrong_origin": (403, "Requests of other pages are refused"),
    "not_found": (404, "Not found"),
    "gone": (404, "No longer here"),
    "not_acceptable": (406, "Not in this form"),
    "settings_changed": (409, "Other settings are in effect"),
    "plan_changed": (409, "The change means something else now"),
    "too_large": (413, "Too large"),
    "faults": (422, "The change is impossible"),
    "too_many": (429, "Too many requests"),
    "broken": (500, "The gateway has an error"),
    "starting": (503, "The gateway is starting"),
    "issuer_silent": (503, "Tokens cannot be checked now"),
    "broker_silent": (503, "Kafka cannot be read now"),
}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


def application(
    routes: Sequence[Route],
    hub: Hub,
    *work: Callable[[], Coroutine[Any, Any, None]] | None,
    origins: Sequence[str] = (),
) -> Starlette:
    """Return an application that looks at the tokens of its streams, and does some work, as long as it runs.

    Args:
        routes: its routes.
        hub: its streams.
        work: what runs beside it.
        origins: of pages elsewhere that may ask.
    """

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if hub.tokens.look() and hub.tokens.fault:
                LOG.error("no token is good now: %s", hub.tokens.fault)
            hub.check_tokens()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        hub.tokens.look()
        tasks = [asyncio.create_task(one()) for one in (look, *work) if one is not None]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_headers=["Authorization", "Last-Event-ID"],
        expose_headers=["ETag", "Stream-Position"],
    )
    app = Starlette(
        routes=routes,
        middleware=[Middleware(_Edge, answers=hub.answers), *([cors] if origins else [])],
        lifespan=lifespan,
        exception_handlers={HTTPException: _http_problem, Exception: _broken},
    )
    app.router.redirect_slashes = False
    return app


async def _live(_: Request) -> Response:
    return Response(compact({"status": "ok"}), media_type=JSON)


LIVE = Route("/livez", _live)


def guarded(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler whose errors become answers."""

    async def endpoint(request: Request) -> Response:
        try:
            return await work(request)
        except RequestError as found:
            return problem(found)

    return endpoint


def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, 5, mtime=0)


_kept = lru_cache(maxsize=128)(_compressed)


async def respond(
    request: Request, position: str, make: Mapping[str, Callable[[], bytes]], headers: Mapping[str, str]
) -> Response:
    """Answer in the form that the client accepts; 304 without making a body.

    Args:
        request: of the client.
        position: of what is answered; what is at the same position has not changed.
        make: by form, makes the body.
        headers: of the answer.
    """
    kind = _accepted(request.headers.get("accept", "*/*"), make)
    zipped = "gzip" in request.headers.get("accept-encoding", "")
    tag = f'"{position}.{FORMS.get(kind, "file")}{"+gzip" if zipped else ""}"'
    headers = {**headers, "ETag": tag}
    known = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    body = make[kind]()
    if len(body) > LARGEST_ANSWER + (1 << 20):
        raise RequestError("too_large", "Ask for fewer windows: lower `limit`, and go on with `cursor`.")
    if zipped and len(body) > COMPRESSED_FROM:
        body = await run_in_threadpool(_compressed if len(body) > KEPT_TO else _kept, body)
        headers["Content-Encoding"] = "gzip"
    return Response(body, media_type=f"{kind}; charset=utf-8" if kind == CSV else kind, headers=headers)


def page_of(first: str, folder: Path = STATIC) -> list[Route]:
    """Return routes to the files of the pages; `first` is at the root, too."""

    def route(path: str, file: Path) -> Route:
        body, kind = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "text/plain"
        tag = hashlib.sha256(body).hexdigest()[:16]

        async def answer(request: Request) -> Response:
            return await respond(request, tag, {kind: lambda: body}, {"Vary": "Accept, Accept-Encoding"})

        return Route(path, guarded(answer))

    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return [route("/", folder / first), *(route(f"/{file.relative_to(folder).as_posix()}", file) for file in files)]


def resumed(request: Request, after: str | None, views: Iterable[str]) -> Mapping[str, tuple[str, int]]:
    """Return the positions by view that a client comes back with; its header wins over the parameter `after`."""
    text = request.headers.get("last-event-id") or after
    try:
        return parse_positions(text, views) if text else {}
    except PositionError:
        raise RequestError("bad_request", "after: use a position of an answer or an event as it is") from None


def streamed(stream: Stream, hub: Hub, key: str) -> Response:
    """Answer with a stream, if the reader has not too many."""
    if not hub.has_room(key, stream):
        raise RequestError("too_many", "Close other streams first.", {"Retry-After": "10"})
    return EventResponse(stream, hub, key)


def check_change(request: Request) -> None:
    """Refuse a change that another page, or a page without TLS elsewhere, has asked for."""
    url = request.url
    if url.scheme != "https" and url.hostname not in LOOPBACK:
        raise RequestError("tls_required", "Use https: a token is sent.")
    if request.headers.get("origin") != f"{url.scheme}://{request.headers.get('host', '')}":
        raise RequestError("wrong_origin", "Only the gateway's own page may ask for this.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise RequestError("bad_request", f"Content-Type: write {JSON}")


async def read_body(request: Request) -> bytes:
    """Return the body of a request, if it is not too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_BODY:
            raise RequestError("too_large", f"A body has at most {LARGEST_BODY} bytes.")
    return body


def address_of(request: Request) -> str:
    """Return the address of a client."""
    return request.client.host if request.client else ""


async def sign_in(
    request: Request, tokens: Tokens, failures: RequestRate, whose: str
) -> tuple[Mapping[str, Entry], str]:
    """Return what the good token in the body of a request gives, and the token; `whose` it is to be."""
    check_change(request)
    try:
        token = msgspec.json.decode(await read_body(request), type=dict[str, str])["token"]
    except (msgspec.MsgspecError, KeyError, UnicodeError):
        raise RequestError("bad_request", f'Send {{"token": "{tokens.prefix}..."}}.') from None
    try:
        given = await tokens.given(token)
    except UncheckedError:
        unchecked()
    if not given:
        within(failures.take(address_of(request)))
        unauthorized(whose)
    return given, token


def set_cookie(response: Response, request: Request, name: str, token: str, lasts_s: int) -> None:
    """Let a browser keep a token, where no script reads it and no other site's page sends it; for 0 s: forget it."""
    is_secure = request.url.scheme == "https"
    name = f"{'__Host-' if is_secure else ''}{name}"
    response.set_cookie(name, token, max_age=lasts_s, httponly=True, secure=is_secure, samesite="strict", path="/")


def within(wait: float) -> None:
    """Refuse a request that has to wait for some seconds."""
    if wait:
        raise RequestError("too_many", "Wait, then try again.", {"Retry-After": str(int(wait) + 1)})


def unauthorized(whose: str) -> NoReturn:
    """Refuse a request without a good token; `whose` it needs."""
    raise RequestError("unauthorized", f"Send {whose} token.", {"WWW-Authenticate": "Bearer"})


def unchecked() -> NoReturn:
    """Refuse a request whose token cannot be checked now."""
    raise RequestError("issuer_silent", "Try again.", {"Retry-After": "10"})


def _accepted(accept: str, offered: Mapping[str, object]) -> str:
    """Return the form that a client prefers, of those that are offered."""
    wanted = []
    for part in accept.split(","):
        name, *options = (one.strip().lower() for one in part.split(";"))
        quality = next((option[2:] for option in options if option.startswith("q=")), "1")
        if quality.strip("0.") or quality.startswith("1"):
            wanted.append((quality if quality.startswith(("0.", "1")) else "0", name))
    for _, name in sorted(wanted, key=lambda one: one[0], reverse=True):
        for kind in offered:
            if name in (kind, "*/*", f"{kind.partition('/')[0]}/*"):
                return kind
    raise RequestError("not_acceptable", f"Forms: {', '.join(offered)}")


def problem(found: RequestError, status: int | None = None) -> Response:
    """Return an error as `application/problem+json`; those of one type have the same bytes where nothing is to add."""
    usual, title = STATUSES[found.kind]
    detail = NOT_FOUND if found.kind == "not_found" else found.detail
    body = {"type": found.kind, "title": title, "status": status or usual, "detail": detail, **found.more}
    headers = {"Cache-Control": "no-store", **found.headers}
    return Response(compact(body), status or usual, headers, PROBLEM)


def personal(response: Response, *, is_stale: bool, is_public: bool = False) -> Response:
    """Set the headers of an answer that depends on who asks."""
    response.headers["Vary"] = "Accept, Accept-Encoding, Authorization, Cookie"
    if is_stale:
        response.headers["Warning"] = '110 - "Response is Stale"'
    cached = "public, max-age=1" if is_public else "private, max-age=0, must-revalidate"
    response.headers.setdefault("Cache-Control", cached)
    return response


async def _http_problem(_: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 404
    if code == 405:
        return problem(RequestError("bad_request", "This method is not for this address."), 405)
    return problem(RequestError("not_found" if code < 500 else "broken", ""))


async def _broken(_: Request, error: Exception) -> Response:
    LOG.error("a request failed: %s", type(error).__name__)
    return problem(RequestError("broken", "Try again; the gateway's log has more."))


@dataclass
class _Edge:
    """Outermost: sizes of addresses, headers of every answer, a line in the log without a secret or an item."""

    app: ASGIApp
    answers: Counter[int]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size = time.monotonic_ns(), 0, 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
                if scope["scheme"] == "https":
                    headers["Strict-Transport-Security"] = "max-age=31536000"
                headers.setdefault("Cache-Control", "no-cache")
            size += len(message.get("body", b""))
            await send(message)

        length = len(scope["raw_path"]) + len(scope["query_string"])
        if length > LONGEST_URL:
            await problem(RequestError("bad_request", "The address is too long."), 414)(scope, receive, sending)
        elif "\0" in scope["path"]:
            await problem(RequestError("not_found", ""))(scope, receive, sending)
        else:
            await self.app(scope, receive, sending)
        self.answers[status] += 1
        route, taken_ms = scope.get("route"), (time.monotonic_ns() - began) // 1_000_000
        template = route.path if isinstance(route, Route) else "-"
        LOG.info(
            "%s %s %d %d B %d ms %s",
            *(scope["method"], template, status, size, taken_ms, scope.get("stream_dp.reader", "-")),
        )
