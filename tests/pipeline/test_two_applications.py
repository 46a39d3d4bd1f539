"""Two applications of different names run beside each other, whatever they ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from stream_dp.runtime.kafka.topics import Topics
from stream_dp.testing import Application, Event, Watermark, plan_from
from tests.support.views import only_view, start_of

SLOW_ON_KAFKA = True

Launch = Callable[..., Awaitable[Application]]
MINUTE = 60_000


async def test_two_applications_with_the_same_views_of_one_source_release_side_by_side(launch: Launch) -> None:
    """Also with the same key file: what each shows is its own, noise and all."""
    app = await launch()
    view, key = only_view(app), app.plan.key_file
    start = start_of(view)
    await app.start()
    text = (key.parent / "application.yaml").read_text().replace("name: ", "name: other-", 1)
    other = Application(plan_from(text, key.parent / "other", str(app.plan.broker)), app.client, app.log, app.entropy)
    other.plan = replace(other.plan, key_file=key)
    await other.start()
    try:
        crowd = [Event(f"u{number}", "/", start + number) for number in range(50)]
        await app.publish([*crowd, Watermark(start + 2 * MINUTE)])
        ours, theirs = await app.wait_for_releases(view.name, 1), await other.wait_for_releases(view.name, 1)
    finally:
        await other.stop()

    made = [{spec.name for spec in Topics.of(plan).all(plan)} for plan in (app.plan, other.plan)]
    assert made[0].isdisjoint(made[1])
    assert [record.type for record in (ours["public"][0], theirs["public"][0])] == ["release", "release"]
