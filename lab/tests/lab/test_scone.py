"""Endpoints and judge of `scone`: bytes of the draft, checksums, advice that is above its rate or late."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from chart_lab import experiments, scone_endpoint, topology
from chart_lab.experiments import scone
from chart_lab.experiments.scone_judge import Look, Told, evaluate, evaluate_policed, signal_for
from chart_lab.quic_endpoint import behind, in_front
from chart_lab.scone_endpoint import UNKNOWN, Arrival, advised_bps, arrival, checksum_fits, datagram, signal_in

PORT = 7001
# An IPv4 header of a packet from 127.0.0.1 to itself.
HEADER = bytes.fromhex("450000200000000040110000" + "7f000001" * 2)


def udp_packet(data: bytes, checksum: int) -> bytes:
    return HEADER + PORT.to_bytes(2) + PORT.to_bytes(2) + (8 + len(data)).to_bytes(2) + checksum.to_bytes(2) + data


def told(at_s: float, signal: int | None, *, checksum: bool = True, intact: bool = True) -> Arrival:
    return Arrival(at_s, PORT, signal, checksum, intact)


def steady(rate_bps: float, from_s: float, until_s: float) -> list[Look]:
    return [Look(from_s + place / 4, {PORT: rate_bps}) for place in range(int((until_s - from_s) * 4))]


def values(arrivals: list[Arrival], looks: list[Look]) -> dict[str, float | None]:
    return {one.name: one.value for one in evaluate(arrivals, looks)}


def test_heads_are_those_of_the_draft() -> None:
    assert scone_endpoint.scone_head(UNKNOWN) == bytes.fromhex("ffef7dc0fd")
    assert scone_endpoint.scone_head(40) == bytes.fromhex("d46f7dc0fd")
    for signal in range(128):
        assert signal_in(datagram(PORT, "scone", signal)) == signal
    assert signal_in(datagram(PORT, "long")) is None
    assert signal_in(datagram(PORT, "short")) is None
    assert signal_in(b"\xff\xef\x7d\xc0") is None


def test_signals_stand_for_the_rates_of_the_draft() -> None:
    assert [round(advised_bps(one)) for one in (0, 20, 40, 60)] == [10**5, 10**6, 10**7, 10**8]
    assert advised_bps(126) == pytest.approx(199.5e9, rel=1e-3)
    with pytest.raises(ValueError, match="127"):
        advised_bps(UNKNOWN)
    for signal in range(127):
        assert signal_for(advised_bps(signal)) == signal
        assert signal_for(advised_bps(signal) * 0.999) == max(0, signal - 1)


def test_checksums() -> None:
    # 7f00 + 0001 + 7f00 + 0001 + 0011 + 000c + 1b59 + 1b59 + 000c + 0102 + 0304 = 1 38e3, folded 38e4, inverted c71b.
    data = bytes.fromhex("01020304")
    assert checksum_fits(udp_packet(data, 0xC71B))
    assert not checksum_fits(udp_packet(data, 0xC71C))
    assert not checksum_fits(udp_packet(data, 0))


def test_an_arrival_is_read() -> None:
    lowered = datagram(PORT, "scone", 40)
    found = arrival(udp_packet(lowered, 1), [PORT], 5.0)
    assert found == Arrival(5.0, PORT, 40, False, True)
    broken = arrival(udp_packet(lowered[:-1] + b"!", 1), [PORT], 5.0)
    assert broken is not None
    assert not broken.intact
    assert arrival(udp_packet(lowered, 1), [PORT + 1], 5.0) is None
    plain = arrival(udp_packet(datagram(PORT, "long"), 1), [PORT], 5.0)
    assert plain is not None
    assert (plain.signal, plain.intact) == (None, True)


def test_advice_within_a_step_of_its_rate() -> None:
    figures = values([told(5, 40), told(6, UNKNOWN), told(7, None)], steady(1.1e7, 0, 10))
    assert figures["advice_below_rate_min"] == pytest.approx(1 - 1 / 1.1)
    assert figures["advised_packets"] == 1
    assert (figures["bad_checksums"], figures["bad_checksums_tried"]) == (0, 3)


def test_advice_above_its_rate_and_far_below_it() -> None:
    lowest = values([told(5, 41)], steady(1.1e7, 0, 10))["advice_below_rate_min"]
    assert lowest == pytest.approx(1 - 1.122 / 1.1, abs=1e-3)
    figure = values([told(5, 38)], steady(1.1e7, 0, 10))["advice_below_rate_max"]
    assert figure is not None
    assert figure > 0.122


def test_after_a_change_the_first_packet_past_two_seconds_counts() -> None:
    looks = steady(1e7, 0, 10) + steady(5e6, 10, 20)
    late, in_time = told(11, 40), told(13, 33)
    figures = values([told(5, 40), late, in_time], looks)
    assert (figures["stale_advice"], figures["stale_advice_tried"]) == (0, 1)
    for signal in (40, UNKNOWN, 32):
        assert values([told(5, 40), told(13, signal)], looks)["stale_advice"] == 1


def test_advice_between_two_looks_at_a_changing_rate_is_not_judged() -> None:
    """It may have been any rate between them, but no more than the highest."""
    looks = steady(1e7, 0, 5) + steady(5e6, 6, 10)
    figures = values([told(5.5, 36), told(8, 33)], looks)
    assert (figures["advised_packets"], figures["advised_packets_while_rates_changed"]) == (1, 1)
    figures = values([told(5.5, 41)], looks)
    assert figures["advised_packets"] == 1
    assert figures["advice_below_rate_min"] is not None
    assert figures["advice_below_rate_min"] < 0
    unknown = [*steady(1e7, 0, 5), Look(5.5, {}), *steady(1e7, 6, 10)]
    assert values([told(5.6, 30)], unknown)["advised_packets"] == 0


def test_damage_is_counted() -> None:
    figures = values([told(1, None, checksum=False), told(2, None, intact=False)], steady(1e7, 0, 10))
    assert (figures["bad_checksums"], figures["changed_payload"]) == (1, 1)


def test_endpoints_over_loopback(tmp_path: Path) -> None:
    path = tmp_path / "arrivals"
    receiving = [*scone.ENDPOINT, "receive", "127.0.0.2", "7301,7302", str(path)]
    sending = [*scone.ENDPOINT, "send", "127.0.0.1", "127.0.0.2", "0.05", "7301,7302"]
    with subprocess.Popen(receiving, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sink:
        assert sink.stdout is not None
        assert sink.stderr is not None
        if b"ready" not in sink.stdout.readline():
            assert b"not permitted" in sink.stderr.read()
            pytest.skip("raw sockets need root")
        with subprocess.Popen(sending, stdout=subprocess.PIPE) as source:
            while len(path.read_text().split("\n")) < 13:
                assert sink.poll() is None
            source.kill()
        sink.kill()
    found = scone_endpoint.read(path)
    assert {one.port for one in found} == {7301, 7302}
    assert {one.signal for one in found} == {UNKNOWN, None}
    assert all(one.intact for one in found)


def test_the_network_and_the_registry() -> None:
    made = scone.narrowed(topology.load("demo"))
    rates = {tuple(link.ends): link.rate_mbit for link in made.links}
    assert rates[("charlie", "delta")] == scone.NARROW_MBIT
    assert all(not link.loss for link in made.links)
    assert sum(scone.RATES_BPS) * 2 < scone.NARROW_MBIT * 1e6
    assert experiments.REGISTRY["scone"].installed


def test_who_follows_its_advice_is_judged_by_its_losses() -> None:
    follows, ignores = Told(1000, 999, 2e6, 2e6, True), Told(4000, 1000, 2e6, 8e6, True)
    figures = {one.name: one for one in evaluate_policed(follows, ignores)}
    assert figures["policed_loss"].value == pytest.approx(0.001)
    assert figures["policed_loss"].met()
    assert figures["policed_loss/ignores"].value == pytest.approx(0.75)
    assert figures["policed_rate_to_advice/ignores"].value == pytest.approx(4)
    assert evaluate_policed(Told(1000, 998, 2e6, 2e6, True), ignores)[0].met() is False


@pytest.mark.parametrize("length", [0, 8, 20])
def test_a_scone_packet_has_the_connection_ids_of_what_follows(length: int) -> None:
    ids = bytes([length]) + bytes(range(length)) + bytes([4, 1, 2, 3, 4])
    datagram = b"\xc3\x00\x00\x00\x01" + ids + b"the rest"
    sent = in_front(datagram)
    assert signal_in(sent) == UNKNOWN
    assert sent[5 : 5 + len(ids)] == ids
    assert behind(sent) == datagram


def test_in_front_of_a_short_header_it_has_no_source_id() -> None:
    datagram = b"\x41" + bytes(range(8)) + b"the rest"
    sent = in_front(datagram)
    assert sent[5:15] == bytes([8, *range(8), 0])
    assert behind(sent) == datagram
