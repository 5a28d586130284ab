"""A producer and a reader for programs that wait: no thread, no event loop.

All work is done in the calls. ``send`` and ``send_many`` hand messages to the socket as far as the window and the socket
take them; they wait only when the resend buffer is full, or while there is no connection."""

from __future__ import annotations

import logging
import select
import socket
import ssl
import time
from types import TracebackType
from typing import Iterable, Iterator, Optional, Type

from ._codec import ReaderWelcome, Welcome
from ._connecting import Address, Attempts, Retry, Tls, tls_context
from ._errors import Closed, IngestError, Level, NotAcknowledged, Unanswered, Unreachable
from ._reading import Reading, Record
from ._session import HEADER, Session, as_bytes
from ._settings import Begin, ProducerSettings, ReaderSettings

_log = logging.getLogger("tidewire_ingest")


class _Line:
    """A socket, with TLS or without, that never blocks unless it is told to wait."""

    def __init__(self, address: Address, tls: Optional[ssl.SSLContext], timeout: float) -> None:
        until = time.monotonic() + timeout
        try:
            if address.path is not None:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    sock.settimeout(timeout)
                    sock.connect(address.path)
                except BaseException:
                    sock.close()
                    raise
            else:
                sock = socket.create_connection((address.host, address.port), timeout)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as e:
            raise Unreachable(f"cannot connect to {address}: {e}") from e
        self._sock = sock
        self._address = address
        if tls is not None:
            try:
                sock.settimeout(max(until - time.monotonic(), 0.01))
                self._sock = tls.wrap_socket(sock, server_hostname=address.host)
            except (OSError, ValueError) as e:
                sock.close()
                final = isinstance(e, (ssl.SSLCertVerificationError, ValueError))
                raise Unreachable(f"cannot speak TLS with {address}: {e}", not final) from e
        self._sock.setblocking(False)
        self._pending = memoryview(b"")
        self._poll = select.poll()

    @property
    def is_writing(self) -> bool:
        return len(self._pending) > 0

    def write(self, data: bytes) -> None:
        """Takes all of ``data``, when nothing is left of what came before."""
        assert not self._pending
        self._pending = memoryview(data)
        self.push()

    def push(self) -> None:
        """Writes what the socket takes now."""
        try:
            while self._pending:
                self._pending = self._pending[self._sock.send(self._pending):]
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as e:
            raise Unreachable(f"cannot write to {self._address}: {e}") from e

    def read(self, buffer: bytearray, size: int) -> Optional[int]:
        """Appends what there is; ``None`` if there is nothing now, 0 at the end."""
        try:
            got = self._sock.recv(size)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError:
            return 0
        except OSError as e:
            raise Unreachable(f"cannot read from {self._address}: {e}") from e
        buffer += got
        return len(got)

    def wait(self, timeout: Optional[float]) -> bool:
        """Until there is something to read, or what is left can be written; whether that is so."""
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            return True
        mask = select.POLLIN | (select.POLLOUT if self._pending else 0)
        self._poll.register(self._sock, mask)
        # Rounded up: a time-out of 0 would be asked again and again.
        return bool(self._poll.poll(None if timeout is None else max(0, int(timeout * 1000 + 0.999))))

    def end_writing(self) -> None:
        try:
            if isinstance(self._sock, ssl.SSLSocket):
                try:
                    self._sock.unwrap()
                except (ssl.SSLError, ValueError):
                    pass  # TLS's farewell was sent; what still comes is read as it is, to the end.
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._sock.close()


class _Caller:
    """Connects, and connects again: what a producer and a reader have in common."""

    def __init__(self, address: str, tls: Tls, retry: Retry) -> None:
        self._retry = retry
        self._tls = tls_context(tls)
        self._attempts = Attempts(Address.parse(address), retry)
        self._line: Optional[_Line] = None
        self._buffer = bytearray()
        self._failure: Optional[IngestError] = None

    def _dial(self, since: float) -> _Line:
        self._buffer.clear()
        return _Line(self._attempts.address, self._tls, self._attempts.time_for_one(time.monotonic() - since))

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _recover(self, failure: IngestError, since: float, deadline: Optional[float]) -> None:
        """After a failure: pauses, or raises what is final. ``since``: when the connection was lost."""
        self._drop()
        try:
            pause = self._attempts.pause_after(failure, time.monotonic() - since)
        except IngestError as e:
            self._failure = e
            raise
        if deadline is not None and time.monotonic() + pause > deadline:
            time.sleep(max(0.0, deadline - time.monotonic()))
            raise NotAcknowledged(f"there is no connection in the time given: {failure}") from failure
        time.sleep(pause)


class Producer(_Caller):
    """Sends messages and knows what became of them.

    With a ``name`` nothing is stored twice, whatever breaks: the server keeps the highest id of each producer and stream.
    Without one, messages that were not acknowledged when a connection broke are sent again, and may be stored twice.

    >>> with Producer("127.0.0.1:7400", name="web-7") as producer:      # doctest: +SKIP
    ...     producer.send(b"hello")
    ...     producer.flush()  # now it is durable

    Not for use by several threads at once.
    """

    def __init__(self, address: str = "127.0.0.1:7400", *, stream: str = "", name: str = "", level: Level = Level.DURABLE,
                 token: str = "", tls: Tls = False, sparse: bool = False, first_id: int = 1, accept_lower: bool = False,
                 accept_duplicates: bool = False, window_messages: int = 0, window_bytes: int = 0,
                 buffer_messages: int = 1_000_000, buffer_bytes: int = 32 << 20, silence: float = 30.0,
                 retry: Retry = Retry()) -> None:
        """Connects and waits for the welcome.

        ``tls``: ``True`` for the system's authorities, or an ``ssl.SSLContext``. ``sparse``: ids rise with gaps and are given
        to ``send``. ``accept_lower``: goes on when the server grants less than ``level``. ``accept_duplicates``: goes on when
        the server has forgotten this producer. ``silence``: seconds after which a server that owes an answer counts as lost.
        """
        super().__init__(address, tls, retry)
        self._session = Session(ProducerSettings(
            stream=stream, name=name, token=token, level=Level(level), accept_lower=accept_lower, sparse=sparse,
            accept_duplicates=accept_duplicates, first_id=first_id, window_messages=window_messages,
            window_bytes=window_bytes, buffer_messages=buffer_messages, buffer_bytes=buffer_bytes, silence=silence))
        self._closed = False
        self._calls = 0
        self._connect(time.monotonic(), None)

    @property
    def welcome(self) -> Welcome:
        """What the server granted at the last connection."""
        assert self._session.granted is not None
        return self._session.granted

    @property
    def next_id(self) -> Optional[int]:
        """The id of the next message. ``None`` when there are no more."""
        return self._session.next_id

    @property
    def acknowledged(self) -> Optional[int]:
        """All messages up to this id are at the level granted. ``None`` if there is none yet."""
        return self._session.settled

    @property
    def unacknowledged(self) -> int:
        """How many messages are not acknowledged yet."""
        return self._session.outbox.messages

    def send(self, payload: bytes, id: Optional[int] = None) -> int:
        """Takes a message, and answers its id. With ``sparse``, ``id`` is any above the last one."""
        session = self._session
        self._usable()
        if not session.has_room(len(payload)):
            self._make_room(len(payload))
        id = session.push(payload, id)
        self._calls += 1
        self._turn(self._calls & 63 == 0)
        return id

    def send_many(self, payloads: Iterable[bytes]) -> Optional[int]:
        """Takes messages that are written together, and answers the id of the first: the others' follow. ``None`` if there are
        none. Faster than ``send`` for each."""
        payloads = as_bytes(payloads)
        if not payloads:
            return None
        self._usable()
        size = sum(map(len, payloads)) + HEADER * (len(payloads) - 1)
        box, wants = self._session.outbox, self._session.wants
        if box.messages and (box.messages + len(payloads) > wants.buffer_messages or box.bytes + HEADER + size > wants.buffer_bytes):
            self._make_room(size, len(payloads))
        first = self._session.push_many(payloads)
        self._turn(True)
        return first

    def poll(self) -> Optional[int]:
        """Hears what the server has said and writes what it takes, without waiting while there is a connection; answers
        ``acknowledged``."""
        self._usable()
        self._turn(True)
        return self._session.settled

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until everything is acknowledged; ``NotAcknowledged`` after ``timeout`` seconds."""
        self._usable()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._wait_while(lambda: not self._session.is_settled, deadline)

    def wait(self, id: int, timeout: Optional[float] = None) -> None:
        """Waits until everything up to ``id`` is acknowledged."""
        self._usable()
        deadline = None if timeout is None else time.monotonic() + timeout
        self._wait_while(lambda: not self._session.is_settled and (self._session.settled is None or self._session.settled < id),
                         deadline)

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes and closes. To give up what is not acknowledged: ``abandon``."""
        if self._closed:
            return
        try:
            if self._failure is None:
                self.flush(timeout)
            if self._line is not None:
                self._line.end_writing()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Closes at once. What is not acknowledged may or may not be stored."""
        self._closed = True
        self._drop()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # Inside.

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the producer was closed")
        if self._failure is not None:
            raise self._failure

    def _make_room(self, size: int, messages: int = 1) -> None:
        box, wants = self._session.outbox, self._session.wants
        self._wait_while(lambda: bool(box.messages) and (box.messages + messages > wants.buffer_messages
                                                         or box.bytes + HEADER + size > wants.buffer_bytes), None)

    def _connect(self, since: float, deadline: Optional[float]) -> None:
        """Until there is a connection with a welcome."""
        session = self._session
        while True:
            try:
                self._line = self._dial(since)
                began = time.monotonic()
                session.connected(began)
                most = self._attempts.time_left(began - since)
                most = None if most is None else began + most
                while session.awaits_welcome():
                    self._step(True, most, deadline)
                return
            except IngestError as e:
                if isinstance(e, NotAcknowledged):
                    raise
                session.disconnected()
                self._recover(e, since, deadline)

    def _turn(self, hear: bool) -> None:
        """Writes and hears what can be without waiting."""
        try:
            if self._line is None:
                raise Unreachable("there is no connection")
            self._write()
            if hear:
                self._hear()
                self._session.expired(time.monotonic())
                self._write()
        except IngestError as e:
            self._again(e, None)

    def _wait_while(self, pending: "object", deadline: Optional[float]) -> None:
        assert callable(pending)
        self._session.listening(time.monotonic())
        while pending():
            try:
                if self._line is None:
                    raise Unreachable("there is no connection")
                self._step(False, None, deadline)
            except NotAcknowledged:
                raise
            except IngestError as e:
                self._again(e, deadline)

    def _again(self, failure: IngestError, deadline: Optional[float]) -> None:
        since = time.monotonic()
        self._session.disconnected()
        self._recover(failure, since, deadline)
        self._connect(since, deadline)

    def _step(self, greeting: bool, most: Optional[float], deadline: Optional[float]) -> None:
        """Writes, waits for something to come, hears it."""
        line, session = self._line, self._session
        assert line is not None
        self._write()
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise NotAcknowledged(f"{session.outbox.messages} messages are not acknowledged in the time given")
        if greeting and most is not None and now >= most:
            raise Unanswered("no answer to the ingest hello in the time that there is")
        times = [at for at in (session.deadline(), deadline, most if greeting else None) if at is not None]
        if line.wait(max(0.0, min(times) - now) if times else None):
            line.push()
            self._hear()
        session.expired(time.monotonic())

    def _write(self) -> None:
        line, session = self._line, self._session
        assert line is not None
        if line.is_writing:
            line.push()
        while not line.is_writing:
            data = session.output(time.monotonic())
            if data is None:
                return
            line.write(data)

    def _hear(self) -> None:
        line = self._line
        assert line is not None
        got = line.read(self._buffer, 1 << 16)
        if got is None:
            return
        if got == 0:
            raise Unreachable("the server closed the connection" + (
                " before it answered the ingest hello: it may speak TLS where this client speaks none, or another protocol"
                if self._session.awaits_welcome() else ""))
        news = self._session.received(self._buffer, time.monotonic())
        if news.welcome is not None:
            self._attempts.succeeded()
        if news.refused is not None:
            _log.warning("messages are sent again: %s", news.refused)
        if news.waits_for:
            _log.info("the server waits: %s", news.waits_for)


class Reader(_Caller):
    """Reads a stream, record by record, over as many connections as it takes.

    >>> for record in Reader("127.0.0.1:7400", stream="access-log"):    # doctest: +SKIP
    ...     print(record.position, record.payload)

    Ends at the tail, unless it follows. With a ``cursor`` the server remembers how far the reader is: call ``commit`` when
    records are dealt with. Groups of readers are not part of the native protocol yet.
    """

    def __init__(self, address: str = "127.0.0.1:7400", *, stream: str = "", begin: Optional[Begin] = None, follow: bool = False,
                 wait: bool = False, cursor: str = "", token: str = "", tls: Tls = False, credit: int = 4 << 20,
                 retry: Retry = Retry()) -> None:
        """Connects and waits for the welcome. ``begin``: by default at the cursor if there is one, else at the oldest record.
        ``follow``: waits at the tail for more. ``wait``: for a stream that does not exist yet. ``credit``: bytes that may be
        on their way."""
        super().__init__(address, tls, retry)
        self._reading = Reading(ReaderSettings(stream=stream, begin=begin, follow=follow, wait=wait, cursor=cursor, token=token,
                                               credit=credit))
        self._records: Iterator[Record] = iter(())
        self._place: Optional[int] = None
        self._closed = False
        self._connect(time.monotonic())

    @property
    def welcome(self) -> ReaderWelcome:
        """What the server said that it has, at the last connection."""
        assert self._reading.welcome is not None
        return self._reading.welcome

    def read(self, timeout: Optional[float] = None) -> Optional[Record]:
        """The next record; ``None`` at the end. After ``timeout`` seconds without one: ``TimeoutError``."""
        if self._closed:
            raise Closed("the reader was closed")
        if self._failure is not None:
            raise self._failure
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                record = next(self._records, None)
            except IngestError as e:
                self._failure = e
                self._drop()
                raise
            if record is not None:
                return record
            if self._reading.is_over:
                return None
            self._more(deadline)

    def commit(self, position: int) -> None:
        """All records before ``position`` are dealt with: the cursor moves there, with the log's next commit. Nothing is
        answered; ``close`` sees to it that the server has it."""
        self._reading.commit(position)
        if self._line is not None:
            try:
                self._push(None)
            except Unreachable as e:
                self._again(e, None)

    def close(self) -> None:
        """Ends reading in order, so that a cursor that was moved has reached the server."""
        if self._closed:
            return
        self._closed = True
        if self._line is None:
            return
        try:
            self._line.end_writing()
            until = time.monotonic() + self._retry.timeout
            while self._reading.wants.cursor and (left := until - time.monotonic()) > 0 and self._line.wait(left):
                if self._line.read(bytearray(), 1 << 18) == 0:
                    break
        except Unreachable:
            pass
        finally:
            self._drop()

    def __iter__(self) -> Iterator[Record]:
        while (record := self.read()) is not None:
            yield record

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    # Inside.

    def _connect(self, since: float) -> None:
        while True:
            try:
                self._line = self._dial(since)
                self._reading.connected()
                until = time.monotonic() + self._retry.timeout
                while not self._reading.is_open:
                    self._push(until)
                    if not self._line.wait(max(0.0, until - time.monotonic())):
                        raise Unanswered("no answer to the ingest hello: is another service at this address?")
                    self._hear()
                self._attempts.succeeded()
                return
            except IngestError as e:
                self._recover(e, since, None)

    def _again(self, failure: IngestError, deadline: Optional[float]) -> None:
        since = time.monotonic()
        self._recover(failure, since, deadline)
        self._connect(since)

    def _more(self, deadline: Optional[float]) -> None:
        """Hears once, after waiting for it."""
        try:
            line = self._line
            if line is None:
                raise Unreachable("there is no connection")
            # The welcome and a batch may have come together.
            self._take()
            if self._reading.is_over or self._has_records:
                return
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                raise TimeoutError("no record came in the time given")
            if line.wait(None if deadline is None else deadline - now):
                self._hear()
        except IngestError as e:
            self._again(e, deadline)

    _has_records = False

    def _take(self) -> None:
        self._has_records = False
        records = self._reading.received(self._buffer)
        if records is not None:
            self._records = records
            self._has_records = True
            self._push(None)

    def _hear(self) -> None:
        line = self._line
        assert line is not None
        got = line.read(self._buffer, 1 << 18)
        if got == 0:
            raise Unreachable("the server closed the connection")
        if not self._reading.is_open:
            self._take()

    def _push(self, until: Optional[float]) -> None:
        """Writes hello, credit and cursors: few bytes, for which it waits if it must."""
        line = self._line
        assert line is not None
        data = self._reading.output()
        if not data:
            return
        line.write(data)
        until = until if until is not None else time.monotonic() + self._retry.timeout
        while line.is_writing:
            left = until - time.monotonic()
            if left <= 0:
                raise Unreachable("the server takes nothing")
            line.wait(left)
            line.push()
