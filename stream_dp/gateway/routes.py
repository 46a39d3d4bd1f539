"""The gateway as an ASGI application: routes, credentials, limits, headers; what is answered is in `api`."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
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
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stream_dp.config.plan import ServePlan
from stream_dp.gateway import api
from stream_dp.gateway.api import Page, RequestError
from stream_dp.gateway.boards import Board, Boards, BoardWindow, compact
from stream_dp.gateway.streams import EventResponse, Hub, PositionError, Stream, parse_positions
from stream_dp.gateway.tokens import (
    LOOK_SECONDS,
    Reader,
    RequestRate,
    Tokens,
    UncheckedError,
    cookie_audience,
    cookie_name,
    reader_of,
)
from stream_dp.records.codec import SCHEMA_NAMES, schema
from stream_dp.runtime.clock import wall_clock_ms
from stream_dp.windows.durations import parse_time

LONGEST_URL, LARGEST_BODY = 4 << 10, 64 << 10
COMPRESSED_FROM = 1 << 10
STATIC = Path(__file__).with_name("static")
LOG = logging.getLogger("stream_dp.gateway")
STATUSES: Mapping[str, tuple[int, str]] = {
    "bad_request": (400, "The request is wrong"),
    "unauthorized": (401, "A token is needed"),
    "tls_required": (403, "TLS is needed"),
    "wrong_origin": (403, "Requests of other pages are refused"),
    "not_found": (404, "Not found"),
    "gone": (404, "No longer here"),
    "not_acceptable": (406, "Not in this form"),
    "too_large": (413, "Too large"),
    "too_many": (429, "Too many requests"),
    "broken": (500, "The gateway has an error"),
    "starting": (503, "The gateway is starting"),
    "issuer_silent": (503, "Tokens cannot be checked now"),
    "broker_silent": (503, "Releases cannot be read now"),
}
_NOT_FOUND = "There is nothing here for these credentials."
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_COOKIE_SECONDS = 400 * 86_400
_JSON, _CSV, _ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
_FORMS = {_JSON: "json", _CSV: "csv", _ARROW: "arrow"}
_PAGE = ("from", "until", "limit", "cursor")
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
Work = Callable[[Request, "Asked"], Awaitable[Response]]


@dataclass(frozen=True)
class Asked:
    """A request that may be answered: the audience, its boards, and the parameters."""

    reader: Reader
    audience: str
    boards: Mapping[str, Board]
    many: Mapping[str, Sequence[str]]

    def one(self, name: str) -> str | None:
        """Return a parameter that may be there once."""
        values = self.many.get(name, ())
        if len(values) > 1:
            raise RequestError("bad_request", f"{name}: write it once")
        return values[0] if values else None

    def board(self, view: str) -> Board:
        """Return the board of a view that the audience reads."""
        if view not in self.boards:
            raise RequestError("not_found", _NOT_FOUND)
        return self.boards[view]

    def page(self, most: int, usual: int) -> Page:
        """Return the range of windows that is asked for."""
        begins, ends, limit, before = map(self.one, _PAGE)
        return Page(
            None if begins is None else api.moment("from", begins),
            None if ends is None else api.moment("until", ends),
            usual if limit is None else api.number("limit", limit, most),
            None if before is None else api.window_of(before),
        )


@dataclass
class Gateway:
    """What requests share."""

    serve: ServePlan
    boards: Boards
    tokens: Tokens
    now_ms: Callable[[], int] = wall_clock_ms
    static: Path = STATIC
    requests: RequestRate = field(default_factory=lambda: RequestRate(20, 100))
    failures: RequestRate = field(default_factory=lambda: RequestRate(1 / 6, 10))

    def __post_init__(self) -> None:
        self.hub = Hub(self.tokens)

    def app(self, read: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Starlette:
        """Return the application; `read` fills the boards as long as it runs."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            self.tokens.look()
            tasks = [asyncio.create_task(work()) for work in (self._look, read) if work is not None]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                for task in tasks:
                    with suppress(asyncio.CancelledError):
                        await task

        view, page = "/v1/views/{view}", _PAGE
        routes: list[Route | Mount] = [
            self._route("/v1/views", self._views),
            self._route(f"{view}/windows", self._windows, *page, "revisions"),
            self._route(f"{view}/windows/{{start}}", self._window, "end", "revision"),
            self._route(f"{view}/series", self._series, *page, "item", "smooth", "diff"),
            self._route(f"{view}/events", self._events, "after"),
            self._route("/v1/events", self._events, "after", "view"),
            self._route("/v1/ledgers", self._ledgers),
            self._route("/v1/schema", self._schema, "name"),
            Route("/v1/session", self._guarded(self._sign_in), methods=["POST"]),
            Route("/v1/session", self._guarded(self._sign_out), methods=["DELETE"]),
            Route("/openapi.json", self._guarded(self._openapi)),
            Route("/livez", self._guarded(self._live)),
            Route("/readyz", self._guarded(self._is_ready)),
        ]
        self._described = [route for route in routes if isinstance(route, Route)]
        if self.static.is_dir():
            routes.append(Mount("/", StaticFiles(directory=self.static, html=True)))
        cors = Middleware(
            CORSMiddleware,
            allow_origins=self.serve.origins,
            allow_headers=["Authorization", "Last-Event-ID"],
            expose_headers=["ETag", "Stream-Position"],
        )
        outer = [Middleware(_Edge), *([cors] if self.serve.origins else [])]
        app = Starlette(
            routes=routes,
            middleware=outer,
            lifespan=lifespan,
            exception_handlers={HTTPException: _http_problem, Exception: _broken},
        )
        app.router.redirect_slashes = False
        return app

    async def _look(self) -> None:
        """Notice tokens that are new, revoked or expired."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.tokens.look() and self.tokens.fault:
                LOG.error("no token is good now: %s", self.tokens.fault)
            self.hub.check_tokens()

    def _guarded(self, work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await work(request)
            except RequestError as found:
                return problem(found)

        return endpoint

    def _route(self, path: str, work: Work, *parameters: str) -> Route:
        async def answer(request: Request) -> Response:
            reader = await self._reader(request)
            many = {name: request.query_params.getlist(name) for name in request.query_params}
            audience = self._audience(reader, many.get("audience", ()))
            if unknown := many.keys() - {"audience", *parameters}:
                raise RequestError(
                    "bad_request", f"unknown parameter {min(unknown)[:40]!r}; known: {', '.join(parameters)}"
                )
            if not self.boards.started:
                raise RequestError(
                    "broker_silent" if self.boards.silent else "starting", "Try again.", {"Retry-After": "1"}
                )
            response = await work(request, Asked(reader, audience, self.boards.of(audience), many))
            response.headers["Vary"] = "Accept, Accept-Encoding, Authorization, Cookie"
            if self.boards.silent:
                response.headers["Warning"] = '110 - "Response is Stale"'
            if "cache-control" not in response.headers:
                is_public = audience in self.serve.public
                response.headers["Cache-Control"] = (
                    "public, max-age=1" if is_public else "private, max-age=0, must-revalidate"
                )
            return response

        return Route(path, self._guarded(answer), name=" ".join(parameters) or "none")

    async def _reader(self, request: Request) -> Reader:
        address = request.client.host if request.client else ""
        authorization = request.headers.get("authorization")
        reader = await reader_of(self.tokens, self.serve.public, authorization, request.cookies, address)
        request.scope["stream_dp.reader"] = reader.key if any(reader.audiences.values()) else "-"
        _within(self.requests.take(reader.key))
        return reader

    def _audience(self, reader: Reader, wanted: Sequence[str]) -> str:
        """Return the audience that is asked for; whether others exist is not said."""
        if len(wanted) > 1:
            raise RequestError("bad_request", "audience: write it once")
        if wanted and wanted[0] in reader.audiences:
            return wanted[0]
        if reader.is_unchecked:
            _unchecked()
        if reader.is_bad:
            _within(self.failures.take(reader.key))
            _unauthorized()
        if wanted and any(reader.audiences.values()):
            raise RequestError("not_found", _NOT_FOUND)
        if wanted or not reader.audiences:
            _unauthorized()
        return next(iter(reader.audiences))

    async def _answer(
        self, request: Request, position: str, make: Mapping[str, Callable[[], bytes]], headers: Mapping[str, str]
    ) -> Response:
        """Answer in the form that the client accepts; 304 without making a body."""
        kind = _accepted(request.headers.get("accept", "*/*"), make)
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{position}.{_FORMS[kind]}{"+gzip" if zipped else ""}"'
        headers = {**headers, "ETag": tag}
        known = {one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")}
        if known & {tag, "*"}:
            return Response(status_code=304, headers=headers)
        body = make[kind]()
        if len(body) > api.LARGEST_ANSWER + (1 << 20):
            raise RequestError("too_large", "Ask for fewer windows: lower `limit`, and go on with `cursor`.")
        if zipped and len(body) > COMPRESSED_FROM:
            body = await run_in_threadpool(gzip.compress, body, 5, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(body, media_type=f"{kind}; charset=utf-8" if kind == _CSV else kind, headers=headers)

    async def _table(
        self,
        request: Request,
        board: Board,
        json: Callable[[], bytes],
        cells: Callable[[], list[BoardWindow]],
        at: str,
        items: Sequence[str] = (),
    ) -> Response:
        forms = {
            _JSON: json,
            _CSV: lambda: api.as_csv(api.rows(cells(), items)),
            _ARROW: lambda: api.as_arrow(api.rows(cells(), items), api.record_metadata(cells())),
        }
        return await self._answer(request, at, forms, {"Stream-Position": board.position})

    async def _views(self, request: Request, asked: Asked) -> Response:
        at = _digest(asked)
        positions = "~".join(f"{view}.{board.position}" for view, board in asked.boards.items())
        return await self._answer(
            request,
            at,
            {_JSON: lambda: api.views(asked.boards, asked.reader.audiences)},
            {"Stream-Position": positions},
        )

    async def _windows(self, request: Request, asked: Asked) -> Response:
        board = asked.board(request.path_params["view"])
        page = asked.page(api.MOST_WINDOWS, api.USUAL_WINDOWS)
        if (revisions := asked.one("revisions") or "newest") not in ("newest", "all"):
            raise RequestError("bad_request", "revisions: write newest or all")

        def cells() -> list[BoardWindow]:
            return [board.cells[window] for window in api.chosen(board, page)[: page.limit]]

        return await self._table(
            request, board, lambda: api.windows(board, page, with_replaced=revisions == "all"), cells, _at(board)
        )

    async def _window(self, request: Request, asked: Asked) -> Response:
        board, start = asked.board(request.path_params["view"]), request.path_params["start"]
        cell, body = api.one(board, start, asked.one("end"), asked.one("revision"))
        return await self._table(request, board, lambda: body, lambda: [cell], f"{board.topic}-{cell.offset}")

    async def _series(self, request: Request, asked: Asked) -> Response:
        board, items = asked.board(request.path_params["view"]), list(dict.fromkeys(asked.many.get("item", ())))
        if not 1 <= len(items) <= api.MOST_ITEMS:
            raise RequestError("bad_request", f"item: write it 1 to {api.MOST_ITEMS} times")
        page = asked.page(api.MOST_ENTRIES // len(items), api.MOST_ENTRIES // len(items))
        smooth, diff = asked.one("smooth"), asked.one("diff")
        if smooth not in (None, "3", "5") or diff not in (None, "1"):
            raise RequestError("bad_request", "smooth: write 3 or 5; diff: write 1")
        width, step = (None if text is None else int(text) for text in (smooth, diff))

        def cells() -> list[BoardWindow]:
            return [board.cells[window] for window in reversed(api.chosen(board, page)[: page.limit])]

        return await self._table(
            request, board, lambda: api.series(board, items, page, width, step), cells, _at(board), items
        )

    async def _events(self, request: Request, asked: Asked) -> Response:
        named = request.path_params.get("view")
        views = [named] if named else list(dict.fromkeys(asked.many.get("view", asked.boards)))
        boards = {view: asked.board(view) for view in views}
        text = request.headers.get("last-event-id") or asked.one("after")
        try:
            after = {} if not text else parse_positions(text, views)
        except PositionError:
            raise RequestError("bad_request", "after: use a position of an answer or an event as it is") from None
        entry = asked.reader.audiences[asked.audience]
        key = asked.reader.key
        if not self.hub.has_room(key, has_token=entry is not None):
            raise RequestError("too_many", "Close other streams first.", {"Retry-After": "10"})
        stream = Stream(boards, named is not None, entry, self.now_ms, after)
        return EventResponse(stream, self.hub, key, {"Cache-Control": "no-store"})

    async def _ledgers(self, request: Request, asked: Asked) -> Response:
        return await self._answer(request, _digest(asked), {_JSON: lambda: api.ledgers(asked.boards.values())}, {})

    async def _schema(self, request: Request, asked: Asked) -> Response:
        name = asked.one("name") or "record"
        if name not in SCHEMA_NAMES or name == "entry":
            raise RequestError("bad_request", "name: write record, refusal or a kind")
        return await self._answer(request, f"schema-{name}", {_JSON: lambda: compact(schema(name))}, {})

    async def _sign_in(self, request: Request) -> Response:
        self._check_change(request)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                raise RequestError("too_large", f"A body has at most {LARGEST_BODY} bytes.")
        try:
            token = msgspec.json.decode(body, type=dict[str, str])["token"]
        except (msgspec.MsgspecError, KeyError, UnicodeError):
            raise RequestError("bad_request", 'Send {"token": "sdp_..."}.') from None
        try:
            given = await self.tokens.given(token)
        except UncheckedError:
            _unchecked()
        if not given:
            _within(self.failures.take(request.client.host if request.client else ""))
            _unauthorized()
        response = Response(status_code=204)
        for audience, entry in given.items():
            lasts = _COOKIE_SECONDS
            if entry.expires is not None:
                lasts = min(lasts, (parse_time(entry.expires) - self.now_ms()) // 1000)
            _set_cookie(response, request, audience, token, lasts)
        return response

    async def _sign_out(self, request: Request) -> Response:
        self._check_change(request)
        response = Response(status_code=204)
        for name in request.cookies:
            if audience := cookie_audience(name):
                _set_cookie(response, request, audience, "", 0)
        return response

    def _check_change(self, request: Request) -> None:
        """Refuse a change that another page, or a page without TLS elsewhere, has asked for."""
        _within(self.requests.take(request.client.host if request.client else ""))
        url = request.url
        if url.scheme != "https" and url.hostname not in _LOOPBACK:
            raise RequestError("tls_required", "Use https: a token is sent.")
        if request.headers.get("origin") != f"{url.scheme}://{request.headers.get('host', '')}":
            raise RequestError("wrong_origin", "Only the gateway's own page may ask for this.")
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise RequestError("bad_request", f"Content-Type: write {_JSON}")

    async def _live(self, _: Request) -> Response:
        return Response(compact({"status": "ok"}), media_type=_JSON)

    async def _is_ready(self, _: Request) -> Response:
        if not self.boards.ready or self.boards.silent:
            raise RequestError(
                "broker_silent" if self.boards.silent else "starting", "Try again.", {"Retry-After": "1"}
            )
        return Response(compact({"status": "ready"}), media_type=_JSON)

    async def _openapi(self, _: Request) -> Response:
        paths: dict[str, Any] = {}
        for route in self._described:
            inner = [part.partition("}")[0] for part in route.path.split("{")[1:]]
            named = [] if route.name == "none" or not route.path.startswith("/v1") else route.name.split()
            query = [name for name in named if name.islower() and not name.startswith("_")]
            fields = [(name, "path") for name in inner] + [(name, "query") for name in ["audience", *query]]
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(route.path, {})[method.lower()] = {
                    "parameters": [
                        {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
                        for name, place in fields
                    ],
                    "responses": {"default": {"description": "the answer, or application/problem+json"}},
                }
        info = {"title": "stream-dp gateway", "version": "1"}
        return Response(compact({"openapi": "3.1.0", "info": info, "paths": paths}), media_type=_JSON)


def _within(wait: float) -> None:
    if wait:
        raise RequestError("too_many", "Wait, then try again.", {"Retry-After": str(int(wait) + 1)})


def _unauthorized() -> NoReturn:
    raise RequestError("unauthorized", "Send a reader's token.", {"WWW-Authenticate": "Bearer"})


def _unchecked() -> NoReturn:
    raise RequestError("issuer_silent", "Try again.", {"Retry-After": "10"})


def _at(board: Board) -> str:
    """Position of a list: what memory has no room for changes it, too."""
    return f"{board.position}-{len(board.order)}"


def _digest(asked: Asked) -> str:
    places = [_at(board) for board in asked.boards.values()]
    return hashlib.sha256(repr((places, sorted(asked.reader.audiences))).encode()).hexdigest()[:16]


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


def _set_cookie(response: Response, request: Request, audience: str, token: str, lasts_s: int) -> None:
    is_secure = request.url.scheme == "https"
    name = cookie_name(audience, is_secure=is_secure)
    response.set_cookie(name, token, max_age=lasts_s, httponly=True, secure=is_secure, samesite="strict", path="/")


def problem(found: RequestError, status: int | None = None) -> Response:
    """Return an error as `application/problem+json`; those of one type have the same bytes where nothing is to add."""
    usual, title = STATUSES[found.kind]
    detail = _NOT_FOUND if found.kind == "not_found" else found.detail
    body = {"type": found.kind, "title": title, "status": status or usual, "detail": detail}
    headers = {"Cache-Control": "no-store", **found.headers}
    return Response(compact(body), status or usual, headers, "application/problem+json")


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
        route, taken_ms = scope.get("route"), (time.monotonic_ns() - began) // 1_000_000
        template = route.path if isinstance(route, Route) else "static"
        LOG.info(
            "%s %s %d %d B %d ms %s",
            *(scope["method"], template, status, size, taken_ms, scope.get("stream_dp.reader", "-")),
        )
