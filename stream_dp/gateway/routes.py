"""The gateway as an ASGI application: routes, credentials, limits, headers; what is answered is in `api`."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_dp.config.file_schema import ServeConfig
from stream_dp.gateway import api
from stream_dp.gateway.api import Page, RequestError
from stream_dp.gateway.boards import Board, Boards, BoardWindow, compact
from stream_dp.gateway.openapi import Operation, document
from stream_dp.gateway.streams import Hub, Stream
from stream_dp.gateway.tokens import COOKIE, Reader, RequestRate, Tokens, reader_of
from stream_dp.gateway.web import (
    ARROW,
    CSV,
    JSON,
    LIVE,
    NOT_FOUND,
    address_of,
    application,
    check_change,
    guarded,
    page_of,
    personal,
    respond,
    resumed,
    set_cookie,
    sign_in,
    streamed,
    unauthorized,
    unchecked,
    within,
)
from stream_dp.records.codec import SCHEMA_NAMES, schema
from stream_dp.records.table import rows
from stream_dp.runtime.clock import wall_clock_ms

READERS = "a reader's"
_PAGE = ("from", "until", "limit", "cursor")
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
            raise RequestError("not_found", NOT_FOUND)
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

    serve: ServeConfig
    boards: Boards
    tokens: Tokens
    now_ms: Callable[[], int] = wall_clock_ms
    requests: RequestRate = field(default_factory=lambda: RequestRate(20, 100))
    failures: RequestRate = field(default_factory=lambda: RequestRate(1 / 6, 10))

    def __post_init__(self) -> None:
        self.hub = Hub(self.tokens)
        self._parameters: dict[str, Sequence[str]] = {}

    def app(self, read: Callable[[], Coroutine[Any, Any, None]] | None = None) -> Starlette:
        """Return the application; `read` fills the boards as long as it runs."""
        view, page = "/v1/views/{view}", _PAGE
        routes = [
            self._route("/v1/views", self._views),
            self._route(f"{view}/windows", self._windows, *page, "revisions"),
            self._route(f"{view}/windows/{{start}}", self._window, "end", "revision"),
            self._route(f"{view}/series", self._series, *page, "item", "smooth", "diff"),
            self._route(f"{view}/events", self._events, "after"),
            self._route("/v1/events", self._events, "after", "view"),
            self._route("/v1/ledgers", self._ledgers),
            self._route("/v1/schema", self._schema, "name"),
            Route("/v1/session", guarded(self._sign_in), methods=["POST"]),
            Route("/v1/session", guarded(self._sign_out), methods=["DELETE"]),
            Route("/openapi.json", guarded(self._openapi)),
            LIVE,
            Route("/readyz", guarded(self._is_ready)),
        ]
        self._described = [
            Operation(route.path, method, self._parameters.get(route.path, ()))
            for route in routes
            for method in sorted((route.methods or set()) - {"HEAD"})
        ]
        return application([*routes, *page_of("index.html")], self.hub, read, origins=self.serve.origins)

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
            return personal(response, is_stale=self.boards.silent, is_public=audience in self.serve.public)

        self._parameters[path] = parameters
        return Route(path, guarded(answer))

    async def _reader(self, request: Request) -> Reader:
        address = address_of(request)
        authorization = request.headers.get("authorization")
        reader = await reader_of(self.tokens, self.serve.public, authorization, request.cookies, address)
        request.scope["stream_dp.reader"] = reader.key if any(reader.audiences.values()) else "-"
        within(self.requests.take(reader.key))
        return reader

    def _audience(self, reader: Reader, wanted: Sequence[str]) -> str:
        """Return the audience that is asked for; whether others exist is not said."""
        if len(wanted) > 1:
            raise RequestError("bad_request", "audience: write it once")
        if wanted and wanted[0] in reader.audiences:
            return wanted[0]
        if reader.is_unchecked:
            unchecked()
        if reader.is_bad:
            within(self.failures.take(reader.key))
            unauthorized(READERS)
        if wanted and any(reader.audiences.values()):
            raise RequestError("not_found", NOT_FOUND)
        if wanted or not reader.audiences:
            unauthorized(READERS)
        return next(iter(reader.audiences))

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
            JSON: json,
            CSV: lambda: api.as_csv(rows([cell.seen for cell in cells()], items)),
            ARROW: lambda: api.as_arrow(rows([cell.seen for cell in cells()], items), api.record_metadata(cells())),
        }
        return await respond(request, at, forms, {"Stream-Position": board.position})

    async def _views(self, request: Request, asked: Asked) -> Response:
        at = _digest(asked)
        positions = "~".join(f"{view}.{board.position}" for view, board in asked.boards.items())
        return await respond(
            request,
            at,
            {JSON: lambda: api.views(asked.boards, asked.reader.audiences)},
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
        most = max(1, api.most_entries(board) // len(items))
        page = asked.page(most, most)
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
        after = resumed(request, asked.one("after"), views)
        entry = asked.reader.audiences[asked.audience]
        return streamed(Stream(boards, named is not None, entry, self.now_ms, after), self.hub, asked.reader.key)

    async def _ledgers(self, request: Request, asked: Asked) -> Response:
        return await respond(request, _digest(asked), {JSON: lambda: api.ledgers(asked.boards.values())}, {})

    async def _schema(self, request: Request, asked: Asked) -> Response:
        name = asked.one("name") or "record"
        if name not in SCHEMA_NAMES or name == "entry":
            raise RequestError("bad_request", "name: write record, view, refusal or a kind")
        return await respond(request, f"schema-{name}", {JSON: lambda: compact(schema(name))}, {})

    async def _sign_in(self, request: Request) -> Response:
        within(self.requests.take(address_of(request)))
        given, token = await sign_in(request, self.tokens, self.failures, READERS)
        response = Response(status_code=204)
        for audience, entry in given.items():
            set_cookie(response, request, f"{COOKIE}{audience}", token, entry.lasts_s(self.now_ms()))
        return response

    async def _sign_out(self, request: Request) -> Response:
        within(self.requests.take(address_of(request)))
        check_change(request)
        response = Response(status_code=204)
        for name in request.cookies:
            if name.removeprefix("__Host-").startswith(COOKIE):
                set_cookie(response, request, name.removeprefix("__Host-"), "", 0)
        return response

    async def _is_ready(self, _: Request) -> Response:
        if not self.boards.ready or self.boards.silent:
            raise RequestError(
                "broker_silent" if self.boards.silent else "starting", "Try again.", {"Retry-After": "1"}
            )
        return Response(compact({"status": "ready"}), media_type=JSON)

    async def _openapi(self, _: Request) -> Response:
        return Response(compact(document(self._described)), media_type=JSON)


def _at(board: Board) -> str:
    """Position of a list: what memory has no room for changes it, too."""
    return f"{board.position}-{len(board.order)}"


def _digest(asked: Asked) -> str:
    places = [_at(board) for board in asked.boards.values()]
    return hashlib.sha256(repr((places, sorted(asked.reader.audiences))).encode()).hexdigest()[:16]
