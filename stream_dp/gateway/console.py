"""The operators' console as an ASGI application: what is known of an application, what a change means, consent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

import msgspec
from aiokafka.errors import KafkaError
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stream_dp.config.differences import differences
from stream_dp.config.plan import Plan
from stream_dp.control.editions import Posted, plan_of
from stream_dp.control.grant_records import Grant
from stream_dp.errors import ConfigError, Fault, StateError, StreamDPError
from stream_dp.gateway.api import RequestError
from stream_dp.gateway.boards import compact
from stream_dp.gateway.changes import (
    Consent,
    CurveQuestion,
    GrantConsent,
    Question,
    answer_curve,
    answer_plan,
    check_name,
    grant_meaning,
    meaning,
    refused,
)
from stream_dp.gateway.reader import Connect
from stream_dp.gateway.streams import Hub
from stream_dp.gateway.tokens import LOOKER, OPERATOR, Entry, RequestRate, Tokens
from stream_dp.gateway.watch import EVENTS, ApplicationWatch, OperatorStream
from stream_dp.gateway.web import (
    JSON,
    LIVE,
    NOT_FOUND,
    address_of,
    application,
    check_change,
    guarded,
    page_of,
    personal,
    read_body,
    respond,
    resumed,
    set_cookie,
    sign_in,
    streamed,
    unauthorized,
    within,
)
from stream_dp.operations import plain
from stream_dp.operations.grants import grant_json, post_grant, read_grants, weigh_grant, withdraw
from stream_dp.operations.settings_changes import Basis, draft, post_change
from stream_dp.operations.settings_history import plannable, read_effective, read_settings
from stream_dp.runtime.clock import wall_clock_ms

COOKIE = "sdpo"
"""Not one of the readers' gateway, which a browser sends it to where both are on one host."""
PLANS_A_SECOND, MOST_PLANNING = 10, 10
"""Questions for plans and curves, of the whole console: a second, and at once."""
OPERATORS = "an operator's"
_UNKNOWN = "It is not known whether this was posted. Send the same again: it takes effect once."
Asked = TypeVar("Asked")
Work = Callable[[Request, Entry], Awaitable[Response]]


@dataclass
class Console:
    """What requests of operators share.

    Attributes:
        plan: of the file.
        connect: opens a client.
        tokens: of operators.
        now_ms: the wall clock.
    """

    plan: Plan
    connect: Connect
    tokens: Tokens
    now_ms: Callable[[], int] = wall_clock_ms
    requests: RequestRate = field(default_factory=lambda: RequestRate(20, 100))
    failures: RequestRate = field(default_factory=lambda: RequestRate(1 / 6, 10))
    plans: RequestRate = field(default_factory=lambda: RequestRate(PLANS_A_SECOND, PLANS_A_SECOND))

    def __post_init__(self) -> None:
        self.hub = Hub(self.tokens)
        self.watch = ApplicationWatch(self.plan, self.connect, self._tell)
        self._planner = ThreadPoolExecutor(1, "plans")
        self._planning = 0

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            *(self._route(f"/v1/{name}", self._seen) for name in EVENTS),
            self._route("/v1/events", self._events),
            self._route("/v1/plan", self._plan, "POST"),
            self._route("/v1/plan/curve", self._curve, "POST"),
            self._route("/v1/settings", self._post_settings, "POST"),
            self._route("/v1/grants", self._post_grant, "POST"),
            self._route("/v1/grants/{id}", self._withdraw, "DELETE"),
            self._route("/v1/session", self._who),
            Route("/v1/session", guarded(self._sign_in), methods=["POST"]),
            Route("/v1/session", guarded(self._sign_out), methods=["DELETE"]),
            LIVE,
            Route("/readyz", guarded(self._is_ready)),
            *page_of("console.html"),
        ]
        return application(routes, self.hub, self.watch.run)

    def _tell(self, name: str) -> None:
        for stream in self.hub.streams:
            if isinstance(stream, OperatorStream):
                stream.change(name)

    def _route(self, path: str, work: Work, method: str = "GET") -> Route:
        async def answer(request: Request) -> Response:
            entry = self._operator(request)
            if unknown := request.query_params.keys() - {"after"}:
                raise RequestError("bad_request", f"unknown parameter {min(unknown)[:40]!r}")
            if method != "GET":
                if entry.audience != OPERATOR:
                    raise RequestError("not_found", NOT_FOUND)
                check_change(request)
                if self.watch.basis is None:
                    self._not_known()
            try:
                response = await work(request, entry)
            except ConfigError as error:
                raise refused(error.faults) from None
            except (StreamDPError, KafkaError, OSError, TimeoutError) as error:
                raise RequestError("broker_silent", f"{_UNKNOWN} Reason: {error}", {"Retry-After": "1"}) from None
            return personal(response, is_stale=self.watch.silent)

        return Route(path, guarded(answer), methods=[method])

    def _operator(self, request: Request) -> Entry:
        """Return the token of a request; without a good one nothing is said."""
        address = address_of(request)
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if not scheme:
            cookies = request.cookies
            scheme, token = "bearer", cookies.get(f"__Host-{COOKIE}", cookies.get(COOKIE, ""))
        entry = self.tokens.entry(token)
        if entry is None or scheme.lower() != "bearer" or entry.audience not in (OPERATOR, LOOKER):
            within(self.requests.take(address))
            if token:
                within(self.failures.take(address))
            unauthorized(OPERATORS)
        request.scope["stream_dp.reader"] = entry.id
        within(self.requests.take(entry.id))
        return entry

    async def _seen(self, request: Request, _: Entry) -> Response:
        name = request.url.path.rpartition("/")[2]
        if (seen := self.watch.seen.get(name)) is None:
            self._not_known()
        return await respond(request, seen.tag, {JSON: lambda: seen.body}, {"Stream-Position": seen.position})

    async def _events(self, request: Request, entry: Entry) -> Response:
        after = resumed(request, request.query_params.get("after"), EVENTS.values())
        return streamed(OperatorStream({}, False, entry, self.now_ms, after, watch=self.watch), self.hub, entry.id)

    async def _plan(self, request: Request, _: Entry) -> Response:
        return await self._worked_out(await _read(request, Question), answer_plan)

    async def _curve(self, request: Request, _: Entry) -> Response:
        return await self._worked_out(await _read(request, CurveQuestion), answer_curve)

    async def _worked_out(self, question: Asked, work: Callable[[Basis, Asked, int], dict[str, Any]]) -> Response:
        """Answer with what is worked out in the thread of plans, from what is known; no topic is asked for it."""
        basis = self.watch.basis
        assert basis is not None  # noqa: S101 - it was asked for
        within(1 if self._planning >= MOST_PLANNING else self.plans.take(""))
        basis = replace(basis, reports=replace(basis.reports, now_ms=(now_ms := self.now_ms())))
        self._planning += 1
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._planner, work, basis, question, now_ms)
        finally:
            self._planning -= 1
        return _answer(found)

    async def _post_settings(self, request: Request, _: Entry) -> Response:
        consent = await _read(request, Consent)
        async with self.connect() as client:
            try:
                found = await draft(self.plan, consent.wanted, client, consent.wish(consent.note, consent.settings))
                shown = meaning(found, consent.view)
                if shown["plan"] != consent.plan:
                    raise RequestError("plan_changed", "Read what it means now, and agree again.", now=shown)
                check_name(shown["removes"], consent, self.plan)
                if not found.is_empty:
                    await post_change(found)
            except StateError:
                history = await read_settings(self.plan, client)
                known = await asyncio.to_thread(plannable, history, self.plan)
                if known[-1].number == consent.settings:
                    raise
                if (number := self._posted(known, consent)) is not None:
                    return _answer({"settings": number, "posted": True, "already": True})
                raise _overtaken(known, consent) from None
        if found.is_empty:
            return _answer({"settings": consent.settings, "posted": False, "already": True})
        self.watch.follow(found)
        return _answer({"settings": found.posted.number, "posted": True, "already": False}, 202)

    def _posted(self, known: Sequence[Posted], consent: Consent) -> int | None:
        """Return the number of the settings that followed those of a consent, if they are what it consented to."""
        at = next((at for at, one in enumerate(known) if one.number == consent.settings), None)
        if at is None or at + 1 == len(known):
            return None
        before, after = known[at : at + 2]
        try:
            wanted = consent.wanted(plan_of(before, self.plan))
        except ConfigError:
            return None
        from_ms = consent.wish().from_ms or 0
        begins = all(at_ms >= from_ms for at_ms in after.begins.values())
        is_same = begins and after.note == consent.note and not differences(after.sections, wanted.raw)
        return after.number if is_same else None

    async def _post_grant(self, request: Request, _: Entry) -> Response:
        asked = await _read(request, GrantConsent)
        try:
            grant = Grant.model_validate(asked.grant)
        except ValidationError as error:
            faults = [Fault(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors()]
            raise refused(faults) from None
        async with self.connect() as client:
            plan = (await read_effective(self.plan, client)).plan
            shown = grant_meaning(grant, await weigh_grant(plan, client, grant), plan)
            if asked.plan is None:
                return _answer(shown)
            if shown["plan"] != asked.plan:
                known = [order for order in await read_grants(plan, client) if order.id == grant.id]
                if known and known[-1].level == grant.level:
                    return _answer({"id": grant.id, "posted": True, "already": True})
                raise RequestError("plan_changed", "Read what it means now, and agree again.", now=shown)
            await post_grant(plan, client, grant)
        self.watch.look_again()
        return _answer({"id": grant.id, "posted": True, "already": False}, 202)

    async def _withdraw(self, request: Request, _: Entry) -> Response:
        if not (await _read(request, dict[str, bool])).get("consent"):
            raise RequestError("bad_request", 'Send {"consent": true}.')
        grant_id = request.path_params["id"]
        async with self.connect() as client:
            plan = (await read_effective(self.plan, client)).plan
            if all(order.id != grant_id for order in await read_grants(plan, client)):
                raise RequestError("not_found", NOT_FOUND)
            left = await withdraw(plan, client, grant_id)
        self.watch.look_again()
        return _answer({"withdrawn": grant_id, "grants": [grant_json(one, self.now_ms()) for one in left]}, 202)

    async def _who(self, _: Request, entry: Entry) -> Response:
        gives = {"application": self.plan.name, "gives": entry.audience}
        return _answer({**gives, "operator": entry.id, "expires": entry.expires})

    async def _sign_in(self, request: Request) -> Response:
        within(self.requests.take(address_of(request)))
        given, token = await sign_in(request, self.tokens, self.failures, OPERATORS)
        (entry,) = given.values()
        response = Response(status_code=204)
        set_cookie(response, request, COOKIE, token, entry.lasts_s(self.now_ms()))
        return response

    async def _sign_out(self, request: Request) -> Response:
        within(self.requests.take(address_of(request)))
        check_change(request)
        response = Response(status_code=204)
        set_cookie(response, request, COOKIE, "", 0)
        return response

    async def _is_ready(self, _: Request) -> Response:
        if self.watch.silent or "status" not in self.watch.seen:
            self._not_known()
        return _answer({"status": "ready"})

    def _not_known(self) -> NoReturn:
        """Answer that something was not read yet, and why."""
        if self.watch.silent:
            raise RequestError("broker_silent", self.watch.fault, {"Retry-After": "1"})
        if "status" in self.watch.seen:
            detail = "The application was never started. Start a worker: `stream-dp worker FILE`."
            raise RequestError("starting", detail, {"Retry-After": "5"})
        raise RequestError("starting", "Try again.", {"Retry-After": "1"})


async def _read(request: Request, form: type[Asked]) -> Asked:
    """Return the body of a request as what it is to be."""
    try:
        return msgspec.json.decode(await read_body(request), type=form)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RequestError("bad_request", f"The body is wrong: {error}") from None


def _overtaken(known: Sequence[Posted], consent: Consent) -> RequestError:
    """Return the answer to a consent on settings that are not in effect any more: theirs."""
    newest = known[-1]
    former = next((one for one in known if one.number == consent.settings), newest)
    changed = plain(differences(former.sections, newest.sections))
    theirs = {"settings": newest.number, "at_ms": newest.at_ms, "note": newest.note, "changed": changed}
    return RequestError("settings_changed", "Nothing was changed. Read what differs now.", theirs=theirs)


def _answer(value: object, status: int = 200) -> Response:
    return Response(compact(value), status, {"Cache-Control": "no-store"}, JSON)
