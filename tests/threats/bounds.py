"""Commands that an agent is given by a writer whom the broker lets through, and that it must not apply."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent.running import World, world_up
from agent.world import LINK_CAPACITY_BPS, Agent, Pair, Streams, now_us, run
from chart.common import catalogue, kafka_properties
from chart.maintenance import broker_identities
from chart.v1 import flow_grant_pb2, link_rate_pb2, topology_pb2
from chart_lab.platform.stack import Platform
from support.authority import Place
from support.waiting import until
from threats.clients import admitted, as_node

# Longer than a node takes a grant for.
HOUR_US = 3600 * 1_000_000
UNNAMED = "to-others"


def refused(world: World) -> dict[str, int]:
    """How many commands the agent refused, by bound."""
    found: dict[str, int] = world.agent.status()["refused_commands"]
    return found


def link_status(world: World, link_id: str) -> dict[str, Any]:
    """What the agent says of a link."""
    (found,) = [link for link in world.agent.status()["links"] if link["id"] == link_id]
    return dict(found)


def _grant(world: World, request: str, **fields: Any) -> None:
    grant = flow_grant_pb2.FlowGrant(
        request_id=request,
        generation=1,
        link_ids=[world.link],
        valid_from_us=now_us() - 1000,
        **{"valid_until_us": now_us() + 60_000_000, "guaranteed_bps": 1_000_000, **fields},
    )
    grant.selector.destination_prefix = "10.77.0.2/32"
    grant.selector.protocol = 6
    world.streams.publish("chart.flow-grant.v1", request, grant)


def _rate(world: World, generation: int, **fields: int) -> None:
    rates = link_rate_pb2.LinkRates(
        node=world.node, generation=generation, valid_until_us=now_us() + 10_000_000, controller="nec"
    )
    rates.links.add(**{"link_id": world.link, "available_bps": 7_000_000, **fields})
    world.streams.publish("chart.link-rate.v1", world.node, rates)


@contextmanager
def commands_out_of_bounds(world: World) -> Iterator[tuple[int, int]]:
    """Gives the agent of ``world`` every kind of command outside of its bounds: (tried, applied). They end with
    the block.
    """
    sender = world.pair.sender
    run("ip", "-n", sender, "link", "add", UNNAMED, "type", "veth", "peer", "name", "others")
    run("ip", "-n", sender, "link", "set", UNNAMED, "up")
    unnamed = f"{world.node}:{UNNAMED}"
    before = refused(world)
    long, wide = f"{world.node}-long", f"{world.node}-wide"
    above = LINK_CAPACITY_BPS + 1
    rates: tuple[dict[str, int], ...] = (
        {"available_bps": above},
        {"available_bps": 2**63},
        {"explicit_rate_capacity_bps": above},
        {"legacy_share_bps": above},
        {"gr_lease_bps": above, "gr_lease_until_us": now_us() + HOUR_US},
    )
    applied = 0
    try:
        entity = topology_pb2.TopologyEntity(revision=1)
        entity.link.id, entity.link.from_node, entity.link.interface = unnamed, world.node, UNNAMED
        entity.link.capacity_bps = 1000
        world.streams.publish("chart.topology.v1", unnamed, entity)
        until(lambda: refused(world)["link"] > before["link"], "the link that nobody named is refused")
        until(lambda: "fault" in link_status(world, unnamed), "and said")
        applied += link_status(world, unnamed)["htb"] or "htb" in run(
            "tc", "-n", sender, "qdisc", "show", "dev", UNNAMED
        )
        _grant(world, long, valid_until_us=now_us() + HOUR_US)
        until(lambda: refused(world)["grant-validity"] > before["grant-validity"], "the long grant is refused")
        _grant(world, wide, guaranteed_bps=above)
        until(lambda: refused(world)["rate"] > before["rate"], "the guarantee above the link is refused")
        applied += sum(bool(world.agent.rate_bps(request)) for request in (long, wide))
        for number, wrong in enumerate(rates, start=1):
            count = refused(world)["rate"]
            _rate(world, world.generation + number, **wrong)
            until(lambda: refused(world)["rate"] > count, f"{wrong} is refused")  # noqa: B023
            applied += "available_bps" in link_status(world, world.link)
        world.generation += len(rates)
        yield 3 + len(rates), applied
    finally:
        for topic, key in (
            ("chart.topology.v1", unnamed),
            ("chart.flow-grant.v1", long),
            ("chart.flow-grant.v1", wide),
        ):
            world.streams.publish(topic, key, None)


@contextmanager
def _standing(platform: Platform, name: str) -> Iterator[None]:
    """A service of the platform does not run on while the block does."""
    (pid,) = [one.pid for one in platform.status() if one.name == name]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def by_stolen_services(platform: Platform, place: Place, node: str, files: tuple[str, str]) -> tuple[int, int]:
    """The same to an enrolled node's agent at the platform's broker, with the certificates of those services that
    command nodes: (tried, applied). The allocator stands still, so that every rate that the agent has is the thief's.
    """
    settings = platform.settings
    admitted(as_node(settings, place, files), "chart.node-state.v1", node)
    directory = place.folder / node
    directory.mkdir()
    properties = directory / broker_identities.PROPERTIES
    properties.write_text(broker_identities.properties(place.ca_file, *map(Path, files)))
    streams = catalogue.load()

    def as_writer(topic: str) -> dict[str, str]:
        (writer,) = streams.topic(topic).writers
        return platform.broker_properties(writer) or {}

    pair = Pair()
    agent = Agent(pair, node, settings.kafka_bootstrap, directory, {kafka_properties.VARIABLE: str(properties)})
    with (
        _standing(platform, "allocator"),
        world_up(pair, agent, Streams(settings.kafka_bootstrap, as_writer)) as world,
    ):
        until(lambda: "htb c4a0:" in pair.qdiscs(), "the link that the node names has its queue")
        with commands_out_of_bounds(world) as found:
            return found
