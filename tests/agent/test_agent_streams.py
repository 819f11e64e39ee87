"""The agent between real streams and the real kernel: grants down, statuses and loads up, no harm without a broker."""

from __future__ import annotations

import statistics
import threading
import time
from typing import TYPE_CHECKING

import pytest

from agent.world import (
    BEHIND_PREFIX,
    BEHIND_RECEIVER,
    LINK_CAPACITY_BPS,
    RECEIVER,
    RECEIVER_IPV6,
    SENDER,
    SENDER_IPV6,
)
from chart.v1 import grant_status_pb2, link_load_pb2, node_state_pb2, policy_pb2
from support.figures import Figures
from support.waiting import poll, until

if TYPE_CHECKING:
    from agent.running import World
    from support.kafka import KafkaServer

pytestmark = pytest.mark.contract

STATUS = "chart.grant-status.v1"
STATUS_P50_LIMIT_MS = 100
# What a test begins with may take longer than what it judges: a broker whose disk stands still answers nobody.
PREPARED_S = 30
GR, AR = 20_000_000, 10_000_000


def trace(number: int) -> str:
    """A W3C traceparent that names the number."""
    return f"00-{number:032x}-{number:016x}-01"


def test_a_grant_reaches_the_kernel_and_is_confirmed_at_once(world: World, figures: Figures) -> None:
    latencies_ms = []
    with world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f",{world.node}") as next_status:
        for number in range(1, 21):
            started = time.monotonic()
            world.grant(f"{world.node}-{number}", 1_000_000, trace(number), port=6000 + number)
            status, traceparent = next_status(10)
            latencies_ms.append((time.monotonic() - started) * 1000)
            assert status.request_id == f"{world.node}-{number}"
            assert status.state == grant_status_pb2.GRANT_STATE_APPLIED, status.reason
            assert status.kernel_rate_bps == 1_000_000 + AR
            assert traceparent == trace(number)
    found_ms = statistics.median(latencies_ms)
    figures.at_most("publish to APPLIED, p50 of 20", found_ms, STATUS_P50_LIMIT_MS, "ms", sound=10_000)


def test_the_flow_runs_at_the_rate_and_loads_arrive_ten_times_a_second(world: World, figures: Figures) -> None:
    request = f"{world.node}-bulk"
    world.grant(request, GR)
    until(lambda: world.agent.rate_bps(request) == GR + AR, "the kernel has GR + AR", PREPARED_S)
    reports: list[link_load_pb2.LinkLoadReport] = []
    with (
        world.pair.flow(),
        world.streams.follow("chart.link-load.v1", link_load_pb2.LinkLoadReport, world.node) as next_report,
    ):
        until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity")
        until(lambda: next_report(5)[0].links[0].guaranteed_in_use_bps == GR, "GR is told to be in use")
        reports += [next_report(5)[0] for _ in range(30)]
    sequences = [report.sequence for report in reports]
    assert sequences == list(range(sequences[0], sequences[0] + 30))
    interval_ms = statistics.median(report.interval_us for report in reports) / 1000
    figures.within("between load reports, p50 of 30", interval_ms, (90, 120), "ms", sound=(50, 1000))
    assert {report.links[0].link_id for report in reports} == {world.link}
    sent = sum(report.links[0].sent_bytes for report in reports)
    rate_bps = sent * 8e6 / sum(report.interval_us for report in reports)
    figures.within("sent", rate_bps / (GR + AR), (0.85, 1.05), "of the rate", sound=(0.5, 1.2))
    assert sum(report.links[0].explicit_rate_bytes for report in reports) >= 0.95 * sent
    assert max(report.links[0].active_flows for report in reports) == 1


def test_a_grant_between_nodes_is_for_every_address_of_both(world: World) -> None:
    request = f"{world.node}-nodes"
    world.pair.add_addresses()
    with world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f",{world.node}") as next_status:
        world.grant(
            request,
            GR,
            sources=(f"{SENDER}/32", f"{SENDER_IPV6}/128"),
            destinations=(f"{RECEIVER}/32", BEHIND_PREFIX, f"{RECEIVER_IPV6}/128"),
        )
        status = next_status(10)[0]
        assert (status.state, status.matching_flows, status.seen_at_us) == (grant_status_pb2.GRANT_STATE_APPLIED, 0, 0)
        for address in (BEHIND_RECEIVER, RECEIVER_IPV6, RECEIVER):
            with world.pair.flow(to=address):

                def matches(address: str = address) -> bool:
                    flows = world.agent.status()["flows"]
                    return any(one["request_id"] == request and address in one["remote"] for one in flows)

                until(matches, f"a flow to {address} matches", PREPARED_S)

                def told() -> bool:
                    status = next_status(10)[0]
                    return status.matching_flows > 0 and status.seen_at_us > 0

                until(told, "that a flow matches is told", PREPARED_S)


def test_without_the_broker_link_rates_end_and_guaranteed_rates_live_on(
    world: World, kafka: KafkaServer, figures: Figures
) -> None:
    request = f"{world.node}-1"
    lease_s = 6
    world.grant(request, GR)
    until(lambda: world.agent.rate_bps(request) == GR + AR, "the kernel has GR + AR", PREPARED_S)
    ends_at = time.monotonic() + lease_s
    world.state_rate(2 * AR, lease_us=lease_s * 1_000_000)
    until(lambda: world.agent.rate_bps(request) == GR + 2 * AR, "the agent has the short lease", lease_s)
    kafka.pause()
    try:
        figures.reached(lambda: world.agent.rate_bps(request) == GR, "the available rate ended", lease_s + 5)
        assert time.monotonic() >= ends_at - 0.5
        assert world.pair.qdiscs().startswith("qdisc htb c4a0:")
        until(lambda: not world.agent.status()["broker_connected"], "the agent saw that the broker is away", 60)
        assert world.agent.rate_bps(request) == GR
    finally:
        kafka.resume()
    with world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f",{world.node}") as next_status:
        world.state_rate(3 * AR)
        until(lambda: world.agent.rate_bps(request) == GR + 3 * AR, "the available rate is back")
        until(lambda: next_status(20)[0].kernel_rate_bps == GR + 3 * AR, "the status follows", 20)


def test_a_broker_that_starts_again_is_found_again(world: World, kafka: KafkaServer) -> None:
    request = f"{world.node}-1"
    world.grant(request, GR)
    until(lambda: world.agent.rate_bps(request) == GR + AR, "the kernel has GR + AR", PREPARED_S)
    kafka.kill()
    try:
        until(lambda: not world.agent.status()["broker_connected"], "the agent saw that the broker is away", 60)
        assert world.agent.rate_bps(request) == GR + AR
    finally:
        kafka.start()
    with world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f"{request},{world.node}") as next_status:
        world.release(request)
        until(lambda: next_status(20)[0].state == grant_status_pb2.GRANT_STATE_REMOVED, "the release is confirmed", 20)
    assert world.agent.rate_bps(request) == 0


def test_a_start_without_the_broker_calls_no_link_down(world: World, kafka: KafkaServer) -> None:
    assert world.agent.stop() == 0
    with world.streams.follow("chart.node-state.v1", node_state_pb2.NodeState, world.node) as next_state:
        kafka.pause()
        try:
            world.agent.start("--link", f"{world.link}=to-peer:{LINK_CAPACITY_BPS}")
            began = time.monotonic()
            # Its first state, if it had one, is on its way by now.
            until(lambda: time.monotonic() > began + 2, "the agent has run for two seconds", 3)
        finally:
            kafka.resume()
        seen: list[tuple[bool, ...]] = []

        def looked() -> bool:
            state = next_state(20)[0]
            seen.append(tuple(one.up for one in state.interfaces))
            return "classify" in state.capabilities

        until(looked, "the agent says what it has", 20)
    assert set(seen) == {(True,)}


def test_a_cold_start_while_grants_are_written_all_the_time_does_not_wait(world: World, figures: Figures) -> None:
    request = f"{world.node}-1"
    world.grant(request, GR)
    until(lambda: world.agent.rate_bps(request) == GR + AR, "the kernel has GR + AR", PREPARED_S)
    world.agent.kill()
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            world.grant(f"{world.node}-other", 1_000_000, port=6000)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        world.agent.start()
        read = "the streams are read to where they ended"
        figures.reached(lambda: world.agent.status().get("streams_synced"), read, 3)
        figures.reached(lambda: world.agent.rate_bps(request) == GR + AR, "the kernel has GR + AR again", 1)
    finally:
        done.set()
        writer.join()


def test_a_tombstone_gives_the_flow_back(world: World) -> None:
    request = f"{world.node}-1"
    with world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f",{world.node}") as next_status:
        world.grant(request, GR)
        assert next_status(10)[0].state == grant_status_pb2.GRANT_STATE_APPLIED
        with world.pair.flow():
            until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity")
            world.release(request, trace(77))
            status, traceparent = next_status(10)
            while status.state == grant_status_pb2.GRANT_STATE_APPLIED:
                status, traceparent = next_status(10)
            assert (status.state, status.reason) == (grant_status_pb2.GRANT_STATE_REMOVED, "released")
            assert traceparent == trace(77)
            until(lambda: world.agent.bulk_control() not in ("", "trinity"), "the flow has its own control again")


def sent_at_bps(world: World, request: str, expected_bps: int) -> float:
    """The rate at which a grant's flows send for as long as two seconds at the expected one take."""

    def sent() -> int:
        (grant,) = (one for one in world.agent.status()["grants"] if one["request_id"] == request)
        return int(grant["sent_bytes"])

    before, began = sent(), time.monotonic()
    until(lambda: sent() >= before + expected_bps / 4, f"two seconds' worth of {expected_bps} bit/s is sent")
    return (sent() - before) * 8 / (time.monotonic() - began)


def test_a_flow_that_lost_its_rate_runs_on_at_the_available_one_and_gets_it_back(
    world: World, figures: Figures
) -> None:
    request = f"{world.node}-lower"
    # What reservations state: no more than it while the rate is there, the available rate once it is taken away.
    granted, taken, restored = (GR, False), (0, True), (GR, False)
    connections = set()
    with world.pair.flow():
        for generation, (guaranteed_bps, with_available) in enumerate((granted, taken, restored), 1):
            world.grant(request, guaranteed_bps, generation=generation, with_available_rate=with_available)
            rate_bps = guaranteed_bps or AR
            poll(lambda: world.agent.rate_bps(request), rate_bps.__eq__, PREPARED_S)
            assert world.agent.rate_bps(request) == rate_bps
            until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity")
            share = sent_at_bps(world, request, rate_bps) / rate_bps
            figures.within(f"sent, generation {generation}", share, (0.85, 1.1), "of the rate", sound=(0.5, 1.5))
            connections |= {one["local"] for one in world.agent.status()["flows"] if one["sent_bytes"] > 1_000_000}
    assert len(connections) == 1


def test_policies_switch_enforcement(world: World) -> None:
    request = f"{world.node}-1"
    with (
        world.streams.follow(STATUS, grant_status_pb2.GrantStatus, f",{world.node}") as next_status,
        world.pair.flow(),
    ):
        world.grant(request, GR)
        until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity")
        for mode, word in (
            (policy_pb2.ENFORCEMENT_MODE_OBSERVE, "observe"),
            (policy_pb2.ENFORCEMENT_MODE_OFF, "off"),
        ):
            world.state_policy(mode)
            until(lambda: word in next_status(10)[0].reason, f"the status says {word}", 10)  # noqa: B023
            until(lambda: world.agent.bulk_control() not in ("", "trinity"), f"{word} gives the flow back")
            until(lambda: "htb" not in world.pair.qdiscs(), f"{word} takes the HTB away")
        world.state_policy(policy_pb2.ENFORCEMENT_MODE_ENFORCE)
        until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity again")
        until(lambda: "htb c4a0:" in world.pair.qdiscs(), "the HTB is back")
        world.agent.control("--off")
        until(
            lambda: next_status(10)[0].reason == "enforcement is off on this node, switched off there",
            "the local switch is told",
            10,
        )
        world.agent.control("--on")
        until(lambda: world.agent.bulk_control() == "trinity", "the flow is on trinity after --on")


def test_node_state_metrics_and_a_clean_end(world: World) -> None:
    until(lambda: "htb c4a0:" in world.pair.qdiscs(), "the HTB is there")
    with world.streams.follow("chart.node-state.v1", node_state_pb2.NodeState, world.node) as next_state:
        world.agent.kill()
        assert "htb c4a0:" in world.pair.qdiscs(), "what a killed agent leaves is adopted by the next"
        world.agent.start()
        state = until(
            lambda: (state := next_state(10)[0]).capabilities == ["trinity", "attach", "classify", "htb"] and state,
            "the node state names what the kernel took",
            10,
        )
    assert state
    assert [(i.link_id, i.interface, i.capacity_bps, i.up) for i in state.interfaces] == [
        (world.link, "to-peer", 100_000_000, True)
    ]
    assert state.enforcement == policy_pb2.ENFORCEMENT_MODE_ENFORCE
    assert list(state.faults) == []
    assert state.agent_instance
    metrics = world.agent.metrics()
    assert "chart_agent_broker_connected_ratio 1\n" in metrics
    assert f'chart_agent_link_sent_bytes_total{{link="{world.link}"}}' in metrics
    assert world.agent.stop() == 0
    assert "htb" not in world.pair.qdiscs()
