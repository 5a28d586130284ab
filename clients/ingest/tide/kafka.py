"""Three real Kafka brokers on this machine, from Maven, and a reader of theirs that is none of ours. In namespaces of the script
(`space.enter`) each has a network and a disk of its own."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import power
from .space import HOME, Space
from .wire import Failed, expect, messages

VERSION = "4.1.0"
# How long brokers may take to know each other.
PATIENCE = 300

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>of.nobody</groupId><artifactId>brokers</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
</dependencies></project>"""


def is_missing():
    """Whether something that brokers or their reader need is not there, which is said."""
    if not shutil.which("java") or not shutil.which("mvn"):
        print("skipped: there is no java, or no mvn")
        return True
    if importlib.util.find_spec("kafka") is None:
        print("skipped: there is no kafka-python (pip install kafka-python)")
        return True
    return False


def jars(place):
    """Where the brokers' jars are; Maven brings them the first time."""
    at = os.path.join(place, f"kafka-{VERSION}")
    done = os.path.join(at, "done")
    if not os.path.exists(done) or open(done).read() != POM:
        shutil.rmtree(at, ignore_errors=True)
        os.makedirs(at)
        with open(os.path.join(at, "pom.xml"), "w") as pom:
            pom.write(POM)
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
        subprocess.run(command, cwd=at, check=True)
        with open(done, "w") as file:
            file.write(POM)
    return os.path.join(at, "jars", "*")


def place(given, prefix):
    """A directory to work in: one that was given, which stays, or one that goes."""
    if not given:
        return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    os.makedirs(given, exist_ok=True)
    return contextlib.nullcontext(os.path.abspath(given))


def free_ports(count):
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in socks]
    for sock in socks:
        sock.close()
    return ports


# The user of the listener that asks for a password.
JAAS = ('org.apache.kafka.common.security.plain.PlainLoginModule required username="tide" password="right" user_tide="right";')


class Broker:
    def __init__(self, cluster, number, port, control, guarded, space, disk):
        self.cluster, self.number, self.port, self.control, self.space = cluster, number, port, control, space
        self.guarded = guarded
        self.host = space.addr(HOME) if space else "127.0.0.1"
        self.at = os.path.join(cluster.place, f"broker-{number}")
        self.process, self.is_stopped = None, False
        self.disk = power.Disk(f"{self.at}.image", os.path.join(self.at, "disk")) if disk else None

    def format(self, voters):
        os.makedirs(self.at, exist_ok=True)
        settings = {
            "node.id": self.number, "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{self.host}:{self.port},CONTROLLER://{self.host}:{self.control},"
                         f"SASL_PLAINTEXT://{self.host}:{self.guarded}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN", "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            "controller.listener.names": "CONTROLLER", "controller.quorum.voters": voters,
            "log.dirs": os.path.join(self.at, "disk", "data"),
        }
        # Only what makes a test quicker, or stands for what operators usually set: --defaults is without.
        tuned = {
            "offsets.topic.replication.factor": 3, "offsets.topic.num.partitions": 3,
            "transaction.state.log.replication.factor": 3, "transaction.state.log.min.isr": 2,
            "transaction.state.log.num.partitions": 3, "default.replication.factor": 3, "min.insync.replicas": 2,
            "auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 6000, "replica.lag.time.max.ms": 6000,
        }
        if not self.cluster.defaults:
            settings.update(tuned)
        with open(os.path.join(self.at, "settings"), "w") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        self.java("kafka.tools.StorageTool", "format", "-t", self.cluster.identity, "-c",
                  os.path.join(self.at, "settings"), wait=True)
        if self.disk:
            # Kafka does not sync what it formats, and does not start again where that is gone.
            subprocess.run(["sync", "-f", self.disk.at], check=True)

    def java(self, main, *args, wait=False):
        within = self.space.enter() if self.space else []
        command = [*within, "java", "-Xmx320m", "-Xms160m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                   "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", self.cluster.jars, main, *args]
        log = open(os.path.join(self.at, "said"), "ab")
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.at, start_new_session=True)
        log.close()
        if wait:
            expect(process.wait(PATIENCE) == 0, f"{main} failed: {self.said()}")
        return process

    def said(self):
        with open(os.path.join(self.at, "said"), errors="replace") as log:
            return log.read()[-4000:]

    def start(self):
        self.process = self.java("kafka.Kafka", os.path.join(self.at, "settings"))

    def signal(self, number):
        self.process.send_signal(number)
        self.is_stopped = number == signal.SIGSTOP

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.is_stopped = False

    def lose(self):
        """Its machine loses power; how many bytes of its logs are gone. It is not started again."""
        self.kill()
        return self.disk.lose()

    def listens(self):
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
            return True
        except OSError:
            return False


class Cluster:
    """Three brokers that are controllers too; apart: each with a network of its own, and with a disk of its own if that can be.
    defaults: with all settings at Kafka's defaults that can be."""

    def __init__(self, place, jars, apart=False, defaults=False):
        self.defaults = defaults
        self.place, self.jars, self.identity = place, jars, "dGlkZXdpcmUtdGVzdGluZw"
        ports = [9092] * 3 + [9093] * 3 + [9094] * 3 if apart else free_ports(9)
        self.has_disks = apart and power.why_not() is None
        if apart and not self.has_disks:
            print(f"skipped: brokers that lose their page cache: {power.why_not()}", flush=True)
        spaces = [Space(f"broker-{i + 1}", 11 + i, [HOME]) if apart else None for i in range(3)]
        self.brokers = [Broker(self, i + 1, ports[i], ports[3 + i], ports[6 + i], spaces[i], self.has_disks) for i in range(3)]
        voters = ",".join(f"{b.number}@{b.host}:{b.control}" for b in self.brokers)
        for broker in self.brokers:
            broker.format(voters)
            if broker.disk:
                broker.disk.lose()
        for broker in self.brokers:
            broker.start()
        self.up()

    def at(self):
        return ",".join(f"{broker.host}:{broker.port}" for broker in self.brokers)

    def guarded(self):
        """Where they ask for a password."""
        return ",".join(f"{broker.host}:{broker.guarded}" for broker in self.brokers)

    def up(self):
        """Until all listen."""
        since = time.monotonic()
        while not all(broker.listens() for broker in self.brokers):
            for broker in self.brokers:
                expect(broker.process.poll() is None, f"broker {broker.number} has ended with {broker.process.poll()}: {broker.said()}")
            expect(time.monotonic() - since < PATIENCE, "the brokers do not listen")
            time.sleep(0.2)

    def in_sync(self):
        """Until each partition of each topic is in sync on all three: only then one of them may lose what it has not synced, by
        Kafka's own promise."""
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        since, found = time.monotonic(), None
        while True:
            try:
                admin = KafkaAdminClient(bootstrap_servers=self.at().split(","), request_timeout_ms=5000)
                try:
                    found = [part for topic in admin.describe_topics() for part in topic["partitions"]]
                finally:
                    admin.close()
                if found and all(len(part["isr_nodes"]) == 3 for part in found):
                    return
            except (KafkaError, OSError):
                pass
            expect(time.monotonic() - since < PATIENCE, f"the brokers are not in sync: {found}")
            time.sleep(0.3)

    def end(self):
        for broker in self.brokers:
            if broker.process and broker.process.poll() is None:
                broker.kill()
            if broker.disk:
                subprocess.run(["umount", broker.disk.at], check=False)


def read_home(at, topic, partition=0, since=0):
    """All committed records from an offset on, by kafka-python: offset, stream, producer, position of the first, its messages."""
    from kafka import KafkaConsumer, TopicPartition

    place = TopicPartition(topic, partition)
    # Its checksums are computed in Python, a second for each megabyte; the caller compares what matters.
    consumer = KafkaConsumer(bootstrap_servers=at.split(","), isolation_level="read_committed", enable_auto_commit=False,
                             request_timeout_ms=30000, max_partition_fetch_bytes=8 << 20, check_crcs=False)
    try:
        consumer.assign([place])
        consumer.seek(place, since)
        end = consumer.end_offsets([place])[place]
        moved = time.monotonic()
        while consumer.position(place) < end:
            expect(time.monotonic() - moved < PATIENCE, f"the reader stands at {consumer.position(place)} of {end}")
            for record in consumer.poll(500).get(place, ()):
                moved = time.monotonic()
                headers = {name: value.decode() for name, value in record.headers}
                if headers.get("tidewire") == "2":
                    found = [(int(headers["tidewire-id"]), record.value)]
                else:
                    expect(headers.get("tidewire") == "1", f"offset {record.offset} is of another format")
                    found = list(messages(record.value))
                    expect(len(found) == int(headers["tidewire-count"]), f"offset {record.offset} counts other messages")
                yield record.offset, record.key.decode(), headers["tidewire-producer"], int(headers["tidewire-position"]), found
    finally:
        consumer.close()
