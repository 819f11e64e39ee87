"""Two network namespaces, a way to the broker, a running chart-agent, and its streams: what the agent's tests need."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from google.protobuf.message import Message

from chart_lab import kernel
from support.waiting import Limit, until

AGENT = Path(__file__).parents[2] / "build/dataplane/chart-agent"
CLONE_NEWNET = 0x40000000
LINK_CAPACITY_BPS = 100_000_000
SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
# What `Pair.add_addresses` adds.
SENDER_IPV6, RECEIVER_IPV6 = "fd77::1", "fd77::2"
BEHIND_RECEIVER, BEHIND_PREFIX = "10.99.0.2", "10.99.0.0/24"
M = TypeVar("M", bound=Message)


def run(*command: str) -> str:
    """Output of a command that must succeed."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout


def now_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


class Pair:
    """A sending and a receiving namespace, joined by a veth pair; the sender has a cgroup of its own."""

    def __init__(self) -> None:
        tag = secrets.token_hex(3)
        self.sender, self.receiver = f"agent-{tag}-a", f"agent-{tag}-b"
        self.cgroup = kernel.cgroup_root() / "chart" / f"agent-{tag}"

    def up(self) -> None:
        """Build both ends."""
        for name in (self.sender, self.receiver):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run(*f"ip -n {self.sender} link add to-peer type veth peer name to-sender netns {self.receiver}".split())
        for name, interface, address in (
            (self.sender, "to-peer", SENDER),
            (self.receiver, "to-sender", RECEIVER),
        ):
            run("ip", "-n", name, "addr", "add", f"{address}/30", "dev", interface)
            run("ip", "-n", name, "link", "set", interface, "up")
        self.cgroup.mkdir(parents=True)

    def add_addresses(self) -> None:
        """Give the nodes more addresses: IPv6 on the link, and behind the receiver a network of its own."""
        for name, interface, address in (
            (self.sender, "to-peer", SENDER_IPV6),
            (self.receiver, "to-sender", RECEIVER_IPV6),
        ):
            run("ip", "-n", name, "addr", "add", f"{address}/64", "dev", interface, "nodad")
        run("ip", "-n", self.receiver, "addr", "add", f"{BEHIND_RECEIVER}/32", "dev", "lo")
        run("ip", "-n", self.sender, "route", "add", BEHIND_PREFIX, "via", RECEIVER)

    def down(self) -> None:
        """Remove both ends and the cgroup."""
        for name in (self.sender, self.receiver):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            self.cgroup.rmdir()

    def command(self, name: str, *command: str) -> list[str]:
        """The command inside a namespace; mounts stay as they are, unlike with `ip netns exec`."""
        return ["nsenter", f"--net=/run/netns/{name}", *command]

    def qdiscs(self) -> str:
        """Queues of the link as tc prints them."""
        return run(*self.command(self.sender, "tc", "qdisc", "show", "dev", "to-peer"))

    @contextlib.contextmanager
    def flow(self, seconds: int = 60, to: str = RECEIVER) -> Iterator[None]:
        """A bulk TCP flow from sender to receiver, in the sender's cgroup."""
        server = subprocess.Popen(
            self.command(self.receiver, "iperf3", "-s", "-1"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = None
        try:
            until(lambda: ":5201" in run(*self.command(self.receiver, "ss", "-ltn")), "iperf3 listens", 10)
            client = subprocess.Popen(
                self.command(self.sender, "iperf3", "-c", to, "-t", str(seconds)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: (self.cgroup / "cgroup.procs").write_text(str(os.getpid())) and None,
            )
            yield
        finally:
            for process in (client, server):
                if process is not None:
                    process.kill()
                    process.wait(10)


class Relay:
    """Carries TCP from 127.0.0.1:PORT inside a namespace to the same port outside: the node's way to the broker."""

    def __init__(self, namespace: str, port: int) -> None:
        self._port = port
        self._namespace = namespace
        self._selector = selectors.DefaultSelector()
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._listening = threading.Event()

    def __enter__(self) -> Relay:
        self._thread.start()
        assert self._listening.wait(10), "the relay does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _listen(self) -> socket.socket:
        """A socket keeps the namespace that its thread was in when it was made."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open() as outside, (kernel.NAMESPACES / self._namespace).open() as inside:
            if libc.setns(inside.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return socket.create_server(("127.0.0.1", self._port))
            finally:
                libc.setns(outside.fileno(), CLONE_NEWNET)

    def _serve(self) -> None:
        listener = self._listen()
        self._selector.register(listener, selectors.EVENT_READ, None)
        self._listening.set()
        while not self._stop.is_set():
            for key, _ in self._selector.select(0.1):
                if key.fileobj is listener:
                    self._join(listener.accept()[0])
                else:
                    self._carry(key.fileobj, key.data)  # type: ignore[arg-type]
        for opened in (listener, *self._open):
            opened.close()
        self._selector.close()

    def _join(self, inside: socket.socket) -> None:
        try:
            outside = socket.create_connection(("127.0.0.1", self._port), 2)
        except OSError:
            inside.close()
            return
        outside.settimeout(None)
        for one, other in ((inside, outside), (outside, inside)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(one, selectors.EVENT_READ, other)
            self._open.append(one)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        if source.fileno() < 0:
            return
        try:
            data = source.recv(65536)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for ended in (source, target):
            if ended.fileno() >= 0:
                self._selector.unregister(ended)
                ended.close()
                self._open.remove(ended)


class Agent:
    """A chart-agent process on the sending node."""

    def __init__(
        self, pair: Pair, node: str, bootstrap: str, directory: Path, environment: dict[str, str] | None = None
    ) -> None:
        """``bootstrap`` "": it follows no streams."""
        self.node = node
        self._environment = environment or {}
        self._pair = pair
        self.directory = directory
        self._log = directory / "agent.log"
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it, with more options perhaps, and wait until its socket answers."""
        command = self._pair.command(self._pair.sender, str(AGENT), "--node", self.node)
        command += ["--state-dir", str(self.directory), "--cgroup", str(self._pair.cgroup)]
        command += ["--bootstrap", self._bootstrap] if self._bootstrap else []
        command += ["--metrics", "127.0.0.1:18220", *options]
        if "--link" not in options:
            command += ["--link", f"{self.node}:to-peer=to-peer"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        until(self._answers, f"the agent answers (log: {self._log.read_text()})", 20)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        return self._ask().returncode == 0

    def _ask(self) -> subprocess.CompletedProcess[str]:
        command = [str(AGENT), "--status", "--json", "--state-dir", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def status(self) -> dict[str, Any]:
        """What `chart-agent --status --json` says."""

        def said() -> str:
            done = self._ask()
            return done.stdout if done.returncode == 0 else ""

        answer: dict[str, Any] = json.loads(until(said, "the agent says its state", 10))
        return answer

    def control(self, option: str) -> None:
        """Run `chart-agent --off`, `--on` or `--cleanup`."""
        run(*self._pair.command(self._pair.sender, str(AGENT), option, "--state-dir", str(self.directory)))

    def rate_bps(self, request: str) -> int:
        """What the kernel has for a grant now; 0: nothing."""
        grants = {grant["request_id"]: grant for grant in self.status()["grants"]}
        return int(grants[request]["kernel_rate_bps"]) if request in grants else 0

    def bulk_control(self) -> str:
        """Congestion control of the flow that sent most."""
        sockets = run(*self._pair.command(self._pair.sender, "ss", "-tinO", "dst", RECEIVER)).splitlines()[1:]
        sizes = {line: int(line.split("bytes_sent:")[1].split()[0]) for line in sockets if "bytes_sent:" in line}
        busiest = max(sizes, key=lambda line: sizes[line], default="")
        return next((name for name in ("trinity", "cubic", "reno", "bbr") if f" {name} " in busiest), "")

    def metrics(self) -> str:
        """The Prometheus text."""
        return run(*self._pair.command(self._pair.sender, "curl", "-sf", "http://127.0.0.1:18220/metrics"))

    def stop(self) -> int:
        """Ask it to stop; its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.terminate()
        return process.wait(20)

    def kill(self) -> None:
        """End it as a crash would."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait(10)


def end_of(consumer: Consumer, partition: TopicPartition, limit_s: float = 20.0) -> int:
    """Offset behind the last record; waits while a broker that has just come back does not lead the partition yet."""
    limit = Limit(limit_s)
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=5)[1])
        except KafkaException:
            if limit.over:
                raise
            time.sleep(0.1)


class Streams:
    """Writes what allocator, reservations and registry would; reads what the agent writes."""

    def __init__(
        self, bootstrap: str, as_writer: Callable[[str], Mapping[str, str | int | float | bool]] = lambda _: {}
    ) -> None:
        """``as_writer``: of a topic, the settings of librdkafka by which a broker under TLS knows who writes it."""
        self.bootstrap = bootstrap
        self._as_writer = as_writer
        self._producers: dict[str, Producer] = {}

    def _producer(self, topic: str) -> Producer:
        if topic not in self._producers:
            own = {"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0}
            self._producers[topic] = Producer({**self._as_writer(topic), **own})
        return self._producers[topic]

    def publish(self, topic: str, key: str, value: Message | None, traceparent: str = "") -> None:
        """Write one record and wait for the broker's word."""
        headers: list[tuple[str, str | bytes | None]] = []
        if value is not None:
            headers.append(("type", value.DESCRIPTOR.full_name.encode()))
        if traceparent:
            headers.append(("traceparent", traceparent.encode()))
        producer, failed = self._producer(topic), list[KafkaError]()
        producer.produce(
            topic,
            value.SerializeToString() if value is not None else None,
            key=key,
            headers=headers,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(20) == 0, "the broker did not take the record"
        assert not failed, f"the broker did not take the record: {failed[0]}"

    @contextlib.contextmanager
    def follow(self, topic: str, message: type[M], key_part: str) -> Iterator[Callable[[float], tuple[M, str]]]:
        """New records of a stream whose key contains ``key_part``: a function (limit_s) -> (value, traceparent)."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": secrets.token_hex(4),
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
        for partition in partitions:
            partition.offset = end_of(consumer, partition)
        consumer.assign(partitions)

        def following(limit_s: float) -> tuple[M, str]:
            limit = Limit(limit_s)
            while not limit.over:
                record = consumer.poll(0.1)
                if record is None or record.error() or key_part not in (record.key() or b"").decode():
                    continue
                traceparent = dict(record.headers() or []).get("traceparent") or b""
                assert isinstance(traceparent, bytes)
                return message.FromString(record.value() or b""), traceparent.decode()
            raise AssertionError(f"nothing on {topic} for {key_part} within {limit_s:g} s")

        try:
            yield following
        finally:
            consumer.close()
