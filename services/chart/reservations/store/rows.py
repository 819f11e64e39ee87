"""Requests, commitments and leases as rows, and back. No I/O."""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from psycopg.types.json import Jsonb

from chart.reservations.decisions import messages
from chart.reservations.decisions.in_band import Lease
from chart.reservations.decisions.ledger import Drain, Kind, LinkCommitment
from chart.reservations.decisions.reservation import Draining, Reservation
from chart.v1 import flow_grant_pb2, grant_status_pb2, rate_request_pb2

# Columns that are fields of a reservation, in the order of the fields.
FIELDS = [one.name for one in dataclasses.fields(Reservation) if one.name not in ("confirmations", "commitments")]
# Columns that are made from a reservation so that queries can use them.
DERIVED = ("rank", "lacking", "tags", "words")
COLUMNS = [*FIELDS, *DERIVED]
TYPES: Mapping[str, str] = {
    "id": "text",
    "owner": "text",
    "specification": "bytea",
    "selector": "bytea",
    "lifecycle": "smallint",
    "enforcement": "smallint",
    "service_state": "smallint",
    "callback_state": "smallint",
    "reason": "text",
    "traceparent": "text",
    "source_node": "text",
    "destination_node": "text",
    "service_reason": "text",
    "history": "bytea",
    "rank": "smallint",
    "lacking": "boolean",
    "unmatched": "boolean",
    "tags": "jsonb",
    "words": "text",
    # Arrays cannot be elements of an array that is unnested: they travel joined.
    "link_ids": "text",
    "confirming_nodes": "text",
    "draining": "text",
}
# Separates the elements of a joined column; no id has it.
JOINT = "\x1f"
JOINED = ("link_ids", "confirming_nodes")

_fields_of = operator.attrgetter(*FIELDS)
_PACKED = tuple(FIELDS.index(name) for name in ("specification", "selector"))
_JOINED = tuple(FIELDS.index(name) for name in JOINED)
_HISTORY = FIELDS.index("history")
_DRAINING = FIELDS.index("draining")

SELECT = (
    f"SELECT {', '.join(FIELDS)},"  # noqa: S608 - built from names of fields only
    " ARRAY(SELECT status FROM confirmation c WHERE c.request_id = r.id) AS statuses,"
    " (SELECT json_agg(json_build_array(link_id, rate_bps, start_us, end_us, kind)) FROM commitment c"
    " WHERE c.request_id = r.id) AS committed FROM rate_request r"
)


def values(reservation: Reservation) -> list[Any]:
    """A row's values, in the order of COLUMNS."""
    specification = reservation.specification
    tags = dict(specification.tags)
    found: list[Any] = list(_fields_of(reservation))
    for place in _PACKED:
        found[place] = found[place].SerializeToString()
    for place in _JOINED:
        found[place] = JOINT.join(found[place])
    found[_HISTORY] = messages.history_bytes(found[_HISTORY])
    found[_DRAINING] = draining_text(found[_DRAINING])
    words = [reservation.id, reservation.owner, specification.source, specification.destination]
    words += [specification.description, *(f"{key}={value}" for key, value in tags.items())]
    found += [reservation.rank, reservation.lacking, json.dumps(tags) if tags else None, " ".join(words).lower()]
    return found


def parameters(reservation: Reservation) -> dict[str, Any]:
    """A row's values by column, as an INSERT or UPDATE of one row takes them."""
    found = dict(zip(COLUMNS, values(reservation), strict=True))
    found |= {name: list(getattr(reservation, name)) for name in JOINED}
    tags = dict(reservation.specification.tags)
    found["tags"] = Jsonb(tags) if tags else None
    return found


def reservation_of(row: Mapping[str, Any]) -> Reservation:
    """The reservation of a row of SELECT."""
    statuses = [grant_status_pb2.GrantStatus.FromString(bytes(status)) for status in row["statuses"]]
    found = {name: row[name] for name in FIELDS}
    found["specification"] = rate_request_pb2.RateRequestSpecification.FromString(bytes(row["specification"]))
    found["selector"] = flow_grant_pb2.FlowSelector.FromString(bytes(row["selector"]))
    found["link_ids"] = tuple(row["link_ids"])
    found["confirming_nodes"] = tuple(row["confirming_nodes"])
    found["history"] = messages.history_of(bytes(row["history"]))
    found["draining"] = draining_of(row["draining"])
    by_link = {one[0]: LinkCommitment(one[0], one[1], one[2], one[3], Kind(one[4])) for one in row["committed"] or ()}
    # In path order, as they were made.
    found["commitments"] = tuple(by_link[link_id] for link_id in row["link_ids"] if link_id in by_link)
    return Reservation(**found, confirmations={status.node: status for status in statuses})


def draining_text(draining: Draining) -> str:
    """What drains of a request as stored; empty: nothing."""
    if not draining.parts:
        return ""
    return json.dumps([draining.nodes, [dataclasses.astuple(part) for part in draining.parts]])


def draining_of(stored: str) -> Draining:
    """What `draining_text` wrote."""
    if not stored:
        return Draining()
    nodes, parts = json.loads(stored)
    return Draining(tuple(nodes), tuple(Drain(*part) for part in parts))


def drains_text(drains: Mapping[str, Drain]) -> str:
    """What drains on a link as stored, by request."""
    return json.dumps([(name, one.rate_bps, one.until_us, one.generation) for name, one in drains.items()])


def drains_of(link_id: str, stored: Iterable[Any]) -> dict[str, Drain]:
    """What `drains_text` wrote."""
    return {name: Drain(link_id, rate, until, generation) for name, rate, until, generation in stored}


def lease_of(row: Mapping[str, Any]) -> Lease:
    """The lease of a row."""
    pieces = tuple((int(rate), int(until)) for rate, until in row["pieces"])
    return Lease(row["link_id"], row["generation"], row["rate_bps"], row["issued_at_us"], row["valid_until_us"], pieces)


def lease_holder(link_id: str) -> str:
    """What stands in place of a request's id in a lease's commitments; no request has such an id."""
    return f"lease:{link_id}"
