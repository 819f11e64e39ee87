"""What must hold after `kill-matrix`: what was promised is there, confirmed and applied; nothing was committed twice,
nothing beyond what links may commit, and nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chart.common import streams
from chart.common.settings import BaseServiceSettings
from chart.v1 import flow_grant_pb2
from chart.v1.rate_request_pb2 import Enforcement, Lifecycle, ServiceState
from chart_lab import registration
from chart_lab.experiments.kill_callers import Promise, Told
from chart_lab.network import Lab
from chart_lab.platform.settings import PlatformSettings
from chart_lab.programs import program

SETTLE_LIMIT_S = 45.0
ENDED = {Lifecycle.LIFECYCLE_RELEASED, Lifecycle.LIFECYCLE_EXPIRED, Lifecycle.LIFECYCLE_CANCELLED}
# A request that ends about now may be on either side.
MARGIN_S = 3.0
# Of a link's capacity that may be committed, where no policy says otherwise.
ADMISSION_SHARE = 0.8


@dataclass
class Verdict:
    """The violations found, one sentence each."""

    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    overcommitted: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)


def judge(settings: PlatformSettings, lab: Lab, told: Told) -> Verdict:
    """Wait until everything has settled, at most 45 s, and say what has not, and what is lost."""
    end = time.monotonic() + SETTLE_LIMIT_S
    while True:
        rows = _rows(settings)
        stuck = [*_unsettled(rows), *_waiting(settings)]
        if not stuck:
            stuck = [*_not_on_stream(settings, rows), *_not_applied(lab, rows)]
        if not stuck or time.monotonic() > end:
            break
        time.sleep(1.0)
    by_id = {row["id"]: row for row in rows}
    lost = [words for one in told.promises.values() for words in _lost(one, by_id.get(one.request_id))]
    return Verdict(lost, stuck, _overcommitted(settings, lab), _duplicated(rows))


def _rows(settings: PlatformSettings) -> list[dict[str, Any]]:
    with psycopg.connect(settings.database_url("reservations"), row_factory=dict_row) as connection:
        return connection.execute(
            "SELECT id, lifecycle, enforcement, service_state, granted_bps, start_us, end_us, tags, reason,"
            " confirming_nodes, extract(epoch FROM now())::float8 AS now_s FROM rate_request"
        ).fetchall()


def _lost(promise: Promise, row: dict[str, Any] | None) -> list[str]:
    name = promise.request_id
    if row is None:
        return [f"{name} was granted and is not in the database"]
    if promise.open:
        return []
    due = promise.end_s is not None and row["now_s"] > promise.end_s - MARGIN_S
    if row["lifecycle"] in ENDED:
        return [] if due else [f"{name} is {Lifecycle.Name(row['lifecycle'])} and nobody gave it back"]
    if row["granted_bps"] != promise.granted_bps:
        return [f"{name} has {row['granted_bps']} bit/s, {promise.granted_bps} were promised"]
    return []


def _unsettled(rows: list[dict[str, Any]]) -> list[str]:
    """Requests that should be somewhere else by now."""
    found = []
    for row in rows:
        now_s, name = row["now_s"], row["id"]
        if row["lifecycle"] in ENDED:
            continue
        if row["end_us"] / 1e6 < now_s - MARGIN_S:
            found.append(f"{name} should have ended")
        elif row["lifecycle"] == Lifecycle.LIFECYCLE_RESERVED and row["start_us"] / 1e6 < now_s - MARGIN_S:
            found.append(f"{name} should have started")
        elif row["lifecycle"] == Lifecycle.LIFECYCLE_ACTIVE:
            if row["enforcement"] != Enforcement.ENFORCEMENT_ENFORCED:
                found.append(f"{name} is not enforced: {row['reason']}")
            elif row["service_state"] != ServiceState.SERVICE_STATE_GRANTED:
                found.append(f"{name} lost its rate and has not got it back")
    return found


def _waiting(settings: PlatformSettings) -> list[str]:
    """Records of any service that were never published, and notices that were never sent."""
    found = []
    for schema in ("archiver", "authority", "registry", "reservations", "tunnels"):
        with psycopg.connect(settings.database_url(schema)) as connection:
            row = connection.execute(
                "SELECT count(*) FROM outbox WHERE published_at IS NULL AND created_at < now() - interval '3 seconds'"
            ).fetchone()
        if row and row[0]:
            found.append(f"{row[0]} records of {schema} wait for the relay")
    return found


def _not_on_stream(settings: PlatformSettings, rows: list[dict[str, Any]]) -> list[str]:
    grants = asyncio.run(_grants(settings))
    found = []
    for row in rows:
        grant, name, now_s = grants.get(row["id"]), row["id"], row["now_s"]
        if row["lifecycle"] == Lifecycle.LIFECYCLE_ACTIVE and row["end_us"] / 1e6 > now_s + MARGIN_S:
            if grant is None or grant.valid_until_us / 1e6 < now_s:
                found.append(f"{name} is active and has no valid grant on the stream")
            elif grant.guaranteed_bps != row["granted_bps"]:
                found.append(f"{name} has {row['granted_bps']} bit/s, the stream says {grant.guaranteed_bps}")
        elif row["lifecycle"] in ENDED and grant is not None and grant.valid_until_us / 1e6 > now_s:
            found.append(f"{name} ended and its grant is still on the stream")
    return found


async def _grants(settings: PlatformSettings) -> dict[str, flow_grant_pb2.FlowGrant]:
    broker = streams.connect(BaseServiceSettings(kafka_bootstrap=settings.kafka_bootstrap))
    try:
        state = await broker.compacted("chart.flow-grant.v1")
        return {key: one for key, one in state.items() if isinstance(one, flow_grant_pb2.FlowGrant)}
    finally:
        await broker.close()


def _not_applied(lab: Lab, rows: list[dict[str, Any]]) -> list[str]:
    """The grants that the agents report as applied."""
    found = []
    for node in [one.name for one in lab.topology.nodes]:
        command = [str(program("dataplane/chart-agent")), "--node", node, "--state-dir", str(lab.node_directory(node))]
        command += ["--cgroup", str(lab.node_cgroup(node)), "--status", "--json"]
        answer = lab.exec(node, command, check=False)
        if answer.returncode:
            found.append(f"the agent of {node} does not answer: {answer.stderr.strip()[:200]}")
            continue
        applied = {one["request_id"]: int(one["guaranteed_bps"]) for one in json.loads(answer.stdout)["grants"]}
        for row in rows:
            if node not in row["confirming_nodes"] or abs(row["end_us"] / 1e6 - row["now_s"]) < MARGIN_S:
                continue
            wanted = row["granted_bps"] if row["lifecycle"] == Lifecycle.LIFECYCLE_ACTIVE else 0
            if applied.get(row["id"], 0) != wanted:
                found.append(f"{node} applies {applied.get(row['id'], 0)} of {wanted} bit/s for {row['id']}")
    return found


def _overcommitted(settings: PlatformSettings, lab: Lab) -> list[str]:
    """Links with more committed at some instant than they may; every instant at which something begins is looked at."""
    with psycopg.connect(settings.database_url("reservations")) as connection:
        rows = connection.execute(
            "SELECT at.link_id, at.start_us, sum(c.rate_bps) FROM (SELECT DISTINCT link_id, start_us FROM commitment"
            " WHERE kind = 0) at JOIN commitment c ON c.link_id = at.link_id AND c.kind = 0"
            " AND c.start_us <= at.start_us AND c.end_us > at.start_us GROUP BY 1, 2"
        ).fetchall()
    stated = {path.rsplit("/", 1)[1]: int(body["capacity_bps"]) for path, body in registration.links(lab.topology)}
    most: dict[str, int] = {}
    for link_id, _, total in rows:
        most[link_id] = max(most.get(link_id, 0), int(total))
    return [
        f"{link_id}: {total} bit/s committed of {stated.get(link_id, 0)} bit/s"
        for link_id, total in most.items()
        if total > ADMISSION_SHARE * stated.get(link_id, 0)
    ]


def _duplicated(rows: list[dict[str, Any]]) -> list[str]:
    seen: dict[str, str] = {}
    found = []
    for row in rows:
        ask = (row["tags"] or {}).get("ask", row["id"])
        if seen.setdefault(ask, row["id"]) != row["id"]:
            found.append(f"one ask was committed as {seen[ask]} and {row['id']}")
    return found
