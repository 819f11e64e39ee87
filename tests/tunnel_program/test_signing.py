"""The origin's reports carry the code of its node: key and certificate come late, the node is revoked, comes back."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, TopicPartition
from cryptography import x509
from cryptography.x509.oid import NameOID

from chart.common import record_mac
from chart.v1 import tunnel_report_pb2
from support.authority import OtherAuthority, key_pem, new_key, sign_certificate, store
from support.kafka import KafkaServer
from support.waiting import until
from tunnel_program.test_streams import World, headers_of

pytestmark = pytest.mark.contract
REPORT = "chart.tunnel-report.v1"
KEY = bytes(range(32))
LIFE = datetime.timedelta(hours=1)


class Authority:
    """Gives the stream key of a node over HTTPS to whoever presents a certificate; says 403 when told so."""

    def __init__(self, directory: Path, begins: datetime.timedelta = -LIFE) -> None:
        self.own = OtherAuthority()
        self.revoked = False
        self.asked: list[str] = []
        (directory / "ca.pem").write_text(self.own.pem)
        key = new_key()
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        uri = "spiffe://chart.local/service/authority"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        served = sign_certificate(
            self.own.key, self.own.certificate.subject, name, key, uri, 3 * LIFE, begins, others=(address,)
        )
        certificate, key_file = store(directory, "served", key, served)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(directory / "ca.pem"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate, key_file)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authority.asked.append(self.path)
                body = json.dumps(authority.refusal() if authority.revoked else authority.keys()).encode()
                self.send_response(403 if authority.revoked else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    @staticmethod
    def refusal() -> dict[str, Any]:
        """As the authority says it of a revoked certificate."""
        return {"type": "urn:chart:problem:certificate-revoked", "detail": "The certificate 1 of node/a is revoked."}

    @staticmethod
    def keys() -> dict[str, Any]:
        """One epoch."""
        now_us = time.time_ns() // 1000
        epoch = {"epoch": 7, "generation": 7, "key": base64.b64encode(KEY).decode(), "sign_from_us": now_us - 1}
        until_us = now_us + 60_000_000
        return {"epochs": [{**epoch, "expires_at_us": until_us}], "renew_at_us": until_us, "now_us": now_us}

    def enrol(self, directory: Path, node: str) -> None:
        """What the node's agent keeps in its state directory."""
        key = new_key()
        uri = f"spiffe://chart.local/node/{node}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
        made = sign_certificate(self.own.key, self.own.certificate.subject, name, key, uri, LIFE)
        (directory / "node.key").write_bytes(key_pem(key))
        store(directory, "node", key, made)

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    made = Authority(tmp_path)
    yield made
    made.close()


def newest(kafka: KafkaServer, tunnel: str, limit_s: float = 30.0) -> tuple[bytes, dict[str, str]]:
    """A report that is written from now on."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": tunnel, "enable.auto.commit": False})
    partitions = consumer.list_topics(REPORT, timeout=10).topics[REPORT].partitions
    consumer.assign([TopicPartition(REPORT, number, OFFSET_END) for number in partitions])
    deadline_s = time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline_s:
            message = consumer.poll(0.2)
            if message is not None and not message.error() and (message.key() or b"").decode() == tunnel:
                headers = {name: bytes(value or b"").decode() for name, value in headers_of(message)}
                return message.value() or b"", headers
    finally:
        consumer.close()
    raise AssertionError("no report")


def test_reports_are_signed_with_the_nodes_key(kafka: KafkaServer, tmp_path: Path, authority: Authority) -> None:
    options = ["--authority", authority.url, "--authority-ca", str(tmp_path / "ca.pem"), "--state-dir", str(tmp_path)]
    world = World(kafka, tmp_path, *options)
    node = f"{world.name}-west"
    with world.destination, world.origin:
        origin = world.origin
        # The agent has not enrolled yet: nothing is written that nobody would believe.
        until(lambda: origin.get()["counters"]["reports_unsigned"] > 3, "reports that wait")
        assert "certificate cannot be read" in origin.get()["signing_error"]
        assert origin.get()["counters"]["reports_delivered"] == 0
        authority.enrol(tmp_path, node)
        until(lambda: origin.get()["gauges"]["reports_signed"], "the key")
        value, headers = newest(kafka, world.name)
        report = tunnel_report_pb2.TunnelReport.FromString(value)
        mac = record_mac.parse(headers[record_mac.HEADER])
        record_mac.check(mac, KEY, report.origin_node, REPORT, world.name, value)
        record_mac.check_contents(REPORT, world.name, report)
        assert (mac.node, mac.epoch) == (node, 7)
        assert set(authority.asked) == {f"/v1/stream-keys/{node}"}
        # Revoked: it writes no more, and says why; enrolled again it does.
        authority.revoked = True
        until(lambda: not origin.get()["gauges"]["reports_signed"], "the end of the key")
        assert "is revoked" in origin.get()["signing_error"]
        authority.revoked = False
        until(lambda: origin.get()["gauges"]["reports_signed"], "the key again")
        assert origin.get()["signing_error"] == ""


def test_a_clock_that_is_off_is_said_with_both_times(kafka: KafkaServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path, begins=LIFE)
    try:
        authority.enrol(tmp_path, "a-west")
        options = ["--authority", authority.url, "--authority-ca", str(tmp_path / "ca.pem")]
        world = World(kafka, tmp_path, *options, "--state-dir", str(tmp_path))
        with world.origin:
            until(lambda: "clock" in world.origin.get()["signing_error"], "the sentence")
            told = world.origin.get()["signing_error"]
        assert told.startswith("the authority's certificate is not valid before 2")
        assert f"and it is {datetime.datetime.now(datetime.UTC):%Y-%m-%dT}" in told
    finally:
        authority.close()
