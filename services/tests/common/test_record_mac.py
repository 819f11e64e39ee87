"""Records of nodes: what is believed, and what node A cannot do in the name of node B."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from google.protobuf.message import Message
from prometheus_client import REGISTRY

from chart.common import record_check, record_mac
from chart.common.record_check import RecordCheck
from chart.common.record_mac import RecordMacError
from chart.v1 import link_load_pb2, measurement_pb2, node_state_pb2, tunnel_report_pb2

KEYS = {"alpha": bytes(range(32)), "bravo": bytes(32)}
TOPIC = "chart.node-state.v1"


class Source:
    """Keys of two nodes; away when told so."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.revoked: set[str] = set()
        self.until_us = time.time_ns() // 1000 + 60_000_000

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        self.asked += 1
        if self.away:
            raise httpx.ConnectError("away")
        return {7: (KEYS[node], self.until_us)} if node in KEYS and node not in self.revoked else {}

    async def enrolled(self) -> frozenset[str]:
        if self.away:
            raise httpx.ConnectError("away")
        return frozenset(KEYS) - self.revoked

    async def close(self) -> None:
        pass


class SlowSource(Source):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = asyncio.Event()

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        await self.answer.wait()
        return await super().keys(node)


def written(node: str, key: str = "alpha", epoch: int = 7, payload: bytes = b"hello") -> dict[str, str]:
    return {record_mac.HEADER: record_mac.header(node, epoch, KEYS[node], TOPIC, key, payload)}


async def test_a_record_of_its_node_is_taken_and_its_key_asked_for_once() -> None:
    source = Source()
    check = RecordCheck(source, "require")
    for _ in range(3):
        await check.check(TOPIC, "alpha", b"hello", written("alpha"))
    source.away = True
    await check.check(TOPIC, "alpha", b"hello", written("alpha"))
    assert source.asked == 1
    # Streams that no node writes are not looked at.
    await check.check("chart.topology.v1", "alpha", b"x", {})


async def test_records_that_come_while_their_key_is_asked_for_wait_for_it() -> None:
    source = SlowSource()
    check = RecordCheck(source, "require")
    checks = [asyncio.create_task(check.check(TOPIC, "alpha", b"hello", written("alpha"))) for _ in range(3)]
    await asyncio.sleep(0)
    source.answer.set()
    await asyncio.gather(*checks)
    assert source.asked == 1


async def test_who_gives_up_while_a_key_is_asked_for_gets_it_the_next_time() -> None:
    source = SlowSource()
    check = RecordCheck(source, "require")
    for _ in range(2 * record_check.ASK_IN_A_ROW):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(check.check(TOPIC, "alpha", b"hello", written("alpha")), 0.01)
    source.answer.set()
    await check.check(TOPIC, "alpha", b"hello", written("alpha"))
    assert source.asked == 1


async def test_epochs_that_are_not_known_are_asked_for_a_few_times_in_a_row_and_then_once_a_second() -> None:
    source = Source()
    check = RecordCheck(source, "require")
    for _ in range(3 * record_check.ASK_IN_A_ROW):
        with pytest.raises(RecordMacError, match="not accepted"):
            await check.check(TOPIC, "alpha", b"hello", written("alpha", epoch=8))
    assert source.asked == record_check.ASK_IN_A_ROW
    # A key that began in the meantime is found as soon as there is room for another call.
    source.asked = 0
    asked_at = check._asked_at["alpha"]
    asked_at[0] -= record_check.ASK_IN_A_ROW * record_check.ASK_EVERY_S
    for _ in range(3):
        with pytest.raises(RecordMacError, match="not accepted"):
            await check.check(TOPIC, "alpha", b"hello", written("alpha", epoch=9))
    assert source.asked == 1


async def test_a_call_that_fails_once_refuses_nothing() -> None:
    source = Source()
    keys, failed = source.keys, 0

    async def failing(node: str) -> dict[int, tuple[bytes, int]]:
        nonlocal failed
        failed += 1
        if failed == 1:
            raise httpx.RemoteProtocolError("the connection was closed")
        return await keys(node)

    source.keys = failing  # type: ignore[method-assign]
    await RecordCheck(source, "require").check(TOPIC, "alpha", b"hello", written("alpha"))
    assert failed == 2


@pytest.mark.parametrize(
    ("key", "payload", "headers"),
    [
        ("alpha", b"hello", {}),
        ("alpha", b"hello", {record_mac.HEADER: "v1 alpha 7 00"}),
        ("alpha", b"hello", {record_mac.HEADER: "v2 " + written("alpha")[record_mac.HEADER][3:]}),
        ("alpha", b"hallo", written("alpha")),
        ("bravo", b"hello", written("alpha")),
        ("alpha", b"hello", written("bravo")),
        ("alpha", b"hello", written("alpha", epoch=8)),
        # Bravo's own key, but the header says that alpha wrote it.
        ("alpha", b"hello", {record_mac.HEADER: written("bravo")[record_mac.HEADER].replace("bravo", "alpha")}),
    ],
)  # fmt: skip
async def test_what_is_not_authentic_is_dropped(key: str, payload: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(RecordMacError):
        await RecordCheck(Source(), "require").check(TOPIC, key, payload, headers)
    # Observed only: taken, but said.
    await RecordCheck(Source(), "observe").check(TOPIC, key, payload, headers)


async def test_a_key_that_has_ended_counts_no_more() -> None:
    source = Source()
    source.until_us = time.time_ns() // 1000 - 1
    with pytest.raises(RecordMacError, match="not accepted"):
        await RecordCheck(source, "require").check(TOPIC, "alpha", b"hello", written("alpha"))


async def test_a_revoked_node_is_believed_no_more_though_its_key_has_not_ended() -> None:
    source = Source()
    check = RecordCheck(source, "require")

    async def taken(node: str) -> bool:
        # As long as between two looks at who is enrolled.
        check._review_at = 0.0
        for _ in range(2):
            try:
                await check.check(TOPIC, node, b"hello", written(node, key=node))
            except RecordMacError:
                return False
            assert check._review is not None
            await check._review
        return True

    for node in KEYS:
        assert await taken(node)
    source.revoked.add("alpha")
    # While the authority is away nobody is known to be revoked.
    source.away = True
    assert await taken("alpha")
    source.away = False
    assert [await taken(node) for node in KEYS] == [False, True]


def test_the_next_look_at_who_is_revoked_waits_longer_after_each_failure() -> None:
    assert [record_check.review_pause_s(failures, 1.0) for failures in (0, 1, 2, 3, 50)] == [3, 6, 12, 12, 12]
    assert record_check.review_pause_s(2, 0.0) == 9


async def test_who_is_revoked_holds_for_a_while_and_then_is_said_to_be_unknown() -> None:
    source = Source()
    check = RecordCheck(source, "require")

    async def look() -> float | None:
        check._review_at = 0.0
        await check.check(TOPIC, "alpha", b"hello", written("alpha"))
        assert check._review is not None
        await check._review
        return REGISTRY.get_sample_value("chart_streams_revocations_unknown_ratio")

    await look()
    source.away = True
    # A busy authority: what was read last is good for a while, and nobody asks again at once.
    assert await look() == 0
    assert check.revocations_known
    assert check._review_at > time.monotonic() + 2
    check._known_at -= record_check.REVIEW_HOLDS_S + 1
    assert await look() == 1
    assert not check.revocations_known
    source.away = False
    assert await look() == 0
    assert check.revocations_known


async def test_one_look_at_a_time_at_who_is_revoked() -> None:
    class Slow(Source):
        looks = 0

        async def enrolled(self) -> frozenset[str]:
            self.looks += 1
            await asyncio.Event().wait()
            return frozenset()

    source = Slow()
    check = RecordCheck(source, "require")
    for _ in range(5):
        check._review_at = 0.0
        await check.check(TOPIC, "alpha", b"hello", written("alpha"))
        await asyncio.sleep(0)
    assert source.looks == 1
    await check.close()


async def test_a_node_speaks_of_itself_and_its_links_only() -> None:
    check = RecordCheck(Source(), "require")
    state = node_state_pb2.NodeState(node="bravo")
    with pytest.raises(RecordMacError, match="speaks of bravo"):
        await check.check(TOPIC, "alpha", b"hello", written("alpha"), state)
    loads = link_load_pb2.LinkLoadReport(node="alpha", links=[link_load_pb2.LinkLoad(link_id="bravo:eth0")])
    headers = {record_mac.HEADER: record_mac.header("alpha", 7, KEYS["alpha"], "chart.link-load.v1", "alpha", b"hello")}
    with pytest.raises(RecordMacError, match="bravo:eth0"):
        await check.check("chart.link-load.v1", "alpha", b"hello", headers, loads)


MEASUREMENT, REPORT = "chart.measurement.v1", "chart.tunnel-report.v1"


async def refusal(topic: str, key: str, value: Message, code: str | None) -> str:
    """Why a record is refused; "" when it is taken."""
    headers = {record_mac.HEADER: code} if code is not None else {}
    try:
        await RecordCheck(Source(), "require").check(topic, key, value.SerializeToString(), headers, value)
    except RecordMacError as error:
        return error.reason
    return ""


async def test_a_measurement_is_of_the_node_whose_pod_made_it() -> None:
    def code(node: str, key: str, value: Message) -> str:
        return record_mac.header(node, 7, KEYS[node], MEASUREMENT, key, value.SerializeToString())

    key, own = "alpha,bravo,rtt_us", measurement_pb2.Measurement(source_node="alpha", destination_node="bravo")
    assert await refusal(MEASUREMENT, key, own, code("alpha", key, own)) == ""
    assert await refusal(MEASUREMENT, key, own, None) == "unsigned"
    # Bravo, the other end, says what alpha measured.
    assert await refusal(MEASUREMENT, key, own, code("bravo", key, own)) == "another-node"
    foreign = measurement_pb2.Measurement(source_node="bravo", destination_node="alpha")
    assert await refusal(MEASUREMENT, key, foreign, code("alpha", key, foreign)) == "another-node"


async def test_a_tunnels_report_is_of_the_node_of_its_origin() -> None:
    def code(node: str, value: Message) -> str:
        return record_mac.header(node, 7, KEYS[node], REPORT, "west", value.SerializeToString())

    own = tunnel_report_pb2.TunnelReport(tunnel="west", origin_node="alpha", session=1)
    assert await refusal(REPORT, "west", own, code("alpha", own)) == ""
    assert await refusal(REPORT, "west", own, code("bravo", own)) == "another-node"
    assert await refusal(REPORT, "west", own, None) == "unsigned"
    # Nobody's, and one that stands under the name of another tunnel.
    assert await refusal(REPORT, "west", tunnel_report_pb2.TunnelReport(tunnel="west"), code("alpha", own))
    other = tunnel_report_pb2.TunnelReport(tunnel="east", origin_node="alpha")
    assert await refusal(REPORT, "west", other, code("alpha", other)) == "another-node"


async def test_what_is_refused_is_counted_by_stream_and_reason() -> None:
    check = RecordCheck(Source(), "observe")

    def counted() -> float:
        return float(record_check.REFUSED.labels(TOPIC, "unsigned")._value.get())

    before = counted()
    for _ in range(2):
        await check.check(TOPIC, "alpha", b"hello", {})
    await check.check(TOPIC, "alpha", b"hello", written("alpha"))
    assert counted() == before + 2
    assert (check.refused[TOPIC, "unsigned"], check.good[TOPIC]) == (2, 1)
    newest = check.newest[TOPIC, "unsigned"]
    assert (newest.node, newest.key, newest.reason) == ("alpha", "alpha", "unsigned")
