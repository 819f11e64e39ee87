"""Between the interface definitions (protobuf) and the REST shapes. Pure: no clock, no I/O."""

from __future__ import annotations

from typing import cast

from chart.gateway import ends_mapping
from chart.gateway.schemas import history, network
from chart.gateway.schemas.common import microseconds, timestamp, timestamp_or_none
from chart.v1 import (
    archive_pb2,
    link_rate_pb2,
    measurement_pb2,
    node_state_pb2,
    policy_pb2,
    sensing_configuration_pb2,
    topology_pb2,
)


def suffix(enum: object, value: int, prefix: str, default: str) -> str:
    """Name of an enum value without its prefix; UNSPECIFIED and values of a newer peer become the default."""
    try:
        name = cast(str, enum.Name(value))  # type: ignore[attr-defined]
    except ValueError:
        return default
    short = name.removeprefix(prefix)
    return default if short == "UNSPECIFIED" else short


# ---------------------------------------------------------------- nodes and links


def node_message(node_id: str, body: network.NodeBody) -> topology_pb2.Node:
    """What the registry stores."""
    position = body.map_position
    return topology_pb2.Node(
        id=node_id,
        description=body.description,
        addresses=body.addresses,
        sensor_pod_target=body.sensor_pod_target,
        tags=body.tags,
        map_position=topology_pb2.MapPosition(x=position.x, y=position.y) if position else None,
        edges=[
            topology_pb2.NodeEdge(
                interface=edge.interface,
                aggregate_bps=edge.aggregate_bps,
                exceed=topology_pb2.EdgeExceed.Value(f"EDGE_EXCEED_{edge.exceed.upper()}"),
                depth_ms=edge.depth_ms,
            )
            for edge in body.edges or ()
        ],
        tunnel_ends=[ends_mapping.end_message(end) for end in body.tunnel_ends or ()],
        proxied_traffic=ends_mapping.proxied_message(body.proxied_traffic),
        overlay=overlay_message(body.overlay),
    )


def overlay_message(stated: network.OverlayMembership | None) -> topology_pb2.OverlayMembership | None:
    """Part in the overlay; None: no part."""
    if stated is None or not stated.member:
        return None
    return topology_pb2.OverlayMembership(prefixes=stated.prefixes)


def node_edge(message: topology_pb2.NodeEdge) -> network.NodeEdge:
    """An edge of a node, as the registry stores it."""
    exceed = suffix(topology_pb2.EdgeExceed, message.exceed, "EDGE_EXCEED_", "REMARK").lower()
    return network.NodeEdge(
        interface=message.interface,
        aggregate_bps=message.aggregate_bps,
        exceed=cast(network.EdgeExceed, exceed),
        depth_ms=message.depth_ms or 100,
    )


def node(message: topology_pb2.Node, revision: int, state: network.NodeState | None) -> network.Node:
    """A node with the state that its agent reported."""
    position = None
    if message.HasField("map_position"):
        position = network.MapPosition(x=message.map_position.x, y=message.map_position.y)
    return network.Node(
        id=message.id,
        revision=revision,
        description=message.description,
        addresses=list(message.addresses),
        sensor_pod_target=message.sensor_pod_target,
        tags=dict(message.tags),
        map_position=position,
        edges=[node_edge(edge) for edge in message.edges],
        tunnel_ends=[ends_mapping.end(end) for end in message.tunnel_ends],
        proxied_traffic=ends_mapping.proxied(message.proxied_traffic),
        overlay=network.OverlayMembership(member=message.HasField("overlay"), prefixes=list(message.overlay.prefixes)),
        state=state,
    )


def enforcement_name(mode: int) -> network.EnforcementMode:
    """off, observe or enforce."""
    name = suffix(policy_pb2.EnforcementMode, mode, "ENFORCEMENT_MODE_", "OFF").lower()
    return cast(network.EnforcementMode, name)


def overlay_state(message: node_state_pb2.OverlayState) -> network.OverlayState:
    """What a node reports of the overlay."""
    return network.OverlayState(
        links=[
            network.OverlayLinkState(
                link_id=one.link_id,
                alive=one.alive,
                rtt_ms=one.rtt_us / 1e3,
                exchange_loss=one.exchange_loss,
                failures=one.failures,
                forwarded_packets=one.forwarded_packets,
                forwarded_bytes=one.forwarded_bytes,
            )
            for one in message.links
        ],
        entered_packets=message.entered_packets,
        transit_packets=message.transit_packets,
        left_packets=message.left_packets,
        detour_packets=message.detour_packets,
        refused_packets=message.refused_packets,
    )


def node_state(message: node_state_pb2.NodeState, *, stale: bool) -> network.NodeState:
    """State that a node's agent reported."""
    return network.NodeState(
        enforcement=enforcement_name(message.enforcement),
        agent_version=message.agent_version,
        capabilities=list(message.capabilities),
        faults=list(message.faults),
        room=[network.NodeRoom(kind=one.kind, held=one.held, total=one.total) for one in message.room],
        overlay=overlay_state(message.overlay) if message.HasField("overlay") else None,
        reported_at=timestamp(message.reported_at_us),
        stale=stale,
    )


def link_message(link_id: str, body: network.LinkBody) -> topology_pb2.Link:
    """What the registry stores; the sending node and its interface come from the id."""
    from_node, _, interface = link_id.partition(":")
    return topology_pb2.Link(
        id=link_id,
        from_node=from_node,
        interface=interface,
        to_node=body.to_node,
        capacity_bps=body.capacity_bps or 0,
        delay_us=body.delay_us,
        admission_share=body.admission_share,
        scone=body.scone,
        quick_start=body.quick_start,
        quick_start_threshold=body.quick_start_threshold,
        quick_start_share=body.quick_start_share,
        scone_police=body.scone_police,
        advice_prefixes=body.advice_prefixes,
        tags=body.tags,
    )


def link(
    message: topology_pb2.Link,
    revision: int,
    *,
    load: network.LinkLoad | None,
    rate: network.LinkRate | None,
    measured: network.LinkMeasured | None,
) -> network.Link:
    """A link with its live state."""
    return network.Link(
        id=message.id,
        revision=revision,
        from_node=message.from_node,
        interface=message.interface,
        to_node=message.to_node,
        capacity_bps=message.capacity_bps,
        capacity_from_interface=message.capacity_from_interface,
        delay_us=message.delay_us,
        admission_share=message.admission_share or 0.8,
        scone=message.scone,
        quick_start=message.quick_start,
        quick_start_threshold=message.quick_start_threshold or 0.9,
        quick_start_share=message.quick_start_share or 1.0,
        scone_police=message.scone_police,
        advice_prefixes=list(message.advice_prefixes),
        tags=dict(message.tags),
        load=load,
        rate=rate,
        measured=measured,
    )


def link_rate(message: link_rate_pb2.LinkRate, valid_until_us: int) -> network.LinkRate:
    """What a link's controller tells senders."""
    return network.LinkRate(
        available_bps=message.available_bps,
        explicit_rate_capacity_bps=message.explicit_rate_capacity_bps,
        valid_until=timestamp(valid_until_us),
    )


# ---------------------------------------------------------------- policies, sensing, history


def policy_message(policy_id: str, body: network.PolicyBody) -> policy_pb2.Policy:
    """What the registry stores."""
    mode = f"ENFORCEMENT_MODE_{(body.enforcement or 'unspecified').upper()}"
    message = policy_pb2.Policy(
        id=policy_id,
        enforcement=policy_pb2.EnforcementMode.Value(mode),
        link_controller=body.link_controller or "",
        customer_weights=body.customer_weights or {},
        default_congestion=body.default_congestion or "",
        ipfix_collector=body.ipfix_collector or "",
    )
    if body.max_guaranteed_bps is not None:
        message.max_guaranteed_bps = body.max_guaranteed_bps
    if body.quick_start_request_bps is not None:
        message.quick_start_request_bps = body.quick_start_request_bps
    return message


def policy(message: policy_pb2.Policy, default: policy_pb2.Policy | None) -> network.Policy:
    """A policy with its revision, and what holds by it and the default policy."""
    said = [message, *([default] if default is not None else [])]
    controllers = [one.link_controller for one in said if one.link_controller]
    bounds = [one.max_guaranteed_bps for one in said if one.HasField("max_guaranteed_bps")]
    requests = [one.quick_start_request_bps for one in said if one.HasField("quick_start_request_bps")]
    modes = [enforcement_name(one.enforcement) for one in said if one.enforcement]
    own = message.HasField("max_guaranteed_bps")
    return network.Policy(
        id=message.id,
        revision=message.revision,
        enforcement=enforcement_name(message.enforcement) if message.enforcement else None,
        link_controller=cast("network.LinkController", message.link_controller) if message.link_controller else None,
        max_guaranteed_bps=message.max_guaranteed_bps if own else None,
        customer_weights=dict(message.customer_weights),
        default_congestion=message.default_congestion,
        ipfix_collector=message.ipfix_collector,
        quick_start_request_bps=message.quick_start_request_bps
        if message.HasField("quick_start_request_bps")
        else None,
        in_force=network.PolicyInForce(
            enforcement=modes[0] if modes else "observe",
            link_controller=cast("network.LinkController", controllers[0] if controllers else "nec"),
            max_guaranteed_bps=bounds[0] if bounds else 0,
            quick_start_request_bps=requests[0] if requests else 0,
        ),
    )


def sensing_configuration_message(
    configuration_id: str, body: network.SensingConfigurationBody, owner: str
) -> sensing_configuration_pb2.SensingConfiguration:
    """What the registry stores."""
    return sensing_configuration_pb2.SensingConfiguration(
        id=configuration_id,
        source_node=body.source_node,
        destination_node=body.destination_node,
        destination_address=body.destination_address,
        sensor=body.sensor,
        parameters=body.parameters,
        period_ms=body.period_ms,
        tolerance_ms=body.tolerance_ms,
        priority=body.priority,
        valid_until_us=microseconds(body.valid_until) if body.valid_until else 0,
        owner=owner,
    )


def sensing_configuration(message: sensing_configuration_pb2.SensingConfiguration) -> network.SensingConfiguration:
    """A sensing configuration with its revision."""
    return network.SensingConfiguration(
        id=message.id,
        revision=message.revision,
        source_node=message.source_node,
        destination_node=message.destination_node,
        destination_address=message.destination_address,
        sensor=message.sensor,
        parameters=dict(message.parameters),
        period_ms=message.period_ms,
        tolerance_ms=message.tolerance_ms,
        priority=message.priority,
        valid_until=timestamp_or_none(message.valid_until_us),
        owner=message.owner,
        mesh=message.mesh or None,
    )


def measurement(
    message: measurement_pb2.Measurement | archive_pb2.LatestMeasurement, *, stale: bool
) -> history.Measurement:
    """Latest result of a sensor, from the stream or from the archive: both have the same fields."""
    return history.Measurement(
        source_node=message.source_node,
        destination_node=message.destination_node,
        metric=message.metric,
        sensor=message.sensor,
        value=message.value,
        unit=message.unit,
        measured_at=timestamp(message.measured_at_us),
        error=message.error,
        stale=stale,
    )


def series(response: archive_pb2.QuerySeriesResponse) -> history.Series:
    """History of one metric."""
    return history.Series(
        unit=response.unit,
        points=[
            history.SeriesPoint(
                at=timestamp(point.at_us),
                value=point.value if point.HasField("value") else None,
                minimum=point.minimum if point.HasField("minimum") else None,
                maximum=point.maximum if point.HasField("maximum") else None,
                count=point.count,
            )
            for point in response.points
        ],
    )
