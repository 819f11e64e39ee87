"""What an agent decides, by its own code: dataplane/agent/grants/decide*.c as a shared library (`make decide-library`).

The declarations are read from decide.h and bounds.h themselves, so that a changed struct is a changed struct here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cffi import FFI

from chart.v1 import flow_grant_pb2, grant_status_pb2, link_rate_pb2

ROOT = Path(__file__).parents[3]
GRANTS = ROOT / "dataplane" / "agent" / "grants"
# In the order in which one needs the other.
HEADERS = (GRANTS / "bounds.h", GRANTS / "decide.h")
LIBRARY = ROOT / "build" / "simulate" / "libdecide.so"
SINK = "int(const struct decide_status *, void *)"


class LibraryMissingError(RuntimeError):
    """The library was not built; the message says how to."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A grant that the node has to apply now. Rates bit/s, times microseconds since the epoch."""

    request_id: str
    link_id: str
    sending: bool
    generation: int
    gr_bps: int
    ar_bps: int
    valid_until_us: int
    ar_valid_until_us: int


def declarations(header: str) -> str:
    """What cffi understands of a C header: comments, directives and inline functions left out, constants put in."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    for name, value in re.findall(r"^#define (\w+) (\d+)(?:ll)?$", text, re.MULTILINE):
        text = re.sub(rf"\b{name}\b", value, text)
    return re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)


@cache
def _library() -> tuple[FFI, Any]:
    if not LIBRARY.exists():
        msg = f"{LIBRARY} is missing: run `make decide-library`"
        raise LibraryMissingError(msg)
    ffi = FFI()
    for header in HEADERS:
        ffi.cdef(declarations(header.read_text()))
    return ffi, ffi.dlopen(str(LIBRARY))


class Decide:
    """The state of one agent. Methods are those of decide.h."""

    def __init__(self, node: str) -> None:
        self._ffi, self._lib = _library()
        self._node = node
        self._state = self._ffi.gc(self._lib.decide_new(node.encode()), self._lib.decide_free)
        self._statuses: list[grant_status_pb2.GrantStatus] = []
        self._sink = self._ffi.callback(SINK, self._take_status)
        # An agent that was told nothing observes; the simulated ones were told to enforce.
        self._check(self._lib.decide_put_policy(self._state, b"default", self._lib.DECIDE_MODE_ENFORCE))

    def set_links(self, links: Iterable[tuple[str, bool, int]]) -> None:
        """(link id, whether it is up, capacity) of the links that the node transmits on."""
        rows = [
            {"id": link_id.encode(), "ifindex": number + 1, "up": up, "capacity_bps": capacity_bps}
            for number, (link_id, up, capacity_bps) in enumerate(links)
        ]
        self._check(self._lib.decide_set_links(self._state, self._ffi.new("struct decide_link[]", rows), len(rows)))

    def put_grant(self, key: str, grant: flow_grant_pb2.FlowGrant | None, now_us: int) -> None:
        """A record of chart.flow-grant.v1, None for a tombstone."""
        if grant is None:
            self._check(self._lib.decide_remove_grant(self._state, key.encode(), self._ffi.NULL, now_us))
            return
        ids = [self._ffi.new("char[]", link_id.encode()) for link_id in grant.link_ids]
        paths = self._ffi.new("const char *[]", ids)
        identity = self._ffi.new("char[]", key.encode())
        unreadable = self._ffi.new("char[]", b"a prefix cannot be understood")
        row = self._ffi.new("struct decide_grant *")
        row.request_id, row.generation = identity, grant.generation
        row.link_ids, row.n_link_ids = paths, len(ids)
        row.guaranteed_bps, row.maximum_bps = grant.guaranteed_bps, grant.maximum_bps
        row.delay_priority, row.burst_tolerance = grant.delay_priority, grant.burst_tolerance
        row.valid_from_us, row.valid_until_us = grant.valid_from_us, grant.valid_until_us
        row.with_available_rate = grant.with_available_rate
        user = self._ffi.new("char[]", grant.user.encode())
        row.user = user
        for text, field in (
            (grant.selector.source_prefix, row.selector.source),
            (grant.selector.destination_prefix, row.selector.destination),
        ):
            if self._lib.decide_parse_prefix(text.encode(), self._ffi.addressof(field)) < 0:
                row.selector_error = unreadable
        row.selector.protocol = grant.selector.protocol
        row.selector.source_port = grant.selector.source_port
        row.selector.destination_port = grant.selector.destination_port
        self._check(self._lib.decide_put_grant(self._state, row, self._ffi.NULL, now_us))

    def put_link_rates(self, rates: link_rate_pb2.LinkRates, now_us: int) -> None:
        """A record of chart.link-rate.v1."""
        rows = [
            {
                "link_id": rate.link_id.encode(),
                "available_bps": rate.available_bps,
                "explicit_rate_capacity_bps": rate.explicit_rate_capacity_bps,
                "legacy_share_bps": rate.legacy_share_bps,
                "active_users": rate.active_users,
                "gr_lease_bps": rate.gr_lease_bps,
                "gr_lease_until_us": rate.gr_lease_until_us,
            }
            for rate in rates.links
        ]
        names = [self._ffi.new("char[]", one.user.encode()) for rate in rates.links for one in rate.user_flows]
        counts = [(place, one.flows) for place, rate in enumerate(rates.links) for one in rate.user_flows]
        users = [
            {"user": name, "rate": place, "flows": flows} for name, (place, flows) in zip(names, counts, strict=True)
        ]
        flows_of_users = self._ffi.new("struct decide_user_flows[]", users)
        array = self._ffi.new("struct decide_link_rate[]", rows)
        self._check(
            self._lib.decide_put_link_rates(
                self._state,
                rates.node.encode(),
                rates.generation,
                rates.valid_until_us,
                array,
                len(rows),
                flows_of_users,
                len(users),
                now_us,
            )
        )

    def in_band_lease(self, link_id: str, now_us: int) -> tuple[int, int]:
        """What flows may be guaranteed in band together on a link, and when that ends; (0, 0): no lease holds."""
        until_us = self._ffi.new("int64_t *")
        lease_bps = int(self._lib.decide_in_band_lease(self._state, link_id.encode(), now_us, until_us))
        return lease_bps, until_us[0]

    def desired(self, now_us: int) -> tuple[list[Applied], int]:
        """What to apply now, and when that changes by itself."""
        table = self._ffi.new("const struct decide_applied **")
        next_us = self._ffi.new("int64_t *")
        count = self._check(self._lib.decide_desired(self._state, now_us, table, next_us))
        rows = [table[0][number] for number in range(count)]
        return [
            Applied(
                self._ffi.string(row.request_id).decode(),
                self._ffi.string(row.link_id).decode(),
                bool(row.sending),
                row.generation,
                row.gr_bps,
                row.ar_bps,
                row.valid_until_us,
                row.ar_valid_until_us,
            )
            for row in rows
        ], next_us[0]

    def set_result(self, request_id: str, error: int, kernel_rate_bps: int, sent_bytes: int, now_us: int) -> None:
        """What the kernel made of a grant, and what it counted."""
        observed = self._ffi.new(
            "struct decide_observed *", {"kernel_rate_bps": kernel_rate_bps, "sent_bytes": sent_bytes}
        )
        self._lib.decide_set_result(self._state, request_id.encode(), error, observed, now_us)

    def statuses(self, now_us: int) -> Sequence[grant_status_pb2.GrantStatus]:
        """The statuses that are due; each counts as told."""
        self._statuses = []
        self._lib.decide_statuses(self._state, now_us, self._sink, self._ffi.NULL)
        return self._statuses

    def undelivered(self, request_id: str) -> None:
        """A status was not delivered."""
        self._lib.decide_undelivered(self._state, request_id.encode())

    def _take_status(self, status: Any, _context: Any) -> int:
        self._statuses.append(
            grant_status_pb2.GrantStatus(
                request_id=self._ffi.string(status.request_id).decode(),
                node=self._node,
                generation=status.generation,
                state=grant_status_pb2.GrantState.ValueType(int(status.state)),
                reason=self._ffi.string(status.reason).decode(),
                link_down=bool(status.link_down),
                applied_at_us=status.applied_at_us,
                kernel_rate_bps=status.observed.kernel_rate_bps,
                matching_flows=status.observed.matching_flows,
                sent_bytes=status.observed.sent_bytes,
                delivered_bytes=status.observed.delivered_bytes,
            )
        )
        return 0

    def _check(self, answer: int) -> int:
        if answer < 0:
            msg = f"the agent of {self._node} refused an input: error {-answer}"
            raise ValueError(msg)
        return answer
