"""Traffic of the elastic-tunnel experiments, run inside a node; imports nothing of the project so that it starts fast.

`cross` keeps as many TCP connections with unlimited data as the last number on its input says (Guirguis et al., section
4.1), `sink` takes them in, `flood` sends numbered UDP packets, `count` receives them and tells loss and order.
All end with their input or at SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
from collections.abc import Callable

CHUNK = bytes(16384)
NUMBER_BYTES = 8


def address(text: str) -> tuple[int, tuple[str, int]]:
    """Family and socket address of ADDRESS:PORT (IPv6 in brackets)."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), (host, int(port))


def on_input(selector: selectors.BaseSelector, told: Callable[[str], None]) -> Callable[[], bool]:
    """Calls told with every line of standard input; returns what a loop asks: is the input still open?"""
    state = {"open": True}

    def readable() -> None:
        line = sys.stdin.readline()
        if line:
            told(line.strip())
        else:
            state["open"] = False

    selector.register(sys.stdin, selectors.EVENT_READ, readable)
    return lambda: state["open"]


class Cross:
    """TCP senders with unlimited data; their number may change at any time."""

    def __init__(self, selector: selectors.BaseSelector, target: str, bind: str | None, congestion: str) -> None:
        self.selector = selector
        self.family, self.target = address(target)
        self.bind = bind
        self.congestion = congestion.encode()
        self.open: list[socket.socket] = []

    def set(self, line: str) -> None:
        """Opens or closes until there are this many."""
        count = int(line)
        while len(self.open) < count:
            one = socket.socket(self.family, socket.SOCK_STREAM)
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.congestion)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, len(CHUNK))
            if self.bind:
                one.bind((self.bind, 0))
            one.connect_ex(self.target)
            self.open.append(one)
            self.selector.register(one, selectors.EVENT_WRITE, lambda one=one: self.send(one))
        while len(self.open) > count:
            self.close(self.open[-1])

    def send(self, one: socket.socket) -> None:
        """Gives a connection what it takes; one that failed is opened anew."""
        if one not in self.open:
            # Closed by a command that came together with this event.
            return
        try:
            one.send(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            count = len(self.open)
            self.close(one)
            time.sleep(0.01)
            self.set(str(count))

    def close(self, one: socket.socket) -> None:
        """Resets a connection: its queued data is not of interest and would go on for a while."""
        self.selector.unregister(one)
        self.open.remove(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        one.close()


def cross(options: argparse.Namespace) -> None:
    """Sends until the input ends."""
    selector = selectors.DefaultSelector()
    senders = Cross(selector, options.connect, options.bind, options.congestion)
    is_open = on_input(selector, senders.set)
    while is_open():
        for key, _ in selector.select():
            key.data()


def sink(options: argparse.Namespace) -> None:
    """Takes in connections and forgets what they bring."""
    selector = selectors.DefaultSelector()
    family, where = address(options.listen)
    buffer = bytearray(1 << 18)
    listener = socket.create_server(where, family=family, backlog=128)

    def accept() -> None:
        one, _ = listener.accept()
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ, lambda: receive(one))

    def receive(one: socket.socket) -> None:
        try:
            got = one.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError:
            got = 0
        if not got:
            selector.unregister(one)
            one.close()

    selector.register(listener, selectors.EVENT_READ, accept)
    is_open = on_input(selector, lambda _: None)
    print("ready", flush=True)
    while is_open():
        for key, _ in selector.select():
            key.data()


def flood(options: argparse.Namespace) -> None:
    """Sends numbered packets of --bytes at --rate-pps, for --count packets or until the input ends."""
    selector = selectors.DefaultSelector()
    family, target = address(options.connect)
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.connect(target)
    is_open = on_input(selector, lambda _: None)
    padding = bytes(options.bytes - NUMBER_BYTES)
    start_s, number = time.monotonic(), 0
    while is_open() and not (options.count and number >= options.count):
        due = int((time.monotonic() - start_s) * options.rate_pps)
        # Whoever was held up does not catch up with a burst of more than a tenth of a second.
        number_due = min(due, number + options.rate_pps // 10)
        while number < number_due and not (options.count and number >= options.count):
            sender.send(number.to_bytes(NUMBER_BYTES, "big") + padding)
            number += 1
        if number_due < due:
            start_s = time.monotonic() - number / options.rate_pps
        for key, _ in selector.select(0.002):
            key.data()
    print(json.dumps({"sent": number}), flush=True)


def count(options: argparse.Namespace) -> None:
    """Receives numbered packets until the input ends; a packet is reordered when a later number came before it.

    A line of input asks for the counts and the longest pause between two arrivals since the last line.
    """
    selector = selectors.DefaultSelector()
    family, where = address(options.listen)
    receiver = socket.socket(family, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    receiver.bind(where)
    receiver.setblocking(False)
    seen = {"received": 0, "reordered": 0, "highest": -1}
    pause = {"since_s": time.monotonic(), "longest_ms": 0.0}

    def look() -> None:
        now_s = time.monotonic()
        pause["longest_ms"] = max(pause["longest_ms"], (now_s - pause["since_s"]) * 1000)
        pause["since_s"] = now_s

    def answer() -> None:
        print(json.dumps({**seen, "longest_pause_ms": pause["longest_ms"]}), flush=True)
        pause["longest_ms"] = 0.0

    def receive() -> None:
        look()
        while True:
            try:
                number = int.from_bytes(receiver.recv(65536)[:NUMBER_BYTES], "big")
            except BlockingIOError:
                return
            seen["received"] += 1
            seen["reordered"] += number < seen["highest"]
            seen["highest"] = max(number, seen["highest"])

    selector.register(receiver, selectors.EVENT_READ, receive)
    is_open = on_input(selector, lambda _: answer())
    print("ready", flush=True)
    while is_open():
        for key, _ in selector.select():
            key.data()
    print(json.dumps(seen), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = {"cross": cross, "sink": sink, "flood": flood, "count": count}
    parser.add_argument("role", choices=roles)
    parser.add_argument("--connect", metavar="ADDRESS:PORT")
    parser.add_argument("--listen", metavar="ADDRESS:PORT")
    parser.add_argument("--bind", metavar="ADDRESS")
    parser.add_argument("--congestion", default="reno")
    parser.add_argument("--bytes", type=int, default=1200)
    parser.add_argument("--rate-pps", type=int, default=1000)
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    roles[options.role](options)


if __name__ == "__main__":
    main()
