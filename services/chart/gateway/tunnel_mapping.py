"""Elastic tunnels between the interface definitions (protobuf) and the REST shapes. Pure: no clock, no I/O."""

from __future__ import annotations

import statistics
from typing import Any, cast

from chart.gateway.schemas import tunnels as shapes
from chart.gateway.schemas.common import microseconds, timestamp, timestamp_or_none
from chart.v1 import tunnel_report_pb2, tunnels_pb2
from chart.v1.tunnel_command_pb2 import TunnelController

_CONTROLLER = "TUNNEL_CONTROLLER_"
_SOURCE = "TUNNEL_TARGET_SOURCE_"


def controller_name(value: int) -> shapes.TunnelControllerName:
    """none, naive, p or pi; what a newer service may know besides shows as none."""
    names = {number: name.removeprefix(_CONTROLLER).lower() for name, number in TunnelController.items()}
    name = names.get(cast(Any, value), "none")
    return cast(shapes.TunnelControllerName, "none" if name == "unspecified" else name)


def _source_name(value: int) -> shapes.TunnelTargetSourceName:
    kinds = tunnels_pb2.TunnelTargetSource.items()
    name = {number: name.removeprefix(_SOURCE).lower() for name, number in kinds}.get(cast(Any, value), "none")
    return cast(shapes.TunnelTargetSourceName, "none" if name == "unspecified" else name)


def settings_message(tunnel_id: str, body: shapes.TunnelBody) -> tunnels_pb2.TunnelSettings:
    """What the service stores."""
    message = tunnels_pb2.TunnelSettings(
        tunnel=tunnel_id,
        controller=TunnelController.Value(f"{_CONTROLLER}{body.controller.upper()}"),
        target_bps=body.target_bps,
        request_id=body.request_id,
        capacity_bps=body.capacity_bps,
        window_min_segments=body.window_min_segments,
        connections_maximum=body.connections_maximum,
        connections=body.connections,
        weights=body.weights,
    )
    for entry in body.schedule:
        message.schedule.add(
            start_us=microseconds(entry.start),
            end_us=microseconds(entry.end) if entry.end else 0,
            target_bps=entry.target_bps,
        )
    if body.kp is not None:
        message.kp = body.kp
    if body.ki is not None:
        message.ki = body.ki
    return message


def settings(message: tunnels_pb2.TunnelSettings) -> shapes.TunnelSettings:
    """What is stated."""
    return shapes.TunnelSettings(
        revision=message.revision,
        controller=controller_name(message.controller),
        target_bps=message.target_bps,
        request_id=message.request_id,
        schedule=[
            shapes.TunnelScheduleEntry(
                start=timestamp(entry.start_us), end=timestamp_or_none(entry.end_us), target_bps=entry.target_bps
            )
            for entry in message.schedule
        ],
        capacity_bps=message.capacity_bps,
        window_min_segments=message.window_min_segments,
        connections_maximum=message.connections_maximum,
        kp=message.kp if message.HasField("kp") else None,
        ki=message.ki if message.HasField("ki") else None,
        connections=message.connections,
        weights=dict(message.weights),
    )


def _state(report: tunnel_report_pb2.TunnelReport) -> shapes.TunnelState:
    windows = [window for window in report.windows if window.cwnd_segments]
    return shapes.TunnelState(
        at=timestamp(report.period_end_us),
        origin=report.origin_node,
        destination=report.destination_node,
        connections_wanted=report.connections_wanted,
        connections_established=report.connections_established,
        window_mean_segments=statistics.fmean(one.cwnd_segments for one in windows) if windows else None,
        rtt_mean_us=statistics.fmean(one.rtt_us for one in windows) if windows else None,
        queue_packets=report.queue_packets,
        queue_bytes=report.queue_bytes,
        dropped_packets=report.dropped_packets_total,
        late_packets=report.late_packets_total,
        connection_changes=report.connection_changes_total,
        congestion=report.congestion,
        tls=report.tls,
        decaying=report.decaying,
        last_error=report.last_error,
        customers=[
            shapes.TunnelCustomer(
                name=one.name,
                weight=one.weight,
                rate_bps=one.rate_bps,
                queue_packets=one.queue_packets,
                dropped_packets=one.dropped_packets_total,
            )
            for one in report.classes
        ],
    )


def _decision(message: tunnels_pb2.TunnelDecision) -> shapes.TunnelDecision:
    def known(name: str) -> Any:
        return getattr(message, name) if message.HasField(cast(Any, name)) else None

    return shapes.TunnelDecision(
        at=timestamp(message.at_us),
        rate_bps=message.rate_bps,
        target_bps=message.target_bps,
        connections_before=message.connections_before,
        connections=message.connections,
        wanted=message.wanted,
        guarded=message.guarded,
        starved=message.starved,
        kp=known("kp"),
        ki=known("ki"),
        alpha=known("alpha"),
        tau_s=known("tau_s"),
        spectral_radius=known("spectral_radius"),
        equation_14_stable=known("equation_14_stable"),
        capacity_bps=message.capacity_bps,
    )


def _step(message: tunnels_pb2.TunnelStep) -> shapes.TunnelStep:
    return shapes.TunnelStep(
        start=timestamp(message.from_us),
        end=timestamp_or_none(message.until_us),
        target_bps=message.target_bps,
        controller=controller_name(message.controller),
        periods=message.periods,
        settling_periods=message.settling_periods if message.HasField("settling_periods") else None,
        overshoot=message.overshoot,
        steady_error=message.steady_error,
        connections_peak=message.connections_peak,
        connections_final=message.connections_final,
        connection_changes=message.connection_changes,
    )


def _common(message: tunnels_pb2.Tunnel) -> dict[str, Any]:
    return {
        "id": message.tunnel,
        "rate_bps": message.rate_bps,
        "target_bps": message.target_bps,
        "target_source": _source_name(message.target_source),
        "reason": message.reason,
        "settings": settings(message.settings) if message.HasField("settings") else None,
        "state": _state(message.report) if message.HasField("report") else None,
        "decision": _decision(message.decision) if message.HasField("decision") else None,
    }


def tunnel(message: tunnels_pb2.Tunnel) -> shapes.Tunnel:
    """A tunnel in a list."""
    return shapes.Tunnel(**_common(message))


def detail(message: tunnels_pb2.Tunnel) -> shapes.TunnelDetail:
    """A tunnel with steps and history."""
    return shapes.TunnelDetail(
        **_common(message),
        steps=[_step(one) for one in message.steps],
        history=[_decision(one) for one in message.history],
    )
