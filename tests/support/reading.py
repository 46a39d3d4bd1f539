"""A release topic and a dead-letter topic that hold something, for readers of all sorts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, Raw, Watermark
from tests.support.views import only_view, start_of

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000
WINDOWS = 4


async def readable(launch: Launch) -> tuple[Application, str, str]:
    """An application that has released, sharpened and refused; its release topic for the public, its dead letters."""
    app = await launch(('epsilon: "100"', 'epsilon: "19"'))  # pays for three windows at the finest level
    view = only_view(app)
    start = start_of(view)
    visits = [Event(f"u{n}", f"/{n % 3}", start + m * MINUTE) for m in range(WINDOWS) for n in range(90)]
    await app.publish([*visits, Raw(0, b"k", b"{"), Raw(0, b"k", b"["), Watermark(start + (WINDOWS + 1) * MINUTE)])
    await app.start()
    await app.wait_for_releases(view.name, WINDOWS)
    await app.grant("public", "detailed")

    async def sharpened() -> bool:
        return len((await app.releases(view.name))["public"]) == 2 * WINDOWS

    await app.eventually(sharpened)
    await app.stop()
    return app, Topics.of(app.plan).release(view.name, "public"), view.source.dead_letter_topic
