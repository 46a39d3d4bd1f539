"""The description of the readers' gateway that it serves: its addresses, parameters and answers, as OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stream_dp.gateway.api import MOST_ITEMS, MOST_WINDOWS
from stream_dp.gateway.web import ARROW, CSV, JSON, PROBLEM, STATUSES

Schema = Mapping[str, Any]


class Operation(NamedTuple):
    """A method of an address, and the parameters that it takes in the query."""

    path: str
    method: str
    parameters: Sequence[str] = ()


def _object(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_TEXT, _ANY, _NUMBER = {"type": "string"}, {"type": "object"}, {"type": "integer"}
_MAYBE = {"type": ["string", "null"]}
_PARAMETERS: Mapping[str, Schema] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_WINDOWS},
    "revisions": {"enum": ["newest", "all"]},
    "revision": {"type": "integer", "minimum": 1, "maximum": 10**6},
    "smooth": {"enum": [3, 5]},
    "diff": {"enum": [1]},
    "item": {**_list(_TEXT), "minItems": 1, "maxItems": MOST_ITEMS},
    "view": _list(_TEXT),
}
_WINDOW = _object(
    {"position": _TEXT, "state": {"enum": ["released", "sharper", "empty", "refused", "sharper_refused", "replaced"]}},
    {
        "released": _TEXT,
        "record": {"type": ["object", "null"]},
        "intervals": {
            "type": ["array", "null"],
            "items": {**_list(_NUMBER), "type": ["array", "null"], "minItems": 2, "maxItems": 2},
        },
        "before": {"type": ["object", "null"]},
        "refusal": {"type": ["object", "null"]},
    },
)
_VIEW = _object(
    {
        **dict.fromkeys(("name", "view", "audience", "title", "position"), _TEXT),
        **dict.fromkeys(("unit", "kind", "next_due", "level"), _MAYBE),
        "windows": _NUMBER,
        "noise_interval_95": {"type": ["integer", "null"]},
        "newest": {"type": ["object", "null"]},
        "record": {"type": ["object", "null"]},
    }
)
_ENTRY = {
    **_object({"start": _TEXT, "end": _TEXT, "state": _TEXT}),
    "dependentRequired": {"count": ["interval"]},
}
_SERIES = _object({"item": _TEXT, "view": _TEXT, "windows": _list(_ENTRY), "post_processing": _ANY})
_TABLES = (JSON, CSV, ARROW)
_EVENTS: tuple[Sequence[str], Schema] = (("text/event-stream",), _TEXT)
_ALIVE: tuple[Sequence[str], Schema] = ((JSON,), _object({"status": _TEXT}))
_ANSWERS: Mapping[str, tuple[Sequence[str], Schema]] = {
    "/v1/views": ((JSON,), _object({"views": _list(_VIEW), "audiences": _list(_TEXT)})),
    "/v1/views/{view}/windows": (_TABLES, _object({"windows": _list(_WINDOW), "next": _MAYBE})),
    "/v1/views/{view}/windows/{start}": (_TABLES, _WINDOW),
    "/v1/views/{view}/series": (_TABLES, _object({"series": _list(_SERIES), "next": _MAYBE})),
    "/v1/views/{view}/events": _EVENTS,
    "/v1/events": _EVENTS,
    "/v1/ledgers": ((JSON,), _object({"ledgers": _list(_ANY)})),
    "/v1/schema": ((JSON,), _ANY),
    "/openapi.json": ((JSON,), _object({"openapi": _TEXT, "paths": _ANY})),
    "/livez": _ALIVE,
    "/readyz": _ALIVE,
}
_NEEDED = {"/v1/views/{view}/series": "item"}
_NOT_OF_READERS = ("/openapi.json", "/livez", "/readyz")
_PROBLEM = _object({"type": {"enum": sorted(STATUSES)}, "title": _TEXT, "status": _NUMBER, "detail": _TEXT})
_HEADER = {"required": True, "schema": {"type": "string", "minLength": 1}}


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the description of some operations."""
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "stream-dp gateway", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    is_session, is_open = one.path == "/v1/session", one.path in _NOT_OF_READERS
    inner = [part.partition("}")[0] for part in one.path.split("{")[1:]]
    query = [] if is_session or is_open else ["audience", *one.parameters]
    described: dict[str, Any] = {
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in inner),
            *(
                {
                    "name": name,
                    "in": "query",
                    "required": _NEEDED.get(one.path) == name,
                    "schema": _PARAMETERS.get(name, _TEXT),
                }
                for name in query
            ),
        ]
    }
    described["responses"] = {**_good(one), **{str(status): _bad(status) for status in _wrong(one)}}
    if is_session and one.method == "POST":
        body = _object({"token": _TEXT})
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    elif not is_session and not is_open:
        described["security"] = [{}, {"token": []}]
    return described


def _good(one: Operation) -> dict[str, Any]:
    if one.path not in _ANSWERS:
        return {"204": {"description": "done"}}
    forms, schema = _ANSWERS[one.path]
    answer: dict[str, Any] = {
        "description": "the answer",
        "content": {form: {"schema": schema} if form == JSON else {} for form in forms},
    }
    if one.path in _NOT_OF_READERS or _ANSWERS[one.path] is _EVENTS:
        return {"200": answer}
    names = ["ETag"] if one.path in ("/v1/ledgers", "/v1/schema") else ["ETag", "Stream-Position"]
    headers = dict.fromkeys(names, _HEADER) if one.path != "/v1/views" else {"ETag": _HEADER}
    return {"200": {**answer, "headers": headers}, "304": {"description": "not changed", "headers": headers}}


def _wrong(one: Operation) -> Sequence[int]:
    if one.path == "/v1/session":
        return (400, 401, 403, 413, 414, 429, 503) if one.method == "POST" else (400, 403, 414, 429)
    if one.path in _NOT_OF_READERS:
        return (414, 503) if one.path == "/readyz" else (414,)
    return (400, 401, 404, 406, 413, 414, 429, 503)


def _bad(status: int) -> dict[str, Any]:
    title = next((title for known, title in STATUSES.values() if known == status), "The address is too long")
    headers = {401: {"WWW-Authenticate": _HEADER}, 429: {"Retry-After": _HEADER}, 503: {"Retry-After": _HEADER}}
    answer = {"description": title, "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {**answer, "headers": headers[status]} if status in headers else answer
