"""Support for tests of an application: scripts of events, one test body in memory or on a broker.

async with application(text, folder, broker="memory://") as app:  # or "127.0.0.1:9092"
    await app.start()
    start = 1_704_067_200_000  # ms since 1970, as in the view's window.start
    await app.publish([Event("u1", "a", start), Event("u2", "a", start + 1000), Watermark(start + 60_000)])
    records = await app.wait_for_releases("items", 1)
"""

from stream_dp.testing.application import Application, ManualClock, application, keyed_entropy, plan_from
from stream_dp.testing.scripts import Event, Raw, Script, SourceWriter, Watermark

__all__ = [
    "Application",
    "Event",
    "ManualClock",
    "Raw",
    "Script",
    "SourceWriter",
    "Watermark",
    "application",
    "keyed_entropy",
    "plan_from",
]
