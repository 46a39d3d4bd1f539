"""Where the demo is shown: a terminal that is drawn anew, or a log that only grows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live
from rich.text import Text

REDRAW_SECONDS = 0.2
HOLD_SECONDS = 3.0
LOG_SIZE = ConsoleDimensions(110, 30)

Frame = Callable[[ConsoleDimensions], RenderableType]


class Screen:
    """Shows acts one after the other; what an act showed last stays."""

    def __init__(self, *, stderr: bool = False, watch: Callable[[], None] = lambda: None) -> None:
        """Set up the screen.

        Args:
            stderr: show everything on standard error.
            watch: called all the time while an act is on; what it raises ends the act.
        """
        console = Console(stderr=stderr, highlight=False)
        self.moving = console.file.isatty() and console.is_interactive  # a log may ask for colours, never for motion
        if not self.moving:
            console = Console(stderr=stderr, highlight=False, width=LOG_SIZE.width, height=LOG_SIZE.height)
        self._console = console
        self.watch = watch

    def say(self, words: str = "", *, style: str = "", whole: bool = False) -> None:
        """Show a line.

        Args:
            words: the line.
            style: of the words.
            whole: leave a line that is too long to the terminal, so that it can be copied as one.
        """
        self._console.print(Text(words, style), soft_wrap=whole or not self.moving)

    def show(self, what: RenderableType) -> None:
        """Show something that stays as it is."""
        self._console.print(what)

    async def act(self, frame: Frame, done: Callable[[], bool], lines: Callable[[], Iterable[str]]) -> None:
        """Show something that changes, until it is done.

        Args:
            frame: draws it for a size of terminal.
            done: whether it is.
            lines: what there is to say of it since the last call, where nothing can be drawn anew.
        """
        if self.moving:
            with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
                while not done():
                    live.update(frame(self._console.size), refresh=True)
                    await self._beat()
                live.update(frame(self._console.size), refresh=True)
            return
        while not done():
            self._say_all(lines())
            await self._beat()
        self._say_all(lines())
        self.show(frame(self._console.size))

    async def hold(self) -> None:
        """Leave a spectator the time to read."""
        until = time.monotonic() + (HOLD_SECONDS if self.moving else 0.0)
        while time.monotonic() < until:
            await self._beat()

    async def _beat(self) -> None:
        self.watch()
        await asyncio.sleep(REDRAW_SECONDS)

    def _say_all(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.say(line)
