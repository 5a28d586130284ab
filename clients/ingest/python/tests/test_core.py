"""The state machines and what is around them, without a socket."""

import random
import struct
import unittest

from tidewire_ingest import (Begin, GaveUp, Level, MessageTooLarge, ProtocolError, Refused, Retry, Unreachable, WrongId)
from tidewire_ingest._codec import ID_MAX, MESSAGE
from tidewire_ingest._connecting import Address, Attempts, Backoff, Route
from tidewire_ingest._session import Chunk, Outbox, Session
from tidewire_ingest._settings import ProducerSettings, ReaderSettings


def chunk(first, sizes):
    data = b"".join(MESSAGE.pack(first + n, size) + bytes(size) for n, size in enumerate(sizes))
    return Chunk(first, first + len(sizes) - 1, len(sizes), data)


def ids(data):
    found, at = [], 0
    while at < len(data):
        id, size = MESSAGE.unpack_from(data, at)
        found.append(id)
        at += MESSAGE.size + size
    return found


def frame(kind, flags, body):
    return bytearray(struct.pack("<BBHI", kind, flags, 0, len(body)) + body)


def welcomed(last=None, **settings):
    session = Session(ProducerSettings(name="p", **settings))
    session.connected(0.0)
    session.output(0.0)
    session.received(frame(1, 0 if last is None else 1, struct.pack("<B3xIIIQQ", 2, 100, 10, 1000, 1000, last or 0)), 0.0)
    return session


class OutboxTest(unittest.TestCase):
    """Against a list of messages, by random steps."""

    def test_random_steps(self):
        for seed in range(200):
            chance = random.Random(seed)
            box, model, sent, next_id = Outbox(), [], 0, 1
            for _ in range(60):
                what = chance.randrange(4)
                if what == 0:
                    sizes = [chance.randrange(30) for _ in range(chance.randrange(1, 8))]
                    box.push(chunk(next_id, sizes))
                    model += [(next_id + n, MESSAGE.size + size) for n, size in enumerate(sizes)]
                    next_id += len(sizes)
                elif what == 1:
                    messages, size = chance.randrange(1, 12), chance.randrange(1, 400)
                    got = box.next(messages, size)
                    if got is not None:
                        took = ids(got.data)
                        self.assertEqual(took, [id for id, _ in model[sent:sent + len(took)]], seed)
                        sent += len(took)
                        in_flight = sum(length for _, length in model[:sent])
                        self.assertTrue(sent == 1 or (sent <= messages and in_flight <= size), seed)
                elif what == 2 and sent:
                    id = model[chance.randrange(sent)][0]
                    gone = sum(1 for other, _ in model if other <= id)
                    self.assertEqual(box.acknowledged(id), gone, seed)
                    model, sent = model[gone:], sent - gone
                elif what == 3 and sent:
                    at = chance.randrange(sent)
                    box.rewind(model[at][0])
                    sent = at
                self.assertEqual(box.messages, len(model), seed)
                self.assertEqual(box.bytes, sum(length for _, length in model), seed)
                self.assertEqual(box.sent_messages, sent, seed)
                self.assertEqual(box.sent_bytes, sum(length for _, length in model[:sent]), seed)
                self.assertEqual(box.first_id(), model[0][0] if model else None, seed)


class SessionTest(unittest.TestCase):
    def test_ids_follow_the_mark(self):
        session = welcomed(last=41)
        self.assertEqual(session.push(b"x"), 42)
        self.assertEqual(session.push_many([b"y", b"z"]), 43)
        self.assertEqual(session.next_id, 45)
        with self.assertRaises(WrongId):
            session.push(b"", 46)

    def test_sparse_ids_rise(self):
        session = welcomed(last=41, sparse=True)
        self.assertEqual(session.push(b"x", 100), 100)
        with self.assertRaises(WrongId):
            session.push(b"x", 100)

    def test_nothing_follows_the_last_id(self):
        session = welcomed(last=ID_MAX - 1)
        with self.assertRaises(WrongId):
            session.push_many([b"a", b"b"])
        self.assertEqual(session.push(b"a"), ID_MAX)
        with self.assertRaises(WrongId):
            session.push(b"b")

    def test_a_payload_above_the_limit_is_not_taken(self):
        session = welcomed()
        for push in (lambda: session.push(bytes(101)), lambda: session.push_many([b"", bytes(101)])):
            with self.assertRaises(MessageTooLarge):
                push()
        self.assertTrue(session.is_settled)

    def test_messages_are_sent_again_behind_the_mark(self):
        session = welcomed()
        session.push_many([b"%d" % n for n in range(1, 6)])
        self.assertEqual(ids(session.output(0.0)), [1, 2, 3, 4, 5])
        session.disconnected()
        session.connected(1.0)
        hello = session.output(1.0)
        self.assertEqual(struct.unpack_from("<Q", hello, 24)[0], 1)
        session.received(frame(1, 1, struct.pack("<B3xIIIQQ", 2, 100, 10, 1000, 1000, 3)), 1.0)
        self.assertEqual(ids(session.output(1.0)), [4, 5])

    def test_level_received_adopts_when_it_comes_back(self):
        session = welcomed(level=Level.RECEIVED)
        session.disconnected()
        session.connected(0.0)
        self.assertEqual(session.output(0.0)[9], 2)

    def test_silence_is_an_end_only_while_an_answer_is_due(self):
        session = welcomed(silence=5.0)
        session.expired(100.0)
        session.push(b"x")
        session.output(100.0)
        session.expired(104.0)
        with self.assertRaises(TimeoutError):
            session.expired(105.0)

    def test_a_frame_that_is_cut_waits_for_its_rest(self):
        session = welcomed()
        session.push(b"x")
        session.output(0.0)
        whole = frame(2, 0, struct.pack("<Q", 1))
        buffer = whole[:9]
        self.assertEqual(session.received(buffer, 0.0).acknowledged, 0)
        buffer += whole[9:]
        self.assertEqual(session.received(buffer, 0.0).acknowledged, 1)
        self.assertFalse(buffer)

    def test_what_came_before_a_bad_frame_counts(self):
        session = welcomed()
        session.push(b"x")
        session.output(0.0)
        with self.assertRaises(ProtocolError):
            session.received(frame(2, 0, struct.pack("<Q", 1)) + frame(2, 0, b"short"), 0.0)
        self.assertEqual(session.settled, 1)


class ConnectingTest(unittest.TestCase):
    def test_addresses(self):
        for text, host, port in (("logs.example:7400", "logs.example", 7400), ("[::1]:1", "::1", 1)):
            address = Address.parse(text)
            self.assertEqual((address.host, address.port, str(address)), (host, port, text))
        self.assertEqual(Address.parse("unix:@name").path, "\0name")
        self.assertEqual(str(Address.parse("unix:/run/x.sock")), "unix:/run/x.sock")
        for bad in ("", "host", "host:", ":7400", "host:x", "host:65536", "::1:7400", "unix:", "unix:@", "unix:relative"):
            with self.assertRaises(ValueError, msg=bad):
                Address.parse(bad)

    def test_pauses_double_to_the_longest_and_end_in_time(self):
        backoff = Backoff(Retry(), random.Random(1))
        for whole in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
            pause = backoff.after_failure(0.0, 0.0)
            self.assertTrue(whole / 2 <= pause <= whole, pause)
        self.assertIsNone(backoff.after_failure(60.0, 0.0))
        self.assertEqual(backoff.after_failure(50.0, 600.0), 10.0)

    def test_a_named_server_is_followed_so_often_and_then_asked_in_turn_with_the_first(self):
        route = Route(Address.parse("a:1"), 2)
        route.failed()
        self.assertEqual(str(route.address), "a:1")
        self.assertTrue(route.moved("b:1") and route.moved("c:1"))
        self.assertFalse(route.moved("d:1"))
        route.failed()
        self.assertEqual(str(route.address), "a:1")
        route.failed()
        self.assertEqual(str(route.address), "c:1")

    def test_the_first_failure_is_final_unless_asked_otherwise(self):
        failure = Unreachable("gone")
        with self.assertRaises(Unreachable):
            Attempts(Address.parse("a:1"), Retry()).pause_after(failure, 0.0)
        attempts = Attempts(Address.parse("a:1"), Retry(at_first=True, attempts=3))
        attempts.pause_after(failure, 0.0)
        attempts.pause_after(failure, 0.0)
        with self.assertRaises(GaveUp):
            attempts.pause_after(failure, 0.0)

    def test_a_refusal_for_good_is_final(self):
        attempts = Attempts(Address.parse("a:1"), Retry())
        attempts.succeeded()
        with self.assertRaises(Refused):
            attempts.pause_after(Refused(7, 0, "", 0.0), 0.0)

    def test_settings_that_cannot_be_sent(self):
        for bad in ({"stream": "a\nb"}, {"name": "x" * 256}, {"first_id": -1}, {"window_messages": 2**32}):
            with self.assertRaises(ValueError, msg=bad):
                ProducerSettings(**bad)
        for bad in ({"credit": 0}, {"wait": True}, {"begin": Begin.cursor()}, {"cursor": "a\x85"}):
            with self.assertRaises(ValueError, msg=bad):
                ReaderSettings(**bad)
