"""A broker, a database and one replica of reservations of an experiment's own, with a network of a thousand links."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from chart.common.migrate import upgrade
from chart.common.streams import KafkaBroker
from chart.common.topics import apply
from chart.v1 import flow_grant_pb2, rate_request_pb2, topology_pb2
from chart_lab.errors import LabError
from chart_lab.platform import kafka, postgres
from chart_lab.platform.programs import service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import Supervisor

# As many as a platform counts from its base, and some to spare.
PORTS = 400
# Lines of five nodes: every pair of one line has one path, of one to four links.
LINES = 125
NODES_OF_LINE = 5
CAPACITY_BPS = 100_000_000_000
GUARANTEED = flow_grant_pb2.ServiceType.SERVICE_TYPE_GUARANTEED


def free_base() -> int:
    """A port from which as many are free on loopback as a platform needs; below those that the kernel gives to clients,
    which would take one between this question and the start of its service.

    Raises:
        LabError: the kernel has no such range.
    """
    for base in range(20_000, 32_000, PORTS):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(base, base + PORTS):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return base
    msg = "no free range of ports on loopback"
    raise LabError(msg)


def settings_in(directory: Path, **more: Any) -> PlatformSettings:
    """Settings of a platform on free ports, and what else shall differ from the defaults."""
    base = free_base()
    return PlatformSettings(
        state_dir=directory,
        kafka_port=base,
        kafka_node_port=base + 1,
        kafka_controller_port=base + 2,
        postgres_port=base + 3,
        gateway_port=base + 4,
        service_port_base=base + 10,
        **more,
    )


@contextlib.contextmanager
def replica(live: int, seed: int) -> Iterator[PlatformSettings]:
    """One replica over a durable database that has `live` reservations; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="chart-admission-"))
    # The nodes are played, without an authority.
    settings = settings_in(directory, record_authentication="off")
    supervisor = Supervisor(settings.platform_dir)
    infrastructure = [kafka.prepare(settings, with_nodes=False), postgres.prepare(settings)]
    service = [one for one in service_programs(settings) if one.name == "reservations"]
    try:
        supervisor.launch([*infrastructure, *service])
        supervisor.start_all(infrastructure, lambda _: None)
        apply(settings.kafka_bootstrap)
        upgrade(postgres.create_database(settings))
        _fill(settings, live, random.Random(seed))  # noqa: S311 - reproducible
        supervisor.start_all(service, lambda _: None)
        yield settings
    finally:
        supervisor.stop([*infrastructure, *service])
        shutil.rmtree(directory, ignore_errors=True)


def node(line: int, place: int) -> str:
    """Id of a node."""
    return f"n{line}-{place}"


def link(line: int, place: int, target: int) -> str:
    """Id of a link between neighbours of a line."""
    return f"{node(line, place)}:to-{target}"


async def publish_topology(settings: PlatformSettings) -> int:
    """State the network; returns the number of its links."""
    broker = KafkaBroker(settings.kafka_bootstrap)
    number = 0
    try:
        for line in range(LINES):
            for place in range(NODES_OF_LINE):
                address = f"10.{line}.{place}.1/32"
                entity = topology_pb2.TopologyEntity(node=topology_pb2.Node(id=node(line, place), addresses=[address]))
                await broker.publish("chart.topology.v1", node(line, place), entity)
                for target in (place - 1, place + 1):
                    if 0 <= target < NODES_OF_LINE:
                        stated = topology_pb2.Link(
                            id=link(line, place, target),
                            from_node=node(line, place),
                            to_node=node(line, target),
                            capacity_bps=CAPACITY_BPS,
                        )
                        await broker.publish("chart.topology.v1", stated.id, topology_pb2.TopologyEntity(link=stated))
                        number += 1
    finally:
        await broker.close()
    return number


def _fill(settings: PlatformSettings, live: int, chance: random.Random) -> None:
    """Reservations for the year to come, as the tables have them; profiles are made of them when first needed."""

    asyncio.run(publish_topology(settings))
    now_us = time.time_ns() // 1000
    selector = flow_grant_pb2.FlowSelector().SerializeToString()
    columns = (
        "id, revision, owner, specification, selector, lifecycle, enforcement, service_state, callback_state,"
        " granted_bps, link_ids, confirming_nodes, start_us, end_us, created_at_us, updated_at_us, enforced_at_us,"
        " reason, generation, content_generation, grant_issued_at_us, grant_valid_until_us, confirm_by_us, due_at_us,"
        " traceparent"
    )
    made = []
    for number in range(live):
        line = chance.randrange(LINES)
        first, last = sorted(chance.sample(range(NODES_OF_LINE), 2))
        start_us = now_us + chance.randrange(3600, 365 * 86_400) * 1_000_000
        end_us = start_us + chance.randrange(60, 86_400) * 1_000_000
        path = [link(line, place, place + 1) for place in range(first, last)]
        made.append((f"00FILL{number:020d}", line, first, last, start_us, end_us, path))
    with psycopg.connect(settings.database_url("reservations")) as connection:
        cursor = connection.cursor()
        with cursor.copy(f"COPY rate_request ({columns}) FROM STDIN") as copy:
            for identity, line, first, last, start_us, end_us, path in made:
                asked = rate_request_pb2.RateRequestSpecification(
                    source=node(line, first), destination=node(line, last), service=GUARANTEED, guaranteed_bps=1_000_000
                )
                nodes = [node(line, place) for place in range(first, last)]
                times = (start_us, end_us, now_us, now_us, 0)
                states = ("waits for its start", 0, 0, 0, 0, 0, start_us, "")
                head = (identity, 1, f"owner-{line}", asked.SerializeToString(), selector, 2, 1, 1, 1, 1_000_000)
                copy.write_row((*head, path, nodes, *times, *states))
        cursor.execute("INSERT INTO link SELECT DISTINCT unnest(link_ids) FROM rate_request ON CONFLICT DO NOTHING")
        cursor.execute(
            "INSERT INTO commitment (request_id, link_id, rate_bps, start_us, end_us)"
            " SELECT id, unnest(link_ids), granted_bps, start_us, end_us FROM rate_request"
        )
        connection.commit()
        connection.autocommit = True
        cursor.execute("VACUUM ANALYZE")
