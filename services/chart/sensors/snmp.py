"""snmp: interface counters of a network element (IF-MIB, RFC 2863) by SNMP version 2c or 3.

The CHART System, section 6: sensors that "extract existing SNMP MIB data from different network elements".
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from pysnmp.hlapi.v3arch.asyncio import (
    USM_AUTH_HMAC192_SHA256,
    USM_PRIV_CFB128_AES,
    CommunityData,
    ContextData,
    ObjectIdentity,
    ObjectType,
    SnmpEngine,
    Udp6TransportTarget,
    UdpTransportTarget,
    UsmUserData,
    bulk_walk_cmd,
)

from chart.sensors.program import Option, Parameters, Result, Sensor, SensorError, main

RETRIES = 1
ROWS_PER_ANSWER = 25
INTERFACES_MAX = 512
# Most bytes of one row in an answer, with the request that fetches it.
ROW_BYTES = 80
PACKET_BYTES = 120
LOOPBACK_TYPE = 24
UP = 1
COUNTER_WRAP = {"in_octets": 2**64, "out_octets": 2**64}

COLUMNS = {
    "name": "1.3.6.1.2.1.31.1.1.1.1",
    "type": "1.3.6.1.2.1.2.2.1.3",
    "status": "1.3.6.1.2.1.2.2.1.8",
    "speed_mbit": "1.3.6.1.2.1.31.1.1.1.15",
    "in_octets": "1.3.6.1.2.1.31.1.1.1.6",
    "out_octets": "1.3.6.1.2.1.31.1.1.1.10",
    "in_discards": "1.3.6.1.2.1.2.2.1.13",
    "out_discards": "1.3.6.1.2.1.2.2.1.19",
    "in_errors": "1.3.6.1.2.1.2.2.1.14",
    "out_errors": "1.3.6.1.2.1.2.2.1.20",
}
AGAIN = ("in_octets", "out_octets", "in_discards", "out_discards", "in_errors", "out_errors")


@dataclass
class Reading:
    """Columns by interface index, and when they were read (loop time, s)."""

    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    at_s: float = 0.0


def declare(parameters: Parameters) -> tuple[int, int]:
    """As for an element with 64 interfaces; each column is walked, six of them twice."""
    walks = len(COLUMNS) + len(AGAIN)
    size_bytes = walks * 4 * (PACKET_BYTES + ROWS_PER_ANSWER * ROW_BYTES // 4)
    wait_ms = parameters["timeout_ms"] * (RETRIES + 1)
    return size_bytes, int(parameters["duration_ms"] + 4 * wait_ms)


def check(parameters: Parameters) -> None:
    """An address, and credentials that can be read."""
    if not parameters["destination"]:
        raise SensorError("usage", "destination is missing")
    try:
        ip_address(parameters["destination"])
    except ValueError:
        raise SensorError("usage", f"{parameters['destination']} is no IP address, such as 10.1.0.2") from None
    if not parameters["declare"]:
        credentials(parameters)


def credentials(parameters: Parameters) -> CommunityData | UsmUserData:
    """Who asks. Raises SensorError: the file is missing, open to others or makes no sense."""
    if not parameters["credentials"]:
        return CommunityData(parameters["community"], mpModel=1)  # noqa: S508 # many elements speak no version 3
    path = Path(parameters["credentials"])
    try:
        if path.stat().st_mode & 0o077:
            raise SensorError("permission", f"{path} can be read by others: chmod 600")
        told = json.loads(path.read_text())
        if "community" in told:
            return CommunityData(str(told["community"]), mpModel=1)  # noqa: S508 # many elements speak no version 3
        return UsmUserData(
            str(told["user"]),
            authKey=str(told["authentication"]),
            privKey=str(told["privacy"]),
            authProtocol=USM_AUTH_HMAC192_SHA256,
            privProtocol=USM_PRIV_CFB128_AES,
        )
    except OSError as error:
        kind = "permission" if isinstance(error, PermissionError) else "usage"
        raise SensorError(kind, f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        words = "is no JSON object with community, or with user, authentication and privacy"
        raise SensorError("usage", f"{path} {words}") from None


class Element:
    """A network element that is asked."""

    def __init__(self, parameters: Parameters, target: UdpTransportTarget | Udp6TransportTarget) -> None:
        self._engine = SnmpEngine()
        self._who = credentials(parameters)
        self._target = target
        self.address = parameters["destination"]
        self.requests = 0
        self.size_bytes = 0

    async def read(self, columns: tuple[str, ...]) -> Reading:
        """Walk columns of the interface table. Raises SensorError."""
        reading = Reading(at_s=asyncio.get_running_loop().time())
        for column in columns:
            await self._walk(column, reading)
        return reading

    async def _walk(self, column: str, reading: Reading) -> None:
        oid = COLUMNS[column]
        walk = bulk_walk_cmd(
            self._engine,
            self._who,
            self._target,
            ContextData(),
            0,
            ROWS_PER_ANSWER,
            ObjectType(ObjectIdentity(oid)),
            lexicographicMode=False,
            lookupMib=False,
        )
        rows = 0
        async for indication, status, _, bindings in walk:
            if indication:
                raise SensorError("unreachable", f"{self.address}: {indication}")
            if status:
                raise SensorError("other", f"{self.address}: {status.prettyPrint()} for {column}")
            for name, value in bindings:
                index = int(tuple(name)[-1])
                reading.rows.setdefault(index, {})[column] = value.prettyPrint() if column == "name" else int(value)
                rows += 1
            if rows >= INTERFACES_MAX:
                break
        self.requests += rows // ROWS_PER_ANSWER + 1
        self.size_bytes += (rows // ROWS_PER_ANSWER + 1) * PACKET_BYTES + rows * ROW_BYTES

    def close(self) -> None:
        """Close the socket."""
        self._engine.close_dispatcher()


def choose(rows: dict[int, dict[str, Any]], interface: str) -> list[int]:
    """Indices of the interfaces that count: the named one, or all that are up but loopbacks. Raises SensorError."""
    if interface:
        found = [index for index, row in rows.items() if row.get("name") == interface]
        if not found:
            names = ", ".join(sorted(str(row.get("name", index)) for index, row in rows.items())[:20]) or "none"
            raise SensorError("usage", f"there is no interface {interface}; there are {names}")
        return found
    found = [i for i, row in rows.items() if row.get("type") != LOOPBACK_TYPE and row.get("status") == UP]
    if not found:
        raise SensorError("other", "no interface but loopbacks is up")
    return found


def difference(column: str, before: int, after: int) -> int:
    """How far a counter went, over its wrap if need be."""
    return (after - before) % COUNTER_WRAP.get(column, 2**32)


def conclude(first: Reading, second: Reading, interface: str) -> Result:
    """Rates and counts between two readings. Raises SensorError. Pure."""
    chosen = choose(first.rows, interface)
    elapsed_s = second.at_s - first.at_s
    interfaces = []
    totals = dict.fromkeys(AGAIN, 0)
    counters = dict.fromkeys(AGAIN, 0)
    for index in chosen:
        before, after = first.rows[index], second.rows.get(index, {})
        moved = {c: difference(c, before[c], after[c]) for c in AGAIN if c in before and c in after}
        for column, count in moved.items():
            totals[column] += count
            counters[column] += after[column]
        if "in_octets" in moved:
            interfaces.append(
                {
                    "name": before.get("name", str(index)),
                    "speed_bps": before.get("speed_mbit", 0) * 1_000_000,
                    "in_rate_bps": round(moved["in_octets"] * 8 / elapsed_s),
                    "out_rate_bps": round(moved.get("out_octets", 0) * 8 / elapsed_s),
                }
            )
    if not interfaces:
        raise SensorError("other", "the element has no 64-bit counters of octets (ifHCInOctets)")
    metrics = [
        ("in_bytes", float(counters["in_octets"]), "bytes"),
        ("out_bytes", float(counters["out_octets"]), "bytes"),
        ("in_rate_bps", totals["in_octets"] * 8 / elapsed_s, "bps"),
        ("out_rate_bps", totals["out_octets"] * 8 / elapsed_s, "bps"),
        ("in_discards", float(totals["in_discards"]), "count"),
        ("out_discards", float(totals["out_discards"]), "count"),
        ("in_errors", float(totals["in_errors"]), "count"),
        ("out_errors", float(totals["out_errors"]), "count"),
        ("speed_bps", float(sum(entry["speed_bps"] for entry in interfaces)), "bps"),
    ]
    return Result(metrics=metrics, details={"interfaces": interfaces})


async def run(parameters: Parameters) -> Result:
    """Read the interface table twice."""
    kind = Udp6TransportTarget if ip_address(parameters["destination"]).version == 6 else UdpTransportTarget
    endpoint = (parameters["destination"], parameters["port"])
    target = await kind.create(endpoint, timeout=parameters["timeout_ms"] / 1000, retries=RETRIES)
    element = Element(parameters, target)
    try:
        first = await element.read(tuple(COLUMNS))
        # Rates count from the reading of the counters, which come last in it.
        await asyncio.sleep(parameters["duration_ms"] / 1000)
        second = await element.read(AGAIN)
    finally:
        element.close()
    result = conclude(first, second, parameters["interface"])
    result.probes_sent = element.requests
    result.probe_bytes = element.size_bytes
    return result


SENSOR = Sensor(
    name="snmp",
    synopsis="--destination ADDRESS [options] | --serve [options]",
    description="Read the interface counters of a network element and the rates that they show.",
    options=(
        Option("port", 161, "PORT", "of the SNMP agent (161)", 1, 65535),
        Option("interface", "", "NAME", "of one interface; without it all that are up but loopbacks together"),
        Option("community", "public", "NAME", "of SNMP version 2c (public)"),
        Option(
            "credentials",
            "",
            "FILE",
            "JSON with community, or user, authentication (SHA-256) and privacy (AES) of version 3; mode 0600",
            command_line_only=True,
        ),
        Option("duration-ms", 1000.0, "MS", "between the two readings that rates are told from (1000)", 100, 600000),
        Option("timeout-ms", 1000.0, "MS", "for an answer, which is asked for twice (1000)", 50, 60000),
    ),
    declare=declare,
    check=check,
    run=run,
    runs_at_once=32,
)

if __name__ == "__main__":
    sys.exit(main(SENSOR))
