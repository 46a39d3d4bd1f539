"""How far hypothesis goes: to a small example of a failure, not to an explanation that takes minutes of tracing."""

from __future__ import annotations

from hypothesis import Phase

PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
