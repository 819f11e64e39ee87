"""What the agent refuses, whoever says it, and how it says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chart.v1 import node_state_pb2
from support.figures import Figures
from support.waiting import until
from threats.bounds import UNNAMED, commands_out_of_bounds, refused

if TYPE_CHECKING:
    from agent.running import World

pytestmark = pytest.mark.contract


def test_commands_out_of_bounds_are_refused_counted_and_reported(world: World, figures: Figures) -> None:
    until(lambda: "htb c4a0:" in world.pair.qdiscs(), "the link that the node names has its queue")
    with (
        world.streams.follow("chart.node-state.v1", node_state_pb2.NodeState, world.node) as next_state,
        commands_out_of_bounds(world) as (tried, applied),
    ):
        wanted = f"link {world.node}:{UNNAMED} is only observed: no --link of this node names it"
        until(lambda: wanted in next_state(60)[0].faults, "the node's state has the fault", 60)
    figures.at_most("commands_out_of_bounds_applied", applied, 0, f"of {tried}", sound=0)
    metrics = world.agent.metrics()
    for bound, count in refused(world).items():
        assert f'chart_agent_refused_commands_total{{bound="{bound}"}} {count}\n' in metrics
    # What is within them holds as before.
    world.state_rate(10_000_000)
    request = f"{world.node}-good"
    world.grant(request, 20_000_000)
    until(lambda: world.agent.rate_bps(request) == 30_000_000, "a good grant and a good rate are applied")
