"""Where packets of a request were seen to leave nodes, against where it is committed. Pure.

Nodes count a grant's packets at the egress of each of their links. That is what admission is judged by: routes say
where packets should go, and what diverts them (tc, BPF, rules by mark or by source) is in no routing table that was
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from chart.reservations.decisions.reservation import Reservation
from chart.v1 import grant_status_pb2


def own_links(status: grant_status_pb2.GrantStatus) -> list[grant_status_pb2.EgressLink]:
    """Where a node saw packets leave; a node reports only on links of its own."""
    return [one for one in status.egress if one.link_id.rpartition(":")[0] == status.node]


def off_path(reservation: Reservation) -> str:
    """Which packets leave by a link that is not committed, in a sentence; empty: none do."""
    if not reservation.active or not reservation.commitments:
        return ""
    for node in reservation.confirming_nodes:
        status = reservation.confirmations.get(node)
        if status is None or not status.egress or status.generation < reservation.content_generation:
            # Seen while it was committed elsewhere, if at all.
            continue
        seen = own_links(status)
        others = [one for one in seen if one.link_id not in reservation.link_ids]
        if others:
            mine = [link for link in reservation.link_ids if link.rpartition(":")[0] == node]
            total = sum(one.recent_bytes for one in seen)
            share = round(100 * sum(one.recent_bytes for one in others) / total) if total else 100
            over = ", ".join(one.link_id for one in others)
            return f"committed over {', '.join(mine)}, but {share} % of its bytes leave {node} by {over}"
    return ""


def forgotten(
    confirmations: Mapping[str, grant_status_pb2.GrantStatus], nodes: Collection[str]
) -> dict[str, grant_status_pb2.GrantStatus]:
    """What nodes reported, without where some saw packets leave: they had left the path, and are on it again."""
    found = dict(confirmations)
    for node in nodes:
        status = found.get(node)
        if status is not None and (status.egress or status.egress_against_routes):
            found[node] = grant_status_pb2.GrantStatus()
            found[node].CopyFrom(status)
            found[node].ClearField("egress")
            found[node].ClearField("egress_against_routes")
    return found


def diverted(reservation: Reservation) -> str:
    """Which node sends packets of a request, as committed, where its own routes do not lead; empty: none does."""
    for node, links in reservation.observed:
        if set(links) <= set(reservation.link_ids):
            return f"committed where its packets go: they leave {node} by {', '.join(links)}, against the node's routes"
    return ""


def warning(reservation: Reservation) -> str:
    """What is wrong with where its packets go; empty: nothing."""
    return off_path(reservation) or (diverted(reservation) if reservation.active and reservation.commitments else "")
