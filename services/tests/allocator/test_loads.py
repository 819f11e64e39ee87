"""Load reports are read by dataplane/lib/loads as protobuf would read them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as some

from chart.allocator import loads
from chart.allocator.links import LOAD_FIELDS
from chart.allocator.loads import LoadReport
from chart.v1 import link_load_pb2

library = loads._library()
built = pytest.mark.skipif(library is None, reason="`make loads-library` builds it")

NUMBERS = {
    field.name: 32 if field.type == field.TYPE_UINT32 else 64 for field in link_load_pb2.LinkLoad.DESCRIPTOR.fields
}
LINKS = some.fixed_dictionaries(
    {
        name: some.text(some.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=9)
        if name == "link_id"
        else some.integers(0, 2**bits - 1) | some.just(0)
        for name, bits in NUMBERS.items()
    }
)


def contents(report: LoadReport) -> tuple[object, ...]:
    rows = struct.unpack(f"<{report.count * len(LOAD_FIELDS)}d", report.values)
    users = [(one.user, one.flows, one.link) for one in report.user_flows]
    return report.node, report.interval_us, report.link_ids, rows, report.count, users


@built
@given(
    some.text(max_size=9).filter(lambda name: "\x00" not in name),
    some.integers(0, 2**32 - 1),
    some.lists(LINKS),
    some.lists(some.tuples(some.text(max_size=5), some.integers(0, 9), some.integers(0, 3))),
)
def test_the_library_reads_what_protobuf_reads(
    node: str, interval_us: int, links: list[dict[str, object]], users: list[tuple[str, int, int]]
) -> None:
    message = link_load_pb2.LinkLoadReport(node=node, sequence=2**60, interval_end_us=-1, interval_us=interval_us)
    for link in links:
        message.links.add(**link)
    for user, flows, place in users:
        message.user_flows.add(user=user, flows=flows, link=place)
    octets = message.SerializeToString()
    expected = contents(LoadReport.of(message))
    assert contents(LoadReport.FromString(octets)) == expected
    assert expected[0] == node
    assert LoadReport.FromString(octets).user_flows == list(message.user_flows)
    assert [link["link_id"] for link in links] == expected[2]


def broken(octets: bytes, chance: random.Random) -> bytes:
    """With some octets changed, left out or put in."""
    found = bytearray(octets)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(found) or 1)
        change = chance.randrange(3)
        if change == 0:
            found[at : at + 1] = b""
        else:
            found[at : at + change - 1] = bytes([chance.randrange(256)])
    return bytes(found)


def outcome(read: Callable[[bytes], LoadReport], octets: bytes) -> tuple[object, ...] | None:
    try:
        return contents(read(octets))
    except DecodeError:
        return None


@built
def test_what_is_no_report_is_refused_by_both() -> None:
    chance = random.Random(5)
    message = link_load_pb2.LinkLoadReport(node="alpha", interval_us=100_000)
    for number in range(3):
        message.links.add(link_id=f"alpha:to-{number}", explicit_rate_bytes=10**9, users=3, rtt_us=20_000)
    message.user_flows.add(user="ann", flows=2)
    octets = message.SerializeToString()
    refused = 0
    for _ in range(3000):
        some_octets = broken(octets, chance)
        found = outcome(LoadReport.FromString, some_octets)
        assert found == outcome(lambda one: LoadReport.of(link_load_pb2.LinkLoadReport.FromString(one)), some_octets)
        refused += found is None
    assert 500 < refused < 2900


@built
def test_a_report_that_is_too_large_for_the_library_is_left_to_protobuf() -> None:
    assert library is not None
    message = link_load_pb2.LinkLoadReport(node="alpha")
    for number in range(loads.MOST_LINKS + 1):
        message.links.add(link_id=f"alpha:{number}", rtt_us=number)
    octets = message.SerializeToString()
    assert library.decode(octets) is None
    assert LoadReport.FromString(octets).count == loads.MOST_LINKS + 1
    crowd = link_load_pb2.LinkLoadReport(node="alpha")
    for _ in range(300):
        crowd.user_flows.add(user="u" * 255, flows=2)
    assert library.decode(crowd.SerializeToString()) is None
    assert len(LoadReport.FromString(crowd.SerializeToString()).user_flows) == 300
    long = link_load_pb2.LinkLoadReport(node="n" * loads.NAMES_BYTES)
    assert library.decode(long.SerializeToString()) is None


def test_names_cannot_be_mistaken() -> None:
    message = link_load_pb2.LinkLoadReport(node="alpha", links=[link_load_pb2.LinkLoad(link_id="alpha:a\x00alpha:b")])
    with pytest.raises(DecodeError, match="NUL"):
        LoadReport.of(message)
    with pytest.raises(DecodeError):
        LoadReport.FromString(message.SerializeToString())
    with pytest.raises(DecodeError):
        LoadReport.FromString(b"\x0a\x02\xff\xfe")
    assert LoadReport.FromString(b"").node == ""
