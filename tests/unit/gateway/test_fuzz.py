"""The gateway against its own description, and the console against anything: requests of a fuzzer."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stream_dp.config.plan import Plan
from stream_dp.gateway import api, console
from stream_dp.gateway.routes import Gateway
from stream_dp.gateway.streams import Hub, Stream
from stream_dp.gateway.tokens import RequestRate
from tests.support.console import Desk
from tests.support.gateway import gateway_of, token_of

Make = Callable[..., Any]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
PLACES = {
    "view": st.sampled_from(["pages", "pages", "searches"]),
    "start": st.sampled_from(["1970-01-01", "1970-01-02T00:00:00Z", "1970-01-09", "x"]),
}
FEW, MANY = 6, 40


def steady(examples: int, *, is_random: bool = False) -> settings:
    """Settings with which the same requests are made each time, or others."""
    phases = (Phase.explicit, Phase.generate)
    return settings(
        max_examples=examples,
        derandomize=not is_random,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


class EndingHub(Hub):
    """Streams that end at once."""

    @contextmanager
    def opened(self, stream: Stream, key: str) -> Iterator[None]:
        with super().opened(stream, key):
            stream.end("shutdown")
            yield


@pytest.fixture
def gateway(tmp_path: Path, release: Make, refusal: Make) -> Gateway:
    public = [release({"home": 900 + day, "about": 40}, day=day) for day in range(3)]
    public += [release({"home": 901}, day=1, revision=2, level=1), refusal(day=3), release({}, day=4)]
    staff = [release({"home": 910}, audience="staff", level=1)]
    found = gateway_of(tmp_path, {("pages", "public"): public, ("pages", "staff"): staff})
    found.requests = found.failures = RequestRate(1, 10**9, lambda: 0)
    found.hub = EndingHub(found.tokens)
    return found


def fuzz(gateway: Gateway, examples: int, only: str = "/", *, is_random: bool = False) -> set[int]:
    """Ask for everything that the gateway describes; return the statuses of its answers."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", gateway.app())
    credentials = [None, f"Bearer {token_of(gateway, 'staff')}", "Bearer sdp_x"]
    statuses: set[int] = set()
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # an operation that is described wrongly has none
        if not operation.path.startswith(only):
            continue
        asked = steady(examples, is_random=is_random)
        fuzz_operation(operation, asked, statuses, credentials)
        with suppress(Unsatisfiable):  # nothing can be wrong with it
            fuzz_operation(operation, asked, statuses, credentials, GenerationMode.NEGATIVE)
    return statuses


def fuzz_operation(
    operation: Any,
    asked: settings,
    statuses: set[int],
    credentials: list[str | None],
    mode: GenerationMode = GenerationMode.POSITIVE,
) -> None:
    is_good = mode is GenerationMode.POSITIVE
    names = {one.name for one in operation.path_parameters}

    @asked
    @given(
        operation.as_strategy(generation_mode=mode),
        st.fixed_dictionaries({name: PLACES[name] for name in names if is_good}),  # or hardly a view would be there
        st.sampled_from(credentials),
    )
    def ask(case: Any, places: dict[str, str], authorization: str | None) -> None:
        case.path_parameters |= places
        answer = case.call(headers={} if authorization is None else {"Authorization": authorization})
        statuses.add(answer.status_code)
        case.validate_response(answer, checks=CHECKS)

    ask()


def test_answers_are_as_the_gateway_describes_them(gateway: Gateway) -> None:
    assert {200, 400, 401, 404} <= fuzz(gateway, 3)


@pytest.mark.slow
def test_many_answers_are_as_the_gateway_describes_them(gateway: Gateway) -> None:
    assert {200, 400, 401, 404} <= fuzz(gateway, MANY)


@pytest.mark.nightly
def test_ten_minutes_of_other_requests_are_answered_as_described(gateway: Gateway) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        fuzz(gateway, MANY, is_random=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"views":[{"name":5}],"audiences":[]}', "violates schema"),
        (b"{", "JSON deserialization error"),
        (None, "no such thing"),
    ],
    ids=["off its schema", "no JSON", "raises"],
)
def test_an_answer_that_is_not_as_described_is_found(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, body: bytes | None, said: str
) -> None:
    def views(*_: object) -> bytes:
        if body is None:
            raise KeyError("no such thing")
        return body

    monkeypatch.setattr(api, "views", views)
    with pytest.raises((FailureGroup, KeyError)) as found:
        fuzz(gateway, FEW, "/v1/views")
    assert said in "".join(traceback.format_exception(found.value))


JSON_TEXT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
SETTINGS = (
    "k",
    "items_per_user",
    "ladders.pages.fine",
    "window.size",
    "audiences.public",
    "levels.fine.epsilon",
    "views.pages",
)
VALUES = st.sampled_from(["", "1", "0", "-1", "3/2", "1/0", "1e999", "9" * 50, "nan", "1h", "null", "[]", "\0"])
ASSIGNMENTS = st.lists(
    st.builds("{}={}".format, st.sampled_from(SETTINGS) | st.text(max_size=8), VALUES | st.text(max_size=8))
    | st.text(max_size=10),
    max_size=3,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "assignments": ASSIGNMENTS,
    "backfill": st.booleans(),
    "from": st.sampled_from(["2026-12-01", "0001-01-01", "9999-12-31T23:59:59Z", "x"]) | st.none(),
    "setting": st.sampled_from(SETTINGS),
    "values": st.lists(VALUES, max_size=3),
    "plan": st.text(max_size=8),
    "settings": st.integers(-1, 2**70),
    "note": st.text(max_size=8),
    "application": st.text(max_size=8) | st.none(),
    "grant": st.fixed_dictionaries(
        {"audience": st.sampled_from(["public", "x"]), "level": st.sampled_from(["fine", "x", ""])},
        optional={
            "views": st.lists(st.sampled_from(["pages", "x"]), max_size=2),
            "windows": st.sampled_from(["all", "x"]),
            **dict.fromkeys(("start_from", "start_until", "at"), st.none() | st.integers() | st.text(max_size=8)),
        },
    ),
    "consent": st.booleans(),
    "token": st.text(max_size=60),
}
WANTED = {
    "/v1/plan": ("assignments",),
    "/v1/plan/curve": ("assignments", "setting", "values"),
    "/v1/settings": ("assignments", "plan", "settings"),
    "/v1/grants": ("grant",),
    "/v1/session": ("token",),
}
MORE = {
    "/v1/plan": ("from", "backfill"),
    "/v1/plan/curve": ("from", "backfill"),
    "/v1/settings": ("from", "backfill", "note", "application"),
    "/v1/grants": ("plan",),
    "/v1/session": ("note",),
}


def bodies(path: str) -> st.SearchStrategy[Any]:
    """Bodies that an address of the console may take, and any others."""
    wanted = {name: FIELDS[name] for name in WANTED[path]}
    if "assignments" in wanted:
        wanted["view"] = st.sampled_from(["pages", "pages", "pages", "x"])
    near = st.fixed_dictionaries(wanted, optional={name: FIELDS[name] for name in MORE[path]})
    return near | near | near | JSON_TEXT | st.binary(max_size=40)


async def started(desk: Desk) -> None:
    await desk.start()
    desk.report()
    await desk.look()


def post(path: str, examples: int, sent: Callable[[str, Any, str], None]) -> None:
    @steady(examples)
    @given(bodies(path))
    def posted(body: Any) -> None:
        sent(path, body, "POST")

    posted()


def fuzz_console(desk: Desk, examples: int) -> set[int]:
    """Send the console anything; return the statuses of its answers."""
    statuses = set()

    def sent(path: str, body: Any, method: str, **headers: Any) -> None:
        answer = asyncio.run(desk.send(path, body, method, **headers))
        statuses.add(answer.status)
        assert answer.status < 500, (method, path, body, answer.body)

    for path in WANTED:
        post(path, examples, sent)

    @steady(examples)
    @given(st.text(st.characters(codec="utf-8"), max_size=30), bodies("/v1/grants") | st.just({"consent": True}))
    def withdrawn(name: str, body: Any) -> None:
        sent(f"/v1/grants/{quote(name, safe='')}", body, "DELETE")

    @steady(examples)
    @given(
        st.sampled_from(["status", "ledgers", "settings", "grants", "session", "plan", "x"]),
        st.sampled_from(["authorization", "cookie", "accept", "accept_encoding", "if_none_match", "host", "origin"]),
        st.text(st.characters(max_codepoint=255), max_size=30),
        st.sampled_from(["GET", "POST", "DELETE", "PUT"]),
    )
    def headed(name: str, header: str, text: str, method: str) -> None:
        sent(f"/v1/{name}", {}, method, **{header: text})

    withdrawn()
    headed()
    return statuses


@pytest.fixture
def desk(visits: Plan, tmp_path: Path) -> Desk:
    found = Desk(visits, tmp_path / "operators.tokens")
    asyncio.run(started(found))
    return found


def test_the_console_answers_anything_that_is_sent(desk: Desk) -> None:
    assert {200, 400, 401, 404, 405, 409} <= fuzz_console(desk, 15)


@pytest.mark.slow
def test_the_console_answers_much_that_is_sent(desk: Desk) -> None:
    assert {200, 400, 401, 404, 405, 409, 422} <= fuzz_console(desk, 300)


def test_a_console_that_fails_is_found(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object) -> dict[str, Any]:
        raise KeyError("no such thing")

    monkeypatch.setattr(console, "answer_plan", answer)
    with pytest.raises(KeyError, match="no such thing"):
        fuzz_console(desk, 40)
