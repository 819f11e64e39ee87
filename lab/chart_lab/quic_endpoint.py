"""Ends of a QUIC connection that speaks SCONE, over aioquic, for the experiment `scone`.

    python -m chart_lab.quic_endpoint receive OWN PORT
    python -m chart_lab.quic_endpoint send OWN PEER PORT FACTOR DURATION_S

aioquic knows nothing of SCONE: both announce it in their transport parameters, the sender puts SCONE packets in front
of datagrams, the receiver takes them off and returns on a stream what they said (Thomson et al., Standard Communication
with Network Elements (SCONE) Protocol). The sender sends FACTOR times what it was advised, counted with headers of IP:
1 follows the advice, 4 does not. Both say `ready` first and write a line of JSON at the end: datagrams sent, the last
advice and the rate at which it sent; datagrams received.
"""

from __future__ import annotations

import datetime
import json
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic import connection as quic_connection
from aioquic.quic import packet as quic_packet
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from chart_lab.scone_endpoint import UNKNOWN, advised_bps, scone_head, signal_in

SUPPORTED = 0x219E
# Longer than the default of a connection without traffic, and shorter than the draft's period of 67 s.
SCONE_INTERVAL_S = 3.0
FIRST_DATAGRAMS = 4
# At the end of a client's datagrams until it hears of the server: "Indicating Support on New Flows".
INDICATION = b"\xc8\x13"
# Before anything is advised.
BEGIN_BPS = 500_000.0
_ALPN = ["chart-lab"]
_IP_UDP_OCTETS = 28
_CONNECTION_OCTETS = 8
_CHUNK = bytes(4096)
_LOOK_S = 0.005


class Peer:
    """What the other end of this process's one connection said."""

    speaks_scone = False


def announce() -> None:
    """Transport parameter of this process's connection: SCONE is understood; note whether the other end says so too."""
    quic_packet.PARAMS[SUPPORTED] = ("scone_supported", bool)
    quic_packet.QuicTransportParameters.scone_supported = True  # type: ignore[attr-defined]
    read = quic_packet.pull_quic_transport_parameters

    def noting(buf: Buffer) -> quic_packet.QuicTransportParameters:
        parameters = read(buf)
        Peer.speaks_scone = "scone_supported" in vars(parameters)
        return parameters

    quic_connection.pull_quic_transport_parameters = noting  # type: ignore[attr-defined]


def in_front(datagram: bytes) -> bytes:
    """The datagram behind a SCONE packet of unknown signal with its own connection ids."""
    if datagram[0] & 0x80:
        ids = datagram[5 : 7 + datagram[5] + datagram[6 + datagram[5]]]
    else:
        ids = bytes([_CONNECTION_OCTETS]) + datagram[1 : 1 + _CONNECTION_OCTETS] + b"\0"
    return scone_head(UNKNOWN) + ids + datagram


def behind(datagram: bytes) -> bytes:
    """What follows the SCONE packet that a datagram begins with."""
    at = 6 + datagram[5]
    return datagram[at + 1 + datagram[at] :]


def certificate() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Of the receiver; nobody verifies it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "chart-lab")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now)
    return made.not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256()), key


class End:
    """One connection over a socket."""

    def __init__(self, own: socket.socket, connection: QuicConnection, peer: tuple[str, int]) -> None:
        self.own, self.connection, self.peer = own, connection, peer
        self.signals: list[int] = []
        self.wire_octets = self.sent = self.received = 0
        self.advises = False
        self.indicates = False
        self._scone_due_s = 0.0
        self._datagrams = 0

    def flush(self) -> None:
        """Send what waits, with SCONE packets in front where one is due."""
        now = time.monotonic()
        for datagram, _ in self.connection.datagrams_to_send(now):
            sent = datagram + INDICATION if self.indicates else datagram
            if self.advises and (self._datagrams < FIRST_DATAGRAMS or now >= self._scone_due_s):
                sent = in_front(datagram)
                self._datagrams += 1
                self._scone_due_s = now + SCONE_INTERVAL_S
            self.own.sendto(sent, self.peer)
            self.wire_octets += len(sent) + _IP_UDP_OCTETS
            self.sent += 1

    def take(self, datagram: bytes) -> None:
        """What arrived."""
        self.indicates = False
        self.received += 1
        signal = signal_in(datagram)
        if signal is not None:
            self.signals.append(signal)
            datagram = behind(datagram)
        if datagram:
            self.connection.receive_datagram(datagram, self.peer, time.monotonic())

    def pump(self) -> list[Any]:
        """Events since the last call; waits a moment for what arrives."""
        timer = self.connection.get_timer()
        wait_s = _LOOK_S if timer is None else min(_LOOK_S, max(0.0, timer - time.monotonic()))
        self.own.settimeout(wait_s or 1e-4)
        try:
            while True:
                self.take(self.own.recv(65_535))
                self.own.settimeout(1e-4)
        except (TimeoutError, BlockingIOError, ConnectionError):
            pass
        if timer is not None and time.monotonic() >= timer:
            self.connection.handle_timer(time.monotonic())
        events = []
        while (event := self.connection.next_event()) is not None:
            events.append(event)
        return events


def _bound(own: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((own, port))
    return made


def _ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def receive(own: str, port: int) -> None:
    """Take one connection to its end and tell its sender every advice."""
    announce()
    configuration = QuicConfiguration(is_client=False, alpn_protocols=_ALPN)
    configuration.certificate, configuration.private_key = certificate()
    with _bound(own, port) as bound:
        _ready()
        first, peer = bound.recvfrom(65_535)
        datagram = behind(first) if signal_in(first) is not None else first
        header = quic_packet.pull_quic_header(Buffer(data=datagram), host_cid_length=_CONNECTION_OCTETS)
        connection = QuicConnection(
            configuration=configuration, original_destination_connection_id=header.destination_cid
        )
        end = End(bound, connection, peer)
        end.take(first)
        told = 0
        ended = False
        while not ended:
            for event in end.pump():
                ended = ended or isinstance(event, ConnectionTerminated)
                if isinstance(event, StreamDataReceived) and len(end.signals) > told:
                    words = [signal for signal in end.signals[told:] if signal != UNKNOWN]
                    told = len(end.signals)
                    if words:
                        connection.send_stream_data(event.stream_id, (json.dumps(min(words)) + "\n").encode())
            end.flush()
        sys.stdout.write(json.dumps({"received": end.received}) + "\n")


def send(own: str, peer: str, port: int, factor: float, duration_s: float) -> dict[str, Any]:
    """Send for so long at a multiple of the advice; returns what was sent."""
    announce()
    configuration = QuicConfiguration(is_client=True, alpn_protocols=_ALPN, verify_mode=0)
    with _bound(own, port) as bound:
        connection = QuicConnection(configuration=configuration)
        end = End(bound, connection, (peer, port))
        connection.connect((peer, port), time.monotonic())
        end.indicates = True
        end.flush()
        _ready()
        stream, said, advice_bps = None, b"", BEGIN_BPS
        begin_s = last_s = time.monotonic()
        allowed = 0.0
        while (now := time.monotonic()) < begin_s + duration_s:
            for event in end.pump():
                if isinstance(event, HandshakeCompleted):
                    stream, end.advises = connection.get_next_available_stream_id(), Peer.speaks_scone
                elif isinstance(event, StreamDataReceived):
                    said += event.data
            *lines, said = said.split(b"\n")
            if lines:
                advice_bps = advised_bps(json.loads(lines[-1]))
            allowed += factor * advice_bps / 8 * (now - last_s)
            # What was not used within a tenth of a second is not caught up with.
            allowed = min(allowed, end.wire_octets + factor * advice_bps / 80)
            last_s = now
            while stream is not None and end.wire_octets + len(_CHUNK) <= allowed:
                before = end.wire_octets
                connection.send_stream_data(stream, _CHUNK)
                end.flush()
                if end.wire_octets == before:
                    break  # the congestion window is full
            end.flush()
        connection.close()
        end.flush()
        elapsed_s = time.monotonic() - begin_s
        return {
            "sent": end.sent,
            "advice_bps": advice_bps,
            "rate_bps": end.wire_octets * 8 / elapsed_s,
            "speaks_scone": Peer.speaks_scone,
        }


def main(words: Sequence[str]) -> None:
    """The command line."""
    match words:
        case ["receive", own, port]:
            receive(own, int(port))
        case ["send", own, peer, port, factor, duration_s]:
            told = send(own, peer, int(port), float(factor), float(duration_s))
            sys.stdout.write(json.dumps(told) + "\n")
        case _:
            sys.exit("usage: receive OWN PORT | send OWN PEER PORT FACTOR DURATION_S")


if __name__ == "__main__":
    main(sys.argv[1:])
