"""What the allocator decides, without streams or a clock: link loads, capacities and grants in, link rates out.

`Allocations` takes the reports of many nodes at once and steps all their links together (controller.py). A record of
all a node's links goes out when one of them changed by 1 % or when half of the lease is over (The CHART System,
section 4; design: signalling, link rate control).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from google.protobuf.message import DecodeError

from chart.allocator import laws
from chart.allocator.controller import LinkController
from chart.allocator.guarantees import GrantBook
from chart.allocator.links import LOAD_FIELDS, Figures, Integers, Mask
from chart.allocator.loads import LoadReport
from chart.allocator.virtual import VirtualLink
from chart.common import leases
from chart.v1 import link_load_pb2, link_rate_pb2

# Users with several flows that one record may name; agents know as many.
MOST_USERS = 1024


def users_by_link(user_flows: Iterable[link_load_pb2.UserFlows], link_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Flows of each user who has several on a link, by link; what names no link, or nobody, is left out."""
    found: dict[str, dict[str, int]] = {}
    for one in itertools.islice(user_flows, MOST_USERS):
        if one.link < len(link_ids) and one.user and one.flows > 1:
            found.setdefault(link_ids[one.link], {})[one.user] = one.flows
    return found


def next_generation(now_us: int, *known: int) -> int:
    """A generation above every known one; the clock makes it grow across restarts and hand-overs too."""
    return max(now_us, *(generation + 1 for generation in known), 1)


@dataclass(frozen=True, slots=True)
class Told:
    """A record that is on its way: whole numbers of the links in `slots`, and how often leases or users had changed by
    then.
    """

    record: link_rate_pb2.LinkRates
    slots: Integers
    figures: Figures
    changes: int


class NodeAllocation:
    """What a replica knows of one node: the slots of its links, and the record that was published last."""

    def __init__(self, node: str, law: str, previous: link_rate_pb2.LinkRates | None = None) -> None:
        """`previous` is the newest record of the node, by whichever replica: its rates and generation go on."""
        self.node = node
        self.law = law
        self.published: link_rate_pb2.LinkRates | None = previous
        self.last_report_us = 0
        # As the last report named them; which of its links the topology has, and their slots.
        self.names = b""
        self.known: Mask = np.zeros(0, bool)
        self.unknown_ids: list[str] = []
        self.link_ids: list[str] = []
        self.slots: Integers = np.zeros(0, np.int64)
        # The same in the order of a record: by id.
        self.ordered_ids: list[str] = []
        self.ordered_slots: Integers = self.slots
        # Users with several flows by link, as the last report had them, in its own octets too.
        self.users: dict[str, dict[str, int]] = {}
        self.users_octets = b""
        self.under_way: Told | None = None
        self.restored = {rate.link_id: rate for rate in previous.links} if previous else {}

    def record(
        self,
        rows: Iterable[tuple[str, int, int, int, int]],
        lease_of: Callable[[str, int], tuple[int, int]],
        now_us: int,
        lease_us: int,
        known: int = 0,
    ) -> link_rate_pb2.LinkRates:
        """The record to publish. `rows`: id, R, C_er, legacy share and N of its links; `lease_of` gives rate and end of
        what may be drawn in band, `known` is the newest generation in the stream.
        """
        own = self.published.generation if self.published else 0
        record = link_rate_pb2.LinkRates(
            node=self.node,
            generation=next_generation(now_us, own, known),
            issued_at_us=now_us,
            valid_until_us=now_us + lease_us,
            controller=self.law,
        )
        add = record.links.add
        # Set one by one: several times quicker than by keywords.
        for link_id, rate, capacity, share, users in rows:
            link = add()
            link.link_id = link_id
            link.available_bps = rate
            link.explicit_rate_capacity_bps = capacity
            link.legacy_share_bps = share
            link.active_users = users
            lease_bps, until_us = lease_of(link_id, now_us)
            if lease_bps:
                link.gr_lease_bps, link.gr_lease_until_us = lease_bps, until_us
            if self.users:
                for user, number in self.users.get(link_id, {}).items():
                    link.user_flows.add(user=user, flows=number)
        return record


class Allocations:
    """Rate control of all nodes of one replica: reports in, what has to be published out."""

    def __init__(
        self,
        law_of_node: Callable[[str], str],
        newest: Callable[[str], link_rate_pb2.LinkRates | None],
        capacities: Mapping[str, int],
        grants: GrantBook,
        lease_of: Callable[[str, int], tuple[int, int]],
        note: Callable[[str, str, str], None],
        virtual: Mapping[str, VirtualLink] = MappingProxyType({}),
    ) -> None:
        """`newest` is the newest record of a node in the stream, `capacities` the links of the topology, `virtual`
        those among them whose capacity is sensed; `note` is told what was done for a node under which control law.
        """
        self.nodes: dict[str, NodeAllocation] = {}
        self._links = LinkController()
        self._slot_of: dict[str, int] = {}
        # Nodes by what their last report named.
        self._of_names: dict[bytes, NodeAllocation] = {}
        self._law_of_node = law_of_node
        self._newest = newest
        self._capacities = capacities
        self._virtual = virtual
        self._grants = grants
        self._lease_of = lease_of
        self._note = note
        # Nodes whose links have to be looked up anew.
        self._stale: set[str] = set()
        # How often the lease of any link, or who has several flows on it, was changed.
        self._changes = 0

    def take(self, reports: Iterable[LoadReport], now_us: int) -> tuple[list[str], list[str]]:
        """Take reports, at most one of each node; returns the nodes whose record is due, and the links that agents
        report and the topology does not have.
        """
        unknown: list[str] = []
        taken: list[NodeAllocation] = []
        values: list[bytes] = []
        intervals: list[int] = []
        for report in reports:
            # Nearly always it has the same links as the report before: one comparison of octets.
            allocation = self._of_names.get(report.names)
            if allocation is None or allocation.node in self._stale:
                node = report.node
                allocation = self.nodes.get(node) or self._begin(node)
                self._enlist(allocation, report, now_us)
                self._take_users(allocation, report)
            allocation.last_report_us = now_us
            if report.users != allocation.users_octets:
                self._take_users(allocation, report)
            unknown += allocation.unknown_ids
            if allocation.link_ids:
                taken.append(allocation)
                values.append(report.values)
                intervals.append(report.interval_us)
        if not taken:
            return [], unknown
        for link_id in self._grants.take_changed(now_us):
            slot = self._slot_of.get(link_id)
            if slot is not None:
                self._links.reserved_bps[slot] = self._grants.reserved_bps(link_id, now_us)
        slots = np.concatenate([allocation.slots for allocation in taken])
        if self._virtual:
            self._sense(taken, values, intervals, now_us)
        loads = np.frombuffer(b"".join(values), np.float64).reshape(-1, len(LOAD_FIELDS))
        if len(loads) != len(slots):
            loads = loads[np.concatenate([allocation.known for allocation in taken])]
        lengths = np.array([len(allocation.link_ids) for allocation in taken])
        self._links.step(slots, loads, np.repeat(np.maximum(1.0, np.array(intervals, np.float64)), lengths))
        first = np.cumsum(lengths) - lengths
        moved = np.logical_or.reduceat(self._links.moved(slots), first).tolist()
        due = [
            allocation.node
            for allocation, has_moved in zip(taken, moved, strict=True)
            if has_moved or self._renewal_due(allocation, now_us)
        ]
        return due, unknown

    def _sense(
        self, taken: Sequence[NodeAllocation], values: Sequence[bytes], intervals: Sequence[int], now_us: int
    ) -> None:
        """Loads of virtual links are noted, and their capacities are what they are by now."""
        for allocation, octets, interval_us in zip(taken, values, intervals, strict=True):
            if self._virtual.keys().isdisjoint(allocation.link_ids):
                continue
            rows = np.frombuffer(octets, np.float64).reshape(-1, len(LOAD_FIELDS))[allocation.known]
            for link_id, slot, row in zip(allocation.link_ids, allocation.slots, rows, strict=True):
                link = self._virtual.get(link_id)
                if link is not None:
                    link.note_load(now_us, interval_us, (row[0] + row[1]) * 8e6 / max(1, interval_us))
                    self._links.link_bps[slot] = link.capacity_bps(now_us)

    def records(self, nodes: Sequence[str], now_us: int, lease_us: int) -> list[link_rate_pb2.LinkRates]:
        """The records of some nodes to publish now."""
        if not nodes:
            return []
        allocations = [self.nodes[node] for node in nodes]
        together = self._links.figures(np.concatenate([one.ordered_slots for one in allocations]))
        columns = [column.tolist() for column in together]
        found = []
        begin = 0
        for one in allocations:
            newest = self._newest(one.node)
            end = begin + len(one.ordered_ids)
            figures = (together[0][begin:end], together[1][begin:end], together[2][begin:end], together[3][begin:end])
            rows = zip(one.ordered_ids, *(column[begin:end] for column in columns), strict=True)
            known = newest.generation if newest else 0
            record = one.record(rows, self._lease_of, now_us, lease_us, known)
            one.under_way = Told(record, one.ordered_slots, figures, self._changes)
            found.append(record)
            begin = end
        return found

    def published(self, node: str, record: link_rate_pb2.LinkRates, now_us: int) -> None:
        """A record was acknowledged: it is what the node is told."""
        allocation = self.nodes.get(node)
        if allocation is None:
            return
        allocation.published = record
        told = allocation.under_way
        if told is not None and told.record is record and told.slots is allocation.ordered_slots:
            self._links.tell(told.slots, told.figures)
        else:
            # Its links are others by now.
            self._note_told(record.links)
        if told is None or told.changes != self._changes:
            for rate in record.links:
                # Changed while the record was on its way.
                lease = (rate.gr_lease_bps, rate.gr_lease_until_us)
                users = {one.user: one.flows for one in rate.user_flows}
                if self._lease_of(rate.link_id, now_us) != lease or allocation.users.get(rate.link_id, {}) != users:
                    self.tell_anew(rate.link_id)

    def forget(self, node: str) -> None:
        """Another replica has the node, or its agent is away."""
        allocation = self.nodes.pop(node)
        self._of_names.pop(allocation.names, None)
        for link_id in allocation.link_ids:
            self._links.remove(self._slot_of.pop(link_id))

    def look_again(self, node: str = "") -> None:
        """The topology or the policy of a node changed; "": of every node."""
        self._stale.update([node] if node else self.nodes)

    def tell_anew(self, link_id: str) -> None:
        """What may be drawn in band on a link, or who has several flows there, is not what was told: its node's next
        report publishes it.
        """
        self._changes += 1
        slot = self._slot_of.get(link_id)
        if slot is not None:
            self._links.tell_anew(slot)

    def _take_users(self, allocation: NodeAllocation, report: LoadReport) -> None:
        """Who has several flows is another than before: links where that is so are told anew."""
        before = allocation.users
        try:
            allocation.users = users_by_link(report.user_flows, report.link_ids)
        except DecodeError:
            allocation.users = {}
        allocation.users_octets = report.users
        self._changes += 1
        for link_id in before.keys() | allocation.users.keys():
            slot = self._slot_of.get(link_id)
            if slot is not None and before.get(link_id) != allocation.users.get(link_id):
                self._links.tell_anew(slot)

    def _renewal_due(self, allocation: NodeAllocation, now_us: int) -> bool:
        told = allocation.published
        return told is None or leases.renewal_due(told.issued_at_us, told.valid_until_us, now_us)

    def _begin(self, node: str) -> NodeAllocation:
        allocation = NodeAllocation(node, self._law_of_node(node), self._newest(node))
        self.nodes[node] = allocation
        self._note("works for a node: its loads arrive", node, allocation.law)
        return allocation

    def _enlist(self, allocation: NodeAllocation, report: LoadReport, now_us: int) -> None:
        """The node's links are those of a report; those that were there before go on from where they are."""
        ids = report.link_ids
        self._stale.discard(allocation.node)
        law = self._law_of_node(allocation.node)
        if law != allocation.law:
            self._note("changes the control law of a node by policy", allocation.node, law)
        known = [link_id for link_id in ids if self._capacities.get(link_id, 0) > 0]
        for link_id in allocation.link_ids:
            if link_id not in known or law != allocation.law:
                slot = self._slot_of.pop(link_id)
                self._links.remove(slot)
                if law != allocation.law:
                    rate = link_rate_pb2.LinkRate(link_id=link_id, available_bps=int(self._links.rate_bps[slot]))
                    allocation.restored[link_id] = rate
        allocation.law = law
        fresh = []
        for link_id in known:
            if link_id not in self._slot_of:
                told = allocation.restored.pop(link_id, None)
                available_bps = told.available_bps if told is not None else 0
                reserved_bps = self._grants.reserved_bps(link_id, now_us)
                slot = self._links.add(law, available_bps, self._capacity_bps(link_id, now_us), reserved_bps)
                self._slot_of[link_id] = slot
                fresh += [told] if told is not None else []
            self._links.link_bps[self._slot_of[link_id]] = self._capacity_bps(link_id, now_us)
            self._links.virtual[self._slot_of[link_id]] = link_id in self._virtual
        self._note_told(fresh)
        # Links that the agents were told of and that are no more: a record without them has to go out.
        gone = [link_id for link_id in (*allocation.restored, *allocation.link_ids) if link_id not in ids]
        allocation.restored = {link_id: one for link_id, one in allocation.restored.items() if link_id in ids}
        self._of_names.pop(allocation.names, None)
        self._of_names[report.names] = allocation
        allocation.names = report.names
        allocation.known = np.array([link_id in self._slot_of for link_id in ids], bool)
        allocation.unknown_ids = [link_id for link_id in ids if link_id not in self._slot_of]
        allocation.link_ids = known
        allocation.slots = np.array([self._slot_of[link_id] for link_id in known], np.int64)
        allocation.ordered_ids = sorted(known)
        allocation.ordered_slots = np.array([self._slot_of[link_id] for link_id in allocation.ordered_ids], np.int64)
        if gone and known:
            self._links.tell_anew(int(allocation.slots[0]))

    def _capacity_bps(self, link_id: str, now_us: int) -> float:
        virtual = self._virtual.get(link_id)
        return self._capacities[link_id] if virtual is None else virtual.capacity_bps(now_us)

    def _note_told(self, told: Iterable[link_rate_pb2.LinkRate]) -> None:
        links = self._links
        for rate in told:
            slot = self._slot_of.get(rate.link_id)
            if slot is not None and rate.explicit_rate_capacity_bps:
                links.told_rate_bps[slot] = rate.available_bps
                links.told_capacity_bps[slot] = rate.explicit_rate_capacity_bps
                links.told_legacy_share_bps[slot] = rate.legacy_share_bps
                links.told_users[slot] = rate.active_users


def law_of(policies: Iterable[tuple[str, str]], node: str) -> str:
    """The control law that (policy id, law) pairs give a node: its own policy, else "default", else NEC."""
    stated = {identity: law for identity, law in policies if law in laws.LAWS}
    return stated.get(node) or stated.get("default") or laws.NEC
