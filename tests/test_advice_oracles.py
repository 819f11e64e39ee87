"""Packets of Quick-Start and SCONE against what nobody here wrote: dissectors of Wireshark, packets of scapy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP, UDP, IPOption
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from chart_lab.quic_endpoint import INDICATION, in_front
from chart_lab.quick_start_liar import lie, syn_ack
from chart_lab.scone_endpoint import UNKNOWN, scone_head

ROOT = Path(__file__).parents[1]
DISSECTOR = f"lua_script:{ROOT / 'tools' / 'wireshark' / 'scone.lua'}"
REQUEST = bytes([25, 8, 0x0B, 200, 1, 2, 3, 4])
SHORT = b"\x41" + bytes(range(8)) + bytes(200)


def shown(path: Path, packets: list[bytes], *fields: str, more: tuple[str, ...] = ()) -> list[list[str]]:
    """Fields of IP packets as tshark has them."""
    capture = path / "packets.pcap"
    wrpcap(str(capture), [Ether(type=0x0800) / IP(one) for one in packets])
    checks = ("-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE")
    wanted = [word for field in fields for word in ("-e", field)]
    command = ["tshark", "-r", str(capture), *checks, *more, "-T", "fields", *wanted]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in told.removesuffix("\n").split("\n")]


def syn() -> bytes:
    """Of scapy, with a Quick-Start request for 81.92 Mb/s."""
    return bytes(IP(src="10.1.0.1", dst="10.1.0.2", ttl=61, options=[IPOption(REQUEST)]) / TCP(sport=4000, dport=80))


def test_the_answer_of_a_receiver_that_lies_is_a_packet_as_others_read_it(tmp_path: Path) -> None:
    response = lie(syn(), 2)
    assert response is not None
    answer = syn_ack(syn(), response)
    read = IP(answer)
    assert (read.src, read.dst, read[TCP].flags, read[TCP].ack) == ("10.1.0.2", "10.1.0.1", "SA", 1)
    fields = ("tcp.options.qs.rate", "tcp.options.qs.ttl_diff", "tcp.checksum.status", "tcp.flags.str")
    assert shown(tmp_path, [answer], *fields)[0][:3] == ["13", str((61 - 200) % 256), "1"]
    request = shown(tmp_path, [syn()], "ip.opt.qs_rate", "ip.opt.qs_ttl", "ip.opt.qs_func", "ip.checksum.status")[0]
    assert request == ["11", "200", "0", "1"]


def datagram(data: bytes) -> bytes:
    return bytes(IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=4000, dport=443) / data)


@pytest.mark.parametrize("signal", [0, 1, 40, 126])
def test_advice_is_shown_as_a_rate(tmp_path: Path, signal: int) -> None:
    sent = scone_head(signal) + in_front(SHORT)[5:]
    fields = ("scone.signal", "scone.rate_bps", "scone.destination_id", "scone.source_id")
    rate_bps = round(1e5 * 10 ** (signal / 20))
    assert shown(tmp_path, [datagram(sent)], *fields, more=("-X", DISSECTOR)) == [
        [str(signal), str(rate_bps), bytes(range(8)).hex(), ""]
    ]


def test_a_packet_without_advice_has_no_rate_and_others_none_of_it(tmp_path: Path) -> None:
    packets = [datagram(in_front(SHORT)), datagram(SHORT), datagram(scone_head(UNKNOWN) + b"\xff1234")]
    fields = ("scone.signal", "scone.rate_bps", "scone.malformed")
    found = shown(tmp_path, packets, *fields, more=("-X", DISSECTOR))
    assert [row[:2] for row in found] == [["127", ""], ["", ""], ["127", ""]]
    assert [bool(row[2]) for row in found] == [False, False, True]


def test_a_client_that_understands_it_is_shown(tmp_path: Path) -> None:
    first = b"\xc3\x00\x00\x00\x01" + bytes(1200)
    packets = [datagram(first + INDICATION), datagram(first)]
    assert shown(tmp_path, packets, "scone.indicated", more=("-X", DISSECTOR)) == [["1"], [""]]
