"""Faust's recovery of the tables, through an outage of the broker."""

from __future__ import annotations

from typing import Any

from aiokafka.errors import KafkaError
from faust.tables.recovery import Recovery

from stream_dp.errors import OutageError
from stream_dp.runtime.outage import is_silence


class PatientRecovery(Recovery):
    """A recovery that asks again what the broker did not answer.

    Faust's ends without a word when an answer takes longer than a request may, and the tables are never recovered.
    """

    async def _wait(self, coro: Any, timeout: Any = None) -> None:
        await super()._wait(coro)

    async def _build_highwaters(self, *given: Any) -> None:
        await self._asked(super()._build_highwaters, *given)

    async def _build_offsets(self, *given: Any) -> None:
        await self._asked(super()._build_offsets, *given)

    async def _seek_offsets(self, *given: Any) -> None:
        await self._asked(super()._seek_offsets, *given)

    async def _asked(self, ask: Any, *given: Any) -> None:
        async def once() -> None:
            try:
                await ask(*given)
            except (KafkaError, OSError) as error:
                if is_silence(error):
                    raise OutageError(str(error)) from error
                raise  # Faust knows what it means

        await self.app.outage.patiently(once)
