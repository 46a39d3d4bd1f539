"""Test server: the readers' page with its headers, canned releases, and events that a test sends."""

from __future__ import annotations

import json
import math
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from stream_dp.windows.durations import format_time

STATIC = Path(__file__).parents[2] / "stream_dp" / "gateway" / "static"
DATA = Path(__file__).with_name("data")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".json": "application/json"}
TOPIC = "5d1f09c2"
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
TOKEN = "sdp_" + "a" * 43
Json = dict[str, Any]


def _times(ends: list[int]) -> Json:
    start, end = ends
    return {"start": format_time(start), "end": format_time(end), "start_ms": start, "end_ms": end}


def canned(audience: str) -> Json:
    """Return views by name, each with its records in today's form."""
    data = json.loads((DATA / f"{audience}.json").read_text())
    for view in data["views"]:
        for record in view["records"]:
            ledger = dict(data["ledgers"][record["ledger"]])
            record |= {"view": view["view"], "audience": audience, "kind": view["kind"]}
            record["window"] = _times(record["window"])
            record["ledger"] = ledger | {"period": _times(ledger["period"])}
            if "noise_interval_95" in record:
                scale = record["noise_interval_95"] / math.log(20)
                record["noise"] = {"distribution": "discrete laplace", "scale": f"{scale:.9f}"}
            items = record.get("items", [])
            record["items"] = [i if isinstance(i, dict) else {"item": i[0], "count": i[1]} for i in items]
    return {view["view"]: view for view in data["views"]}


def ends(record: Json, item: Json) -> list[int]:
    """Return the interval of an item, cut at 0."""
    half, count = record["noise_interval_95"], item["count"]
    is_known = "catalogue" in record and not item.get("new")
    low = 1 if count < record.get("two_sided_from", count) and not is_known else count - half
    return [max(0, low), max(0, count + half)]


def answer(records: list[Json]) -> Json:
    """Return a window as the gateway answers it, from its records."""
    releases = sorted((r for r in records if r["type"] == "release"), key=lambda r: int(r["revision"]))
    newest = releases[-1] if releases else None
    refused = [r for r in records if r["type"] == "refusal" and (not newest or r["revision"] > newest["revision"])]
    shown = newest or refused[-1]
    made: Json = {"position": f"{TOPIC}-7", "released": format_time(shown["released"]), "before": None}
    made["record"] = {name: value for name, value in shown.items() if name != "released"}
    made["intervals"] = [ends(shown, item) if "count" in item else None for item in shown["items"]] if newest else None
    if len(releases) > 1:
        old = releases[-2]
        intervals = {item["item"]: ends(old, item) for item in old["items"]}
        made["before"] = {"revision": old["revision"], "level": old["level"]["name"], "intervals": intervals}
        made["before"]["noise_interval_95"] = old["noise_interval_95"]
    made["refusal"] = refused[-1] if newest and refused else None
    return made


class Double:
    """A gateway for one page at a time.

    Attributes:
        views: by audience and view, what it has.
        needs_token: nothing is answered without the cookie.
        is_down: no request is answered.
    """

    def __init__(self) -> None:
        self.views: dict[str, dict[str, Json]] = {}
        self.needs_token = self.is_down = False
        self.streams: list[queue.Queue[str | None]] = []
        self.asked: list[str] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                double.get(self)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                good = body["token"] == TOKEN
                cookie = {"Set-Cookie": f"sdp-public={TOKEN}; HttpOnly; SameSite=Strict; Path=/"}
                send(self, 204 if good else 401, b"", headers=cookie if good else {})

            def do_DELETE(self) -> None:
                send(self, 204, b"", headers={"Set-Cookie": "sdp-public=; Max-Age=0; Path=/"})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reset(self) -> None:
        """Begin anew with the canned releases."""
        self.drop()
        self.views = {audience: canned(audience) for audience in ("public", "partner")}
        self.needs_token = self.is_down = False
        self.asked = []

    def send(self, event: str, data: Json, position: int = 8) -> None:
        """Send an event to every stream."""
        view = data.get("view") or data.get("record", {}).get("view", "destinations")
        for stream in list(self.streams):
            stream.put(f"event: {event}\nid: {view}.{TOPIC}-{position}\ndata: {json.dumps(data)}\n\n")

    def drop(self) -> None:
        """End every stream without a word."""
        for stream in self.streams:
            stream.put(None)
        self.streams = []

    def windows(self, audience: str, view: str) -> Iterator[Json]:
        """Windows of a view, newest first."""
        by_window: dict[tuple[int, int], list[Json]] = {}
        for record in self.views[audience][view]["records"]:
            by_window.setdefault((record["window"]["end_ms"], record["window"]["start_ms"]), []).append(record)
        for window in sorted(by_window, reverse=True):
            yield answer(by_window[window])

    def get(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if not url.path.startswith("/v1/"):
            file = STATIC / (url.path.lstrip("/") or "index.html")
            if file.is_file():
                send(request, 200, file.read_bytes(), TYPES.get(file.suffix, "text/plain"))
            else:
                send(request, 404, b"")
            return
        self.asked.append(request.path)
        if self.is_down:
            request.close_connection = True
            return
        if self.needs_token and TOKEN not in request.headers.get("Cookie", ""):
            send_json(request, {"type": "unauthorized"}, 401)
            return
        audience = query.get("audience", "public")
        match [unquote(part) for part in url.path.split("/")[2:]]:
            case ["views"]:
                views = [self.listed(audience, view) for view in self.views[audience]]
                send_json(request, {"views": views, "audiences": list(self.views)})
            case ["views", view, "windows"] if view in self.views[audience]:
                send_json(request, {"windows": list(self.windows(audience, view)), "next": None})
            case ["views", view, "windows", start] if view in self.views[audience]:
                found = [w for w in self.windows(audience, view) if w["record"]["window"]["start"] == start]
                send_json(request, *([found[0]] if found else [{"type": "not_found"}, 404]))
            case ["events"]:
                self.follow(request)
            case _:
                send_json(request, {"type": "not_found"}, 404)

    def listed(self, audience: str, view: str) -> Json:
        data, newest = self.views[audience][view], next(self.windows(audience, view), None)
        record = newest and newest["record"]
        return {
            **{name: value for name, value in data.items() if name != "records"},
            "audience": audience,
            "newest": record and {"window": record["window"]},
            "level": record and record["level"]["name"],
            "noise_interval_95": record and record.get("noise_interval_95"),
            "position": f"{TOPIC}-7",
        }

    def follow(self, request: BaseHTTPRequestHandler) -> None:
        stream: queue.Queue[str | None] = queue.Queue()
        self.streams.append(stream)
        request.close_connection = True
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(b"retry: 3000\n\n")
        while (event := stream.get()) is not None:
            try:
                request.wfile.write(event.encode())
            except OSError:
                return


def send_json(request: BaseHTTPRequestHandler, body: Json, status: int = 200) -> None:
    """Answer with JSON."""
    send(request, status, json.dumps(body).encode(), headers={"Stream-Position": f"{TOPIC}-7"})


def send(
    request: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    kind: str = "application/json",
    headers: dict[str, str] | None = None,
) -> None:
    """Answer with the headers of the gateway."""
    request.send_response(status)
    for name, value in {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", **(headers or {})}.items():
        request.send_header(name, value)
    request.send_header("Content-Type", kind)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
