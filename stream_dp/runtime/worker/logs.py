"""The log of a worker: what operators need, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType

WORKER = "stream_dp.worker"
LIBRARIES = ("aiohttp", "aiokafka", "faust", "mode", "py.warnings", "stream_dp.runtime")
"""Their loggers; ours below `stream_dp.runtime` are those of the parts of Faust that are made anew there."""


class JsonLines(logging.Formatter):
    """One JSON object a line: time (RFC 3339, UTC), level, logger, message; of an exception its stack, too."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


FORMATS: Mapping[str, logging.Formatter] = MappingProxyType(
    {"text": logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"), "json": JsonLines()}
)


def speak(form: str = "text", *, verbose: bool = False) -> None:
    """Log what operators need; if `verbose`, what Faust, the Kafka client and Python's warnings say as well.

    These say a hundred times a second that a broker is gone. The worker says so once, and why it ends when it does.

    Args:
        form: one of `FORMATS`.
        verbose: whether the libraries are heard.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[form])
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    logging.captureWarnings(capture=True)
    for name in ("worker", "control"):
        logging.getLogger(f"stream_dp.{name}").setLevel(logging.INFO)
    if not verbose:
        for name in LIBRARIES:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if form == "json":
        sys.excepthook = _say_the_unexpected


def last_line(message: str, level: int = logging.ERROR) -> str:
    """Write the last words of a process in its log's form, past the log: that may wait for a hanging thread."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, JsonLines):
            said = message.removeprefix("error: ")
            return handler.formatter.format(logging.LogRecord(WORKER, level, "", 0, said, None, None))
    return message


def _say_the_unexpected(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
    logging.getLogger(WORKER).critical("the process ends by an error of its own", exc_info=(kind, error, stack))
