"""Which broker the demo runs on, and what to say of it in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stream_dp.config.access import MEMORY
from stream_dp.runtime import localkafka


@dataclass(frozen=True, slots=True)
class Choice:
    """A broker to run on.

    Attributes:
        broker: as a configuration names it.
        words: which one it is, what it cannot do, and what to do for another one, in one line.
        local: the local Kafka, if it is that.
    """

    broker: str
    words: str
    local: localkafka.LocalKafka | None = None

    @property
    def embedded(self) -> bool:
        """Whether it is the embedded log."""
        return self.broker == MEMORY


@contextmanager
def chosen_broker(say: Callable[[str], None], *, keep_running: bool) -> Iterator[Choice]:
    """The cluster that STREAM_DP_BROKER names, else a local Kafka, else, without Java or Maven, the embedded log.

    A local Kafka that was started here is stopped at the end unless it is to be kept; one that ran before is left as
    it is.

    Args:
        say: told in one line what is about to take a while.
        keep_running: leave a Kafka that was started here running.

    Raises:
        BrokerError: the local Kafka does not start.
    """
    named = localkafka.external_broker()
    if named is not None:
        yield _named(named)
        return
    problem = localkafka.local_kafka_problem()
    if problem is not None:
        yield Choice(MEMORY, f"Broker: the embedded log. {_EMBEDDED} No real Kafka: {problem}.")
        return
    found = localkafka.start(say=say)
    try:
        yield Choice(f"kafka://{found.address}", _LOCAL.format(address=found.address), found)
    finally:
        if found.started and not keep_running:
            say("Stopping Kafka")
            localkafka.stop()


_EMBEDDED = "It serves this one process and forgets everything at its end."
_LOCAL = (
    f"Broker: Apache Kafka {localkafka.KAFKA_VERSION} on this machine, {{address}}: one node, no authentication; "
    "STREAM_DP_BROKER names another."
)


def _named(broker: str) -> Choice:
    if broker == MEMORY:
        kafka = "Unset it for a real Kafka, which needs Java 17 and Maven."
        return Choice(MEMORY, f"Broker: the embedded log, as STREAM_DP_BROKER says. {_EMBEDDED} {kafka}")
    address = broker.removeprefix("kafka://")
    return Choice(
        f"kafka://{address}",
        f"Broker: the Kafka at {address} that STREAM_DP_BROKER names. Nothing of it is cleaned "
        "up: the topics of this run stay.",
    )
