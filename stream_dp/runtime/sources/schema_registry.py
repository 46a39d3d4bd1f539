"""Schemas from a registry: asked for once, before the records that need them are counted, and waited for.

The numbers of a registry are permanent: the schema of a number never changes. The answer that a number is missing is
believed for one chunk only: a number that one user made up may be the schema of other users a moment later. Workers
wait for a registry that does not answer. A registry that rejects a number while it answers other questions lacks it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from aiohttp import ClientConnectorCertificateError, ClientError, ClientSession, ClientTimeout, TCPConnector
from yarl import URL

from stream_dp.config.access import Registry
from stream_dp.config.plan import Plan, SourcePlan
from stream_dp.errors import ConfigError, Fault, OutageError
from stream_dp.runtime.factory import event_format
from stream_dp.runtime.kafka.cluster import open_secrets, read_secret, tls_context, warn_of_open
from stream_dp.runtime.kafka.outages import RETRY_SECONDS
from stream_dp.runtime.kafka.topics import Topics, sources_of
from stream_dp.windows.avro import (
    MAX_SCHEMA_BYTES,
    UnusableSchemaError,
    ValueReader,
    headers,
    number_of,
    unknown_schema,
    unusable_schema,
)
from stream_dp.windows.events import EventFormat, Read, Record, Schemas

log = logging.getLogger("stream_dp.worker")

ANSWER_SECONDS = 10.0
CONNECTIONS = 8
SAY_SECONDS = 60.0
"""Interval between two lines of the log about a registry that does not answer."""
GIVE_WAY_SECONDS = 0.2
SURE_SECONDS = 1.0
"""Age of a record from which the answer that its schema is missing is final: copies of a registry may lag."""
MOST_READINGS = 500
"""Kept for a source."""
MOST_REFERENCES = 64
_ANSWER_BYTES = 8 * MAX_SCHEMA_BYTES
_NO_SCHEMA, _NO_SUBJECT, _NO_VERSION = 40403, 40401, 40402
"""Codes in a registry's own answer."""
MAX_NUMBER = (1 << 31) - 1
"""Largest number that a registry gives to a schema."""
_REJECTED = (400, 404, 422)
"""Answers about one number, not about the registry, if the registry answers other questions."""


class SchemaRegistry:
    """A client of a registry with the interface of Confluent's, which others have too.

    Attributes:
        registry: where it is.
        waits: whether it is waited for at present.
    """

    def __init__(self, registry: Registry, session: ClientSession, *, patient: bool) -> None:
        """Set up the client.

        Args:
            registry: where it is.
            session: with its login and certificates.
            patient: wait for a registry that does not answer.
        """
        self.registry = registry
        self.waits = False
        self._session = session
        self._patient = patient
        self._said = 0.0
        self._turns = asyncio.Semaphore(CONNECTIONS)  # the time limit of a request begins when it has a connection

    def __str__(self) -> str:
        """In words, for whoever waits for it."""
        return f"the schema registry at {self.registry.url}"

    async def text(self, number: int) -> tuple[str, Sequence[str]] | None:
        """Return the schema of a number, as soon as the registry answers.

        Returns:
            The schema, and those that it refers to, each after those that it refers to itself; None if the registry
            does not have it now.

        Raises:
            UnusableSchemaError: it is not in Avro, or refers to too much or to what is not there.
            ConfigError: the registry does not let us in.
            OutageError: it does not answer, and is not waited for.
        """
        if number > MAX_NUMBER:
            return None
        found = await self._patiently(f"schemas/ids/{number}", _NO_SCHEMA)
        if found is None:
            return None
        references: dict[tuple[str, int], str] = {}
        await self._follow(found, references, ())
        return found["schema"], tuple(references.values())

    async def _follow(
        self, schema: Mapping[str, Any], into: dict[tuple[str, int], str], inside: tuple[Any, ...]
    ) -> None:
        """Add the schemas that one refers to, behind those that they refer to."""
        if schema.get("schemaType", "AVRO") != "AVRO" or not isinstance(schema.get("schema"), str):
            raise UnusableSchemaError("it is not in Avro")
        for reference in schema.get("references") or ():
            try:
                place = str(reference["subject"]), int(reference["version"])
            except (LookupError, TypeError, ValueError):
                raise UnusableSchemaError("it refers to something in a way that is not known") from None
            if place in into:
                continue
            if place in inside or len(inside) + len(into) >= MOST_REFERENCES:
                raise UnusableSchemaError(f"it refers to itself, or to more than {MOST_REFERENCES} others")
            path = f"subjects/{quote(place[0], safe='')}/versions/{place[1]}"
            found = await self._patiently(path, _NO_SUBJECT, _NO_VERSION)
            if found is None:
                raise UnusableSchemaError("it refers to one that is not there")
            await self._follow(found, into, (*inside, place))
            into[place] = found["schema"]

    async def _ask(self, path: str, *nothing: int) -> Mapping[str, Any] | None:
        """Return the document at a path; None if the registry does not have it.

        Args:
            path: the path.
            nothing: codes by which a registry says so; it may also reject the path without one of them.

        Raises:
            OutageError: it does not answer, or something answers in its place.
        """
        status, words, answer = await self._fetch(path)
        if status in _REJECTED and (_error_code(answer) in nothing or await self._answers_others()):
            return None
        if status != 200 or not isinstance(answer, dict) or "schema" not in answer:
            raise OutageError(f"it answers {words}, which is not an answer of a schema registry")
        return answer

    async def _answers_others(self) -> bool:
        """Return True if a registry answers at the address.

        A proxy, or a wrong path in the address, answers every question with the same rejection.
        """
        status, _, answer = await self._fetch(f"schemas/ids/{MAX_NUMBER}")
        if _error_code(answer) == _NO_SCHEMA or (status == 200 and isinstance(answer, dict) and "schema" in answer):
            return True
        status, _, answer = await self._fetch("schemas/types")
        return status == 200 and isinstance(answer, list)

    async def _fetch(self, path: str) -> tuple[int, str, Any]:
        """Return the status of the answer for a path, the same in words, and its JSON; None if it is not JSON.

        Raises:
            ConfigError: the registry does not let us in.
            OutageError: it does not answer.
            UnusableSchemaError: the answer is too long.
        """
        try:
            url = URL(f"{self.registry.url}/{path}", encoded=True)
            async with self._turns, self._session.get(url, allow_redirects=False) as response:
                body, status = await response.content.read(_ANSWER_BYTES + 1), f"{response.status} {response.reason}"
                while len(body) <= _ANSWER_BYTES and (more := await response.content.read(_ANSWER_BYTES)):
                    body += more
        except ClientConnectorCertificateError as error:
            raise ConfigError(f"its certificate is not trusted: {error}", path="registry.tls.ca") from None
        except (ClientError, OSError) as error:  # TimeoutError is an OSError
            raise OutageError(f"it does not answer ({str(error) or 'nothing came in time'})") from None
        if response.status in (401, 403):
            raise ConfigError(f"{self.registry.url} refuses the login ({status})", path="registry")
        if len(body) > _ANSWER_BYTES:
            raise UnusableSchemaError("it is too long")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        return response.status, status, answer

    async def _patiently(self, path: str, *nothing: int) -> Mapping[str, Any] | None:
        """Return the document at a path as `_ask` does, asked for until there is an answer."""
        while True:
            try:
                answer = await self._ask(path, *nothing)
            except OutageError as error:
                if not self._patient:
                    raise OutageError(f"{self}: {error}") from None
                self._tell(error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if self.waits:
                    self.waits = False
                    log.warning("%s answers again; the worker goes on", self)
                return answer

    def _tell(self, error: OutageError) -> None:
        if not self.waits or time.monotonic() - self._said >= SAY_SECONDS:
            log.warning("%s is unavailable; affected records are deferred: %s", self, error)
            self._said = time.monotonic()
        self.waits = True


def _error_code(answer: object) -> object:
    """Return the error code in a registry's answer; None if it has none."""
    return answer.get("error_code") if isinstance(answer, dict) else None


class SourceSchemas:
    """Schemas of one source's values, by the number in front of them."""

    def __init__(self, source: str, form: EventFormat, registry: SchemaRegistry) -> None:
        """Set up the schemas; none is asked for yet.

        Args:
            source: its name.
            form: what is needed of its values.
            registry: where the schemas are.
        """
        self.registry = registry
        self._source = source
        self._form = form
        self._known: dict[bytes, Read] = {}
        self._asking = asyncio.Lock()

    def go_by(self, form: EventFormat) -> None:
        """Read values for other needs from now on; what is being asked for answers the former ones."""
        if form != self._form:
            self._form, self._known = form, {}

    async def wait_for_readers(
        self, wanted: Set[bytes], give_way: Callable[[], Awaitable[None]], *, age_s: float = 0.0
    ) -> Schemas:
        """Return what `find_readers` does, but give way to a stop or a rebalance: both wait for the chunks of agents.

        Args:
            wanted: as of `find_readers`.
            give_way: called repeatedly while there is no answer; does not return if a stop or a rebalance waits.
            age_s: as of `find_readers`.
        """
        asking = asyncio.ensure_future(self.find_readers(wanted, age_s=age_s))
        try:
            while not asking.done():
                await asyncio.wait({asking}, timeout=GIVE_WAY_SECONDS)
                if not asking.done():
                    await give_way()
        finally:
            asking.cancel()
        return asking.result()

    async def of(self, records: Sequence[Record]) -> Schemas:
        """Return the readers of some records' values, as `find_readers` does."""
        return await self.find_readers(headers(records))

    async def find_readers(self, wanted: Set[bytes], *, age_s: float = 0.0) -> Schemas:
        """Return the readers of the values with some headers, as soon as the registry has answered.

        Args:
            wanted: the headers.
            age_s: seconds for which the values have been in the log at least.

        Raises:
            ConfigError: the registry does not let us in.
            OutageError: it does not answer, and is not waited for.
        """
        known = self._known
        form = self._form
        if wanted <= known.keys():
            return {header: known[header] for header in wanted}
        async with self._asking:  # Only the holder of the lock forgets schemas.
            missing = await self._learn_schemas(wanted - known.keys(), known, form)
            if missing and age_s < SURE_SECONDS:
                await asyncio.sleep(SURE_SECONDS - max(0.0, age_s))
                await self._learn_schemas(missing, known, form)
            spare = max(0, len(known) - MOST_READINGS)
            for header in [header for header in known if header not in wanted][:spare]:
                del known[header]
            return {header: known.get(header, unknown_schema) for header in wanted}

    async def _learn_schemas(self, new: Set[bytes], known: dict[bytes, Read], form: EventFormat) -> set[bytes]:
        """Ask for the schemas of some headers, and return the headers of those that the registry does not have."""
        asked = [*new]
        readers = await asyncio.gather(*(self._reading(header, form) for header in asked))
        found = {header: read for header, read in zip(asked, readers, strict=True) if read is not None}
        known.update(found)
        return set(asked) - found.keys()

    async def _reading(self, header: bytes, form: EventFormat) -> Read | None:
        number = number_of(header)
        try:
            found = await self.registry.text(number)
            return None if found is None else await asyncio.to_thread(ValueReader, *found, form)
        except UnusableSchemaError as error:
            words = "sources.%s: records with schema %d of the registry are refused, since %s"
            log.warning(words, self._source, number, error)
            return unusable_schema


@asynccontextmanager
async def open_registry(plan: Plan, *, patient: bool = True) -> AsyncIterator[Mapping[str, SourceSchemas]]:
    """The schemas of every source in Avro, by its topic and by that in which it is counted; none without such a source.

    Args:
        plan: the application.
        patient: wait for a registry that does not answer, as long as it takes.

    Raises:
        ConfigError: a certificate or the password of the registry cannot be read.
    """
    topics = Topics.of(plan)
    sources = {topic: source for topic, source in sources_of(plan).items() if source.format == "avro"}
    registry = plan.registry
    if registry is None or not sources:
        yield {}
        return
    faults: list[Fault] = []
    context = tls_context("registry", registry.tls, faults)
    if faults:
        raise ConfigError(faults)
    login = {}
    if registry.password is not None:
        pair = f"{registry.username}:{read_secret(registry.password)}"
        login["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    warn_of_open(open_secrets(registry))
    connector = TCPConnector(ssl=context or ssl.create_default_context(), limit=CONNECTIONS)
    timeout = ClientTimeout(total=ANSWER_SECONDS)
    async with ClientSession(headers=login, connector=connector, timeout=timeout) as session:
        client = SchemaRegistry(registry, session, patient=patient)
        found: dict[str, SourceSchemas] = {}
        for topic, source in sources.items():
            schemas = SourceSchemas(source.name, needed(plan, source), client)
            found |= dict.fromkeys((topic, topics.counted(source)), schemas)
        yield found


def needed(plan: Plan, source: SourcePlan) -> EventFormat:
    """Return the fields that are needed of a source's values."""
    return event_format(source, [view for view in plan.views.values() if view.source.topic == source.topic])
