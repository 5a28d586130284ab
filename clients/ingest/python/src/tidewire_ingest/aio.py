"""A producer and a reader for asyncio. One task for each connects, connects again, and hears the server."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from types import TracebackType
from typing import AsyncIterator, Callable, Iterable, Iterator, List, Optional, Tuple, Type

from ._codec import ReaderWelcome, Welcome
from ._connecting import Address, Attempts, Retry, Tls, tls_context
from ._errors import Closed, IngestError, Level, NotAcknowledged, Unanswered, Unreachable
from ._reading import Reading, Record
from ._session import HEADER, Session, as_bytes
from ._settings import Begin, ProducerSettings, ReaderSettings

_log = logging.getLogger("tidewire_ingest")
_OUTPUT = 1 << 18
"""So many bytes may wait in the transport; the rest stays in the resend buffer."""

_Streams = Tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _dial(address: Address, tls: Optional[ssl.SSLContext], timeout: float) -> _Streams:
    limit = 1 << 20
    name = address.host if tls else None
    opening = (asyncio.open_unix_connection(address.path, ssl=tls, server_hostname=name, limit=limit) if address.path is not None
               else asyncio.open_connection(address.host, address.port, ssl=tls, server_hostname=name, limit=limit))
    try:
        return await asyncio.wait_for(opening, timeout)
    except asyncio.TimeoutError:
        raise Unreachable(f"cannot connect to {address}: no connection within {timeout:.1f} s") from None
    except ssl.SSLError as e:
        raise Unreachable(f"cannot speak TLS with {address}: {e}", not isinstance(e, ssl.SSLCertVerificationError)) from e
    except OSError as e:
        raise Unreachable(f"cannot connect to {address}: {e}") from e


async def _receive(reader: asyncio.StreamReader, timeout: Optional[float]) -> Optional[bytes]:
    """What came; ``None`` if nothing did in time."""
    try:
        data = await asyncio.wait_for(reader.read(1 << 18), timeout)
    except asyncio.TimeoutError:
        return None
    except OSError as e:
        raise Unreachable(f"cannot read from the server: {e}") from e
    if not data:
        raise Unreachable("the server closed the connection")
    return data


def _drop(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


class Producer:
    """Sends messages and knows what became of them; the asyncio face of :class:`tidewire_ingest.Producer`.

    >>> async with Producer("127.0.0.1:7400", name="web-7") as producer:    # doctest: +SKIP
    ...     await producer.send(b"hello")
    ...     await producer.flush()  # now it is durable
    """

    def __init__(self, address: str = "127.0.0.1:7400", *, stream: str = "", name: str = "", level: Level = Level.DURABLE,
                 token: str = "", tls: Tls = False, sparse: bool = False, first_id: int = 1, accept_lower: bool = False,
                 accept_duplicates: bool = False, window_messages: int = 0, window_bytes: int = 0,
                 buffer_messages: int = 1_000_000, buffer_bytes: int = 32 << 20, silence: float = 30.0,
                 retry: Retry = Retry()) -> None:
        """As the blocking one, but connects in ``start``, which ``async with`` calls."""
        self._session = Session(ProducerSettings(
            stream=stream, name=name, token=token, level=Level(level), accept_lower=accept_lower, sparse=sparse,
            accept_duplicates=accept_duplicates, first_id=first_id, window_messages=window_messages,
            window_bytes=window_bytes, buffer_messages=buffer_messages, buffer_bytes=buffer_bytes, silence=silence))
        self._retry = retry
        self._tls = tls_context(tls)
        self._attempts = Attempts(Address.parse(address), retry)
        self._task: Optional[asyncio.Task[None]] = None
        self._writer: Optional[asyncio.StreamWriter] = None
        self._failure: Optional[IngestError] = None
        self._waiters: List[asyncio.Future[None]] = []

    async def start(self) -> "Producer":
        """Connects and waits for the welcome."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
            try:
                await self._until(lambda: self._session.granted is not None, None)
            except BaseException:
                self.abandon()
                raise
        return self

    @property
    def welcome(self) -> Welcome:
        """What the server granted at the last connection."""
        assert self._session.granted is not None, "not started"
        return self._session.granted

    @property
    def next_id(self) -> Optional[int]:
        return self._session.next_id

    @property
    def acknowledged(self) -> Optional[int]:
        """All messages up to this id are at the level granted."""
        return self._session.settled

    @property
    def unacknowledged(self) -> int:
        return self._session.outbox.messages

    async def send(self, payload: bytes, id: Optional[int] = None) -> int:
        """Takes a message, and answers its id; waits only while the resend buffer is full."""
        await self._room(len(payload), 1)
        id = self._session.push(payload, id)
        self._pump()
        return id

    async def send_many(self, payloads: Iterable[bytes]) -> Optional[int]:
        """Takes messages that are written together, and answers the id of the first."""
        payloads = as_bytes(payloads)
        if not payloads:
            return None
        await self._room(sum(map(len, payloads)) + HEADER * (len(payloads) - 1), len(payloads))
        first = self._session.push_many(payloads)
        self._pump()
        return first

    async def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until everything is acknowledged; ``NotAcknowledged`` after ``timeout`` seconds."""
        await self._until(lambda: self._session.is_settled, timeout)

    async def wait(self, id: int, timeout: Optional[float] = None) -> None:
        """Waits until everything up to ``id`` is acknowledged."""
        session = self._session
        await self._until(lambda: session.is_settled or (session.settled is not None and session.settled >= id), timeout)

    async def close(self, timeout: Optional[float] = None) -> None:
        """Flushes and closes."""
        try:
            if self._task is not None and self._failure is None:
                await self.flush(timeout)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes at once. What is not acknowledged may or may not be stored."""
        if self._task is not None:
            self._task.cancel()
        if self._failure is None:
            self._failure = Closed("the producer was closed")
        self._tell()

    async def __aenter__(self) -> "Producer":
        return await self.start()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()

    # Inside.

    async def _room(self, size: int, messages: int) -> None:
        if self._failure is not None:
            raise self._failure
        box, wants = self._session.outbox, self._session.wants
        if box.messages and (box.messages + messages > wants.buffer_messages or box.bytes + HEADER + size > wants.buffer_bytes):
            await self._until(lambda: not box.messages or (box.messages + messages <= wants.buffer_messages
                                                           and box.bytes + HEADER + size <= wants.buffer_bytes), None)

    async def _until(self, holds: Callable[[], bool], timeout: Optional[float]) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not holds():
            if self._failure is not None:
                raise self._failure
            if self._task is None:
                raise Closed("the producer was not started")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait_for(waiter, None if deadline is None else deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise NotAcknowledged(f"{self.unacknowledged} messages are not acknowledged in the time given") from None
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def _tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _pump(self) -> None:
        """Writes what window and transport take. Where the transport is full, an acknowledgement calls again."""
        writer = self._writer
        if writer is None:
            return
        while writer.transport.get_write_buffer_size() < _OUTPUT:
            data = self._session.output(time.monotonic())
            if data is None:
                return
            writer.write(data)

    async def _run(self) -> None:
        since = time.monotonic()
        try:
            while True:
                try:
                    await self._connection(since)
                except _Lost as lost:
                    failure = lost.failure
                    since = time.monotonic() if lost.was_welcomed else since
                self._session.disconnected()
                await asyncio.sleep(self._attempts.pause_after(failure, time.monotonic() - since))
        except IngestError as e:
            self._failure = e
        except asyncio.CancelledError:
            raise
        except Exception as e:  # A fault of this program must not leave callers waiting.
            self._failure = IngestError(f"the producer's task failed: {e!r}")
            self._failure.__cause__ = e
        finally:
            self._tell()

    async def _connection(self, since: float) -> None:
        was_welcomed = False
        session = self._session
        writer = None
        try:
            began = time.monotonic()
            reader, writer = await _dial(self._attempts.address, self._tls, self._attempts.time_for_one(began - since))
            began = time.monotonic()
            most = self._attempts.time_left(began - since)
            session.connected(began)
            self._writer = writer
            buffer = bytearray()
            while True:
                self._pump()
                now = time.monotonic()
                deadline = session.deadline()
                # While nothing is in flight there is no deadline, and a message may be sent at any moment: looks again.
                left = session.wants.silence if deadline is None else deadline - now
                if session.awaits_welcome() and most is not None:
                    left = min(left, began + most - now)
                    if left <= 0:
                        raise Unanswered("no answer to the ingest hello in the time that there is")
                data = await _receive(reader, max(left, 0.0))
                now = time.monotonic()
                if data is not None:
                    buffer += data
                    news = session.received(buffer, now)
                    if news.welcome is not None:
                        self._attempts.succeeded()
                        was_welcomed = True
                    if news.refused is not None:
                        _log.warning("messages are sent again: %s", news.refused)
                    if news.waits_for:
                        _log.info("the server waits: %s", news.waits_for)
                    self._tell()
                session.expired(now)
        except IngestError as e:
            raise _Lost(e, was_welcomed) from e
        finally:
            self._writer = None
            if writer is not None:
                _drop(writer)


class _Lost(Exception):
    def __init__(self, failure: IngestError, was_welcomed: bool) -> None:
        self.failure, self.was_welcomed = failure, was_welcomed


class Reader:
    """Reads a stream; the asyncio face of :class:`tidewire_ingest.Reader`.

    >>> async with Reader("127.0.0.1:7400", stream="access-log") as reader:   # doctest: +SKIP
    ...     async for record in reader:
    ...         print(record.position, record.payload)
    """

    def __init__(self, address: str = "127.0.0.1:7400", *, stream: str = "", begin: Optional[Begin] = None, follow: bool = False,
                 wait: bool = False, cursor: str = "", token: str = "", tls: Tls = False, credit: int = 4 << 20,
                 retry: Retry = Retry()) -> None:
        """As the blocking one, but connects in ``start``, which ``async with`` calls."""
        self._reading = Reading(ReaderSettings(stream=stream, begin=begin, follow=follow, wait=wait, cursor=cursor, token=token,
                                               credit=credit))
        self._retry = retry
        self._tls = tls_context(tls)
        self._attempts = Attempts(Address.parse(address), retry)
        self._streams: Optional[_Streams] = None
        self._buffer = bytearray()
        self._records: Iterator[Record] = iter(())
        self._failure: Optional[IngestError] = None
        self._closed = False

    async def start(self) -> "Reader":
        """Connects and waits for the welcome."""
        if self._streams is None:
            await self._connect(time.monotonic())
        return self

    @property
    def welcome(self) -> ReaderWelcome:
        assert self._reading.welcome is not None, "not started"
        return self._reading.welcome

    async def read(self) -> Optional[Record]:
        """The next record; ``None`` at the end. May be cancelled, and asked again."""
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise Closed("the reader was closed")
        try:
            while True:
                record = next(self._records, None)
                if record is not None:
                    return record
                if self._reading.is_over:
                    return None
                try:
                    await self._more()
                except IngestError as e:
                    since = time.monotonic()
                    await self._recover(e, since)
                    await self._connect(since)
        except IngestError as e:
            self._failure = e
            self._drop()
            raise

    def commit(self, position: int) -> None:
        """All records before ``position`` are dealt with: the cursor moves there, with the log's next commit. ``close`` sees
        to it that the server has it."""
        self._reading.commit(position)
        self._push()

    async def close(self) -> None:
        """Ends reading in order, so that a cursor that was moved has reached the server."""
        self._closed = True
        if self._streams is None:
            return
        reader, writer = self._streams
        try:
            if self._reading.wants.cursor:
                await asyncio.wait_for(self._end(reader, writer), self._retry.timeout)
        except (OSError, asyncio.TimeoutError):
            pass
        finally:
            self._drop()

    @staticmethod
    async def _end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            while await reader.read(1 << 18):
                pass
        else:
            # TLS: asyncio closes both directions together, after what was written.
            writer.close()
            await writer.wait_closed()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._each()

    async def _each(self) -> AsyncIterator[Record]:
        while (record := await self.read()) is not None:
            yield record

    async def __aenter__(self) -> "Reader":
        return await self.start()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close()

    # Inside.

    def _drop(self) -> None:
        if self._streams is not None:
            _drop(self._streams[1])
            self._streams = None

    async def _recover(self, failure: IngestError, since: float) -> None:
        self._drop()
        await asyncio.sleep(self._attempts.pause_after(failure, time.monotonic() - since))

    async def _connect(self, since: float) -> None:
        while True:
            try:
                self._buffer.clear()
                self._streams = await _dial(self._attempts.address, self._tls, self._attempts.time_for_one(time.monotonic() - since))
                self._reading.connected()
                self._push()
                until = time.monotonic() + self._retry.timeout
                while not self._reading.is_open:
                    data = await _receive(self._streams[0], max(until - time.monotonic(), 0.0))
                    if data is None:
                        raise Unanswered("no answer to the ingest hello: is another service at this address?")
                    self._buffer += data
                    self._reading.received(self._buffer)
                self._attempts.succeeded()
                return
            except IngestError as e:
                await self._recover(e, since)

    async def _more(self) -> None:
        if self._streams is None:
            raise Unreachable("there is no connection")
        records = self._reading.received(self._buffer)
        if records is not None:
            self._records = records
            self._push()
        elif not self._reading.is_over:
            data = await _receive(self._streams[0], None)
            assert data is not None
            self._buffer += data

    def _push(self) -> None:
        data = self._reading.output()
        if data and self._streams is not None:
            self._streams[1].write(data)
