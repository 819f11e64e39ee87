"""Hosts without an agent through chart-proxy: nothing changes for them but the speed, whatever becomes of the proxy.

Brassil et al., The CHART System, sections 3 and 5 (proxies for hosts whose stack is not CHART's).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chart.common import qos
from chart_lab.experiments import agents
from chart_lab.experiments import proxy as experiment
from chart_lab.experiments.signal_lab import Signals, ask, elements
from chart_lab.network import Lab
from chart_lab.topology import Impairment
from support.proxies import IPV6, Proxy
from support.waiting import poll

pytestmark = pytest.mark.lab

PORT = 5201
CLOSED_PORT = 5299
PYTHON = "/usr/bin/python3"
KEPT_CAPABILITIES = {10, 12, 13}  # NET_BIND_SERVICE, NET_ADMIN, NET_RAW
Serve = Callable[..., subprocess.Popen[str]]

# Prints one line of JSON per connection: who came, what came and how it ended. `answer`: octets sent after the end of
# what came; `reset`: resets after the first octet, when `last` octets of its own have arrived; `wait`: reads nothing
# until a line comes on standard input.
SERVER = """
import fcntl, hashlib, json, socket, struct, sys, termios, time
told = json.loads(sys.argv[1])
family = socket.AF_INET6 if ":" in told["address"] else socket.AF_INET
listener = socket.create_server((told["address"], told["port"]), family=family)
print("listening", flush=True)
while True:
    connection, peer = listener.accept()
    digest, count, end = hashlib.sha256(), 0, "end"
    try:
        if told.get("wait"):
            sys.stdin.readline()
        while block := connection.recv(1 << 20):
            digest.update(block)
            count += len(block)
            if told.get("reset"):
                connection.sendall(bytes(told.get("last", 0)))
                while any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4))):
                    time.sleep(0.01)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                break
        else:
            connection.sendall(bytes(told.get("answer", 0)))
    except OSError as error:
        end = type(error).__name__
    connection.close()
    print(json.dumps({"peer": peer[:2], "octets": count, "sha256": digest.hexdigest(), "end": end}), flush=True)
"""
# Connects, sends, ends its half, reads to the end; `hold`: keeps the connection open until a line comes.
CLIENT = """
import hashlib, json, socket, sys, time
told = json.loads(sys.argv[1])
digest, count, end, local, at = hashlib.sha256(), 0, "end", None, "connect"
begun = time.monotonic()
try:
    connection = socket.create_connection((told["address"], told["port"]), timeout=30)
    local, at = connection.getsockname()[:2], "transfer"
    connecting_s = time.monotonic() - begun
    print("connected", flush=True)
    if told.get("hold"):
        connection.sendall(b"held")
        connection.recv(1)
    left = told.get("octets", 0)
    while left:
        block = (left.to_bytes(8, "big") * 8192)[:left]
        connection.sendall(block)
        digest.update(block)
        left -= len(block)
    connection.shutdown(socket.SHUT_WR)
    while block := connection.recv(1 << 20):
        count += len(block)
except OSError as error:
    end, connecting_s = type(error).__name__, time.monotonic() - begun
print(json.dumps({"local": local, "got": count, "sha256": digest.hexdigest(), "end": end, "at": at,
                  "connecting_s": connecting_s}), flush=True)
"""


@pytest.fixture
def serve(lab: Lab) -> Iterator[Serve]:
    """Starts servers that end with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(address: str, port: int = PORT, **how: object) -> subprocess.Popen[str]:
        words = [PYTHON, "-c", SERVER, json.dumps({"address": address, "port": port, **how})]
        process = lab.popen("server", words, stdin=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def lossless(lab: Lab) -> Iterator[None]:
    """The long link without its losses, so that ordinary TCP is soon done."""
    lab.impair(experiment.LONG_LINK, Impairment(loss=0.0))
    yield
    lab.impair(experiment.LONG_LINK, Impairment(loss=0.02))


def client_command(address: str, port: int = PORT, **how: object) -> list[str]:
    return [PYTHON, "-c", CLIENT, json.dumps({"address": address, "port": port, **how})]


def connect(lab: Lab, address: str, port: int = PORT, **how: object) -> dict[str, Any]:
    """A connection of the client to its end."""
    told = lab.exec("client", client_command(address, port, **how), timeout_s=60).stdout
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


def heard(server: subprocess.Popen[str]) -> dict[str, Any]:
    """What the server says of its next connection."""
    assert server.stdout is not None
    found: dict[str, Any] = json.loads(server.stdout.readline())
    return found


def test_addresses_octets_and_both_ends_of_a_connection(
    lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str
) -> None:
    process = serve(server, answer=500_000)
    client = connect(lab, server, octets=2_000_000)
    seen = heard(process)
    assert client["end"] == "end"
    assert seen["peer"] == client["local"], "the server sees the client's own address and port"
    assert (seen["octets"], seen["sha256"]) == (2_000_000, client["sha256"])
    # The answer came after the client had ended its half.
    assert client["got"] == 500_000
    for node in ("near", "far"):
        samples = poll(proxies[node].metrics, lambda now: now['connections{state="closing"}'] == 0, 5)
        assert samples["connections_taken_total"] == 1, node
        assert samples['bytes_total{direction="onward"}'] == 2_000_000
        assert samples['bytes_total{direction="back"}'] == 500_000
        assert samples['connections{state="open"}'] == 0
        assert samples['resets_total{reason="peer"}'] == 0


def test_a_refused_connection_is_refused(lab: Lab, proxies: dict[str, Proxy], server: str) -> None:
    client = connect(lab, server, CLOSED_PORT)
    assert (client["end"], client["at"]) == ("ConnectionRefusedError", "connect")
    assert proxies["near"].metrics()['passed_total{reason="refused"}'] == 1


def test_what_was_said_before_a_reset_arrives(lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str) -> None:
    serve(server, reset=True, last=300_000)
    client = connect(lab, server, octets=1)
    assert client["got"] == 300_000
    assert client["end"] == "ConnectionResetError"


def test_a_reset_is_passed_on(lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str) -> None:
    serve(server, reset=True)
    client = connect(lab, server, octets=50_000_000)
    assert (client["end"], client["at"]) in (("ConnectionResetError", "transfer"), ("BrokenPipeError", "transfer"))
    samples = poll(proxies["far"].metrics, lambda now: now['connections{state="open"}'] == 0, 5)
    assert samples['resets_total{reason="peer"}'] == 1


@pytest.mark.usefixtures("lossless")
def test_a_server_that_does_not_read_holds_the_client_back(lab: Lab, proxies: dict[str, Proxy], serve: Serve) -> None:
    address, octets = lab.address("server"), 80_000_000
    process = serve(address, wait=True)
    sender = lab.popen("client", client_command(address, octets=octets))
    try:
        onward = 'bytes_total{direction="onward"}'
        taken = [-1.0]

        def still() -> bool:
            taken.append(proxies["near"].metrics()[onward])
            return taken[-1] > 0 and taken[-1] == taken[-12 if len(taken) > 12 else 0]

        assert poll(still, bool, 20)
        assert taken[-1] < octets / 2, "what nobody reads is not taken in without end"
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert heard(process)["octets"] == octets
    finally:
        sender.kill()
        sender.communicate()


def test_killed_the_hosts_go_on_without_it(lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str) -> None:
    near = proxies["near"]
    process = serve(server)
    held = lab.popen("client", client_command(server, hold=True))
    assert held.stdout is not None
    assert held.stdout.readline() == "connected\n"
    assert poll(near.metrics, lambda now: now['connections{state="open"}'] == 1, 5)
    near.kill()
    # Both hosts learn at once; nothing waits for a timer.
    ended = json.loads(held.communicate(timeout=5)[0].splitlines()[-1])
    assert ended["end"] == "ConnectionResetError"
    assert heard(process)["end"] == "ConnectionResetError"
    client = connect(lab, server, octets=100_000)
    assert client["end"] == "end"
    assert client["connecting_s"] < 5
    assert heard(process)["peer"] == client["local"]
    assert near.left(), "a killed proxy cannot take its rules along"
    # A new one takes over what is there, once.
    near.start()
    assert sum("PREROUTING" in line for line in near.left()) == 2
    assert connect(lab, server, octets=1000)["end"] == "end"
    assert heard(process)["octets"] == 1000
    assert near.metrics()["connections_taken_total"] == 1
    near.kill()
    assert near.run("--cleanup").returncode == 0
    assert near.left() == []


@pytest.mark.usefixtures("lossless")
def test_ended_in_order_it_lets_connections_end(lab: Lab, proxies: dict[str, Proxy], serve: Serve) -> None:
    near, address = proxies["near"], lab.address("server")
    process = serve(address)
    sender = lab.popen("client", client_command(address, octets=3_000_000))
    assert sender.stdout is not None
    assert sender.stdout.readline() == "connected\n"
    assert poll(near.metrics, lambda now: now['connections{state="open"}'] == 1, 5)
    assert near.stop() == 0
    assert json.loads(sender.communicate(timeout=10)[0])["end"] == "end"
    assert heard(process)["octets"] == 3_000_000
    assert near.left() == []


def test_what_is_above_the_limit_goes_past_it(lab: Lab, proxies: dict[str, Proxy], serve: Serve) -> None:
    near, address = proxies["near"], lab.address("server")
    near.stop()
    near.start("--connections", "1", "--drain-s", "0")
    process = serve(address, wait=True)
    held = lab.popen("client", client_command(address, hold=True))
    try:
        assert held.stdout is not None
        assert held.stdout.readline() == "connected\n"
        other = serve(address, PORT + 1)
        assert connect(lab, address, PORT + 1, octets=1000)["end"] == "end"
        assert heard(other)["octets"] == 1000
        # A SYN that is sent again on a busy machine counts again.
        assert near.metrics()['passed_total{reason="limit"}'] >= 1
    finally:
        held.kill()
        held.communicate()
        process.kill()


def test_only_the_hosts_that_were_named(lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str) -> None:
    near = proxies["near"]
    near.stop()
    near.start("--host", f"{lab.address('client')}/32")
    process = serve(server)
    assert connect(lab, server, octets=1000)["end"] == "end"
    assert heard(process)["octets"] == 1000
    assert near.metrics()["connections_taken_total"] == (server != IPV6["server"])


@pytest.fixture
def tracking(lab: Lab) -> Iterator[None]:
    """near tracks connections and drops what fits none, as a stateful packet filter does."""
    rules = [
        ["-t", "filter", change, chain, "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP"]
        for change in ("-A", "-D")
        for chain in ("INPUT", "OUTPUT", "FORWARD")
    ]
    for rule in rules[:3]:
        lab.exec("near", ["iptables", "-w", *rule])
    yield
    for rule in rules[3:]:
        lab.exec("near", ["iptables", "-w", *rule])


@pytest.mark.usefixtures("tracking")
def test_beside_a_packet_filter_that_tracks_connections(lab: Lab, proxies: dict[str, Proxy], serve: Serve) -> None:
    near, address = proxies["near"], lab.address("server")
    near.stop()
    near.start("--new-ports")
    process = serve(address, answer=100_000)
    client = connect(lab, address, octets=500_000)
    assert (client["end"], client["got"]) == ("end", 100_000)
    seen = heard(process)
    assert seen["octets"] == 500_000
    assert seen["peer"][0] == client["local"][0]
    assert seen["peer"][1] != client["local"][1]
    assert near.metrics()["connections_taken_total"] == 1


def controls(lab: Lab, node: str) -> list[str]:
    """The congestion control of every flow from a node to the server."""
    told = lab.exec(node, ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    return [line.split()[0] for line in told.splitlines() if line.startswith("\t")]


@pytest.fixture
def bulk(lab: Lab, proxies: dict[str, Proxy], serve: Serve, server: str) -> Iterator[Callable[[], None]]:
    """Begins a long transfer of the client, which ends with the test."""
    running: list[subprocess.Popen[str]] = []
    serve(server)
    yield lambda: running.append(lab.popen("client", client_command(server, octets=200_000_000)))
    for process in running:
        process.kill()
        process.communicate()


def test_the_onward_connection_gets_the_rate_of_the_node(lab: Lab, bulk: Callable[[], None], server: str) -> None:
    client = IPV6["client"] if server == IPV6["server"] else lab.address("client")
    stated = agents.grant("proxied", client, server, 100e6, 60)
    if server == IPV6["server"]:
        stated["selector"] |= {"source_prefix": f"{client}/128", "destination_prefix": f"{server}/128"}
    with agents.agents(lab, {"near": [stated]}):
        bulk()
        assert poll(lambda: controls(lab, "near"), lambda now: now == ["trinity"], 5) == ["trinity"]
        # The host knows nothing of it.
        assert controls(lab, "client") not in ([], ["trinity"])


def test_the_nodes_agree_on_a_rate_in_band(lab: Lab, bulk: Callable[[], None]) -> None:
    signals = Signals(
        lab.topology,
        elements=("near", "far"),
        asks={"near": [ask(port=PORT, available_bps=10**12)]},
        more_addresses={node: [f"{address}/128"] for node, address in IPV6.items()},
    )
    with elements(lab, signals) as running:
        bulk()
        assert poll(lambda: controls(lab, "near"), lambda now: now == ["trinity"], 5) == ["trinity"]
        flows = poll(lambda: running["near"].status()["flows"], bool, 2)
        assert [flow["rate_bps"] for flow in flows] == [qos.decode_rate(qos.encode_rate(97_000_000))]
        assert running["far"].counters()["consumed"] > 0


def test_it_keeps_three_capabilities(proxies: dict[str, Proxy]) -> None:
    process = proxies["near"].process
    assert process is not None
    status = Path(f"/proc/{process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapPrm", "CapEff", "CapBnd"):
        assert int(fields[name], 16) == sum(1 << bit for bit in KEPT_CAPABILITIES), name
    assert fields["NoNewPrivs"] == "1"


def test_why_it_cannot_start_is_said(lab: Lab, proxies: dict[str, Proxy]) -> None:
    near = proxies["near"]
    second = near.run()
    assert second.returncode == 1
    assert "the port is taken; is another chart-proxy running?" in second.stderr
    assert "queue 18450 for first packets: it is taken" in near.run("--port", "18460").stderr
    cleaned = near.run("--cleanup")
    assert cleaned.returncode == 1
    assert "is running" in cleaned.stderr
    assert near.left(), "and the running one keeps its rules"
    nowhere = lab.exec("near", [near.command()[0], "--interface", "nowhere"], check=False)
    assert (nowhere.returncode, "there is no such interface" in nowhere.stderr) == (1, True)
    unprivileged = lab.exec("near", ["setpriv", "--reuid", "65534", *near.command()], check=False)
    assert (unprivileged.returncode, "needs root" in unprivileged.stderr) == (1, True)
    assert near.run("--port", "none").returncode == 2
