"""The agents of an application: one thin async function per file, no logic of their own.

The folder stands at the top of the repository; the package has it as `stream_dp.agents`, by way of the link
`stream_dp/agents`, because the top-level name belongs to another distribution. Which agents there are is written down
here and nowhere else: they see raw counts, so nothing that is installed can take the place of one.
"""

from collections.abc import Mapping

from stream_dp.agents.control import control
from stream_dp.agents.ingest import ingest
from stream_dp.agents.merge import merge
from stream_dp.agents.release import release
from stream_dp.agents.sharpen import sharpen
from stream_dp.runtime.faust.host import Agent

AGENTS: Mapping[str, Agent] = {
    "ingest": ingest,
    "merge": merge,
    "release": release,
    "sharpen": sharpen,
    "control": control,
}
"""By the name under which the worker registers them."""

__all__ = ["AGENTS", "control", "ingest", "merge", "release", "sharpen"]
