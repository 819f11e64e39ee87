"""What must hold whatever happens, checked by somebody who sees everything at once.

* No link is over-committed: no commit adds to what is committed on a link beyond what the link may commit, at any
  instant; what is reserved and what flows drew in band fit together at every moment; the stored profiles know of all of
  it; no agent applies what was taken back for longer than a grant's validity and the clocks' error; what nodes apply,
  whatever they were told last, fits together at every instant.
* No committed request is lost: what a caller was told is granted is there, its grant is on the stream and applied.
* Every loser is told: a request that loses rate or life without its owner asking is announced with that, and its grant
  says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chart.reservations.decisions.ledger import Kind, LinkCommitment
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import flow_grant_pb2, rate_request_pb2
from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, ServiceState
from chart_lab.simulation.agent import Kernel
from chart_lab.simulation.database import Place, Row
from chart_lab.simulation.faults import CLOCK_ERROR_US

ENDED = (Lifecycle.LIFECYCLE_RELEASED, Lifecycle.LIFECYCLE_EXPIRED, Lifecycle.LIFECYCLE_CANCELLED)
LOST_STATES = (ServiceState.SERVICE_STATE_PREEMPTED, ServiceState.SERVICE_STATE_DEGRADED)
# What an owner does to its own request.
BY_OWNER = ("rate-request.release", "rate-request.change", "rate-request.commit", "rate-request.create")
# What begins the name of a lease among commitments.
LEASE = "lease of "
# How late a moment may be acted upon when nothing is wrong.
LATE_US = 2_000_000
# How long a notice may take when its receiver answers: one before it may still have to wait for its next attempt.
CALL_LATE_US = 8_000_000


@dataclass(frozen=True)
class Violation:
    """A rule that was broken. `words`: what to look for in the trace."""

    rule: str
    detail: str
    words: tuple[str, ...] = ()


@dataclass
class Promise:
    """What a caller knows of a request of its own."""

    request_id: str
    granted_bps: int = 0
    # Whether the caller gave it back, or may have.
    given_back: bool = False


@dataclass(frozen=True)
class Loss:
    """A change that took something from a request; it has to be told."""

    request_id: str
    revision: int
    what: str


def peak_bps(rows: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """The greatest sum of (start, end, rate) at any instant, and that instant. Simple on purpose: it is the judge."""
    changes = sorted((at, change) for start, end, rate in rows for at, change in ((start, rate), (end, -rate)))
    total = peak = at_peak = 0
    for at, change in changes:
        total += change
        if total > peak:
            peak, at_peak = total, at
    return peak, at_peak


@dataclass(frozen=True)
class Granted:
    """What a request was granted from a moment on."""

    since_us: int
    bps: int
    nodes: tuple[str, ...]


class Checker:
    """Watches commits and records while the simulation runs, and looks at everything at its end."""

    def __init__(
        self,
        now_us: Callable[[], int],
        admissible_bps: Callable[[str], int],
        stale_us: int,
        note: Callable[[str], None],
    ) -> None:
        """`admissible_bps` is the most that a replica may take a link's share for at this moment; `stale_us`: how long
        after it was taken back a grant may still be applied somewhere.
        """
        self._now_us = now_us
        self._admissible_bps = admissible_bps
        self.stale_us = stale_us
        self._note = note
        # Requests that were told of a loss.
        self._losers: set[str] = set()
        self.violations: list[Violation] = []
        self.promises: dict[str, Promise] = {}
        # With the moment of each.
        self.losses: dict[Loss, int] = {}
        # Of those, whose application wants to be called.
        self._calls_owed: dict[Loss, int] = {}
        self._calls: set[str] = set()
        self._told_revision: dict[str, int] = {}
        # Of requests: what they say about their callbacks, and the notices that wait.
        self._callback_states: dict[str, int] = {}
        self._notices: dict[str, set[object]] = {}
        self.commits = 0
        # Sums over a link at an instant that were looked at.
        self.applied_sums = 0
        self._on_link: dict[str, dict[tuple[str, int], LinkCommitment]] = {}
        self._granted: dict[str, list[Granted]] = {}
        self._by_ask: dict[str, str] = {}

    def violated(self, rule: str, detail: str, *words: str) -> None:
        """Note that a rule was broken; the same breach once."""
        one = Violation(rule, detail, words)
        if one not in self.violations:
            self.violations.append(one)
            self._note(f"{rule}: {detail}")

    def on_commit(self, process: str, before: dict[Place, Row | None], after: dict[Place, Row | None]) -> None:
        """A transaction of a process took effect."""
        self.commits += 1
        held_before: dict[str, dict[tuple[str, int], LinkCommitment]] = {}
        self._check_notices(after)
        for (table, key), row in after.items():
            if table == "commitment":
                name, link_id, number = key
                rows = self._on_link.setdefault(link_id, {})
                held_before.setdefault(link_id, dict(rows))
                known = rows.pop((name, number), None)
                if row is not None:
                    rows[name, number] = self._from_its_start(known, LinkCommitment(**row))
            elif table == "rate_request" and row is not None:
                old = before[table, key]
                self._note_request(old["reservation"] if old else None, row["reservation"], row["action"])
        for link_id, rows in held_before.items():
            self._check_link(link_id, rows, process)

    def _from_its_start(self, known: LinkCommitment | None, now: LinkCommitment) -> LinkCommitment:
        """A reservation that a replica with a fast clock begins counts from its own start on, by true time: what it
        follows on the link may run until then.
        """
        ahead_us = known.start_us - self._now_us() if known is not None else 0
        if known is None or not 0 < ahead_us <= CLOCK_ERROR_US or now.start_us >= known.start_us:
            return now
        begun = now.committed_bps == known.committed_bps and now.end_us == known.end_us
        return dataclasses.replace(now, start_us=known.start_us) if begun else now

    def _check_notices(self, after: dict[Place, Row | None]) -> None:
        """No request says that its application knows everything while a notice waits."""
        concerned: dict[str, None] = {}
        for (table, key), row in after.items():
            if table == "callback" and row is not None:
                waiting = self._notices.setdefault(row["request_id"], set())
                (waiting.add if row["state"] == CallbackState.CALLBACK_STATE_PENDING else waiting.discard)(key)
                concerned[row["request_id"]] = None
            elif table == "rate_request" and row is not None:
                self._callback_states[row["reservation"].id] = row["reservation"].callback_state
                concerned[row["reservation"].id] = None
        for identity in concerned:
            state = self._callback_states.get(identity)
            if self._notices.get(identity) and state != CallbackState.CALLBACK_STATE_PENDING:
                detail = f"{identity} has notices that wait, its callback state is {state}"
                self.violated("untold", detail, identity)

    def _check_link(self, link_id: str, before: dict[tuple[str, int], LinkCommitment], process: str) -> None:
        """Wherever more is committed than before this commit, it is no more than may be."""
        now_us = self._now_us()
        rows = self._on_link[link_id]
        new = [one for place, one in rows.items() if before.get(place) != one and one.end_us > now_us]
        limit = self._admissible_bps(link_id)
        for one in new:
            start_us, end_us = max(one.start_us, now_us), one.end_us
            peak, at_us = peak_bps(_firm(rows.values(), start_us, end_us))
            earlier, _ = peak_bps(_firm(before.values(), start_us, end_us))
            if peak > limit and peak > earlier:
                detail = f"{process} committed {peak} bit/s on {link_id} at {at_us}, it may commit {limit}"
                self.violated("overcommitted", detail, link_id)

    def _note_request(self, old: Reservation | None, new: Reservation, action: str) -> None:
        ask = new.specification.tags.get("ask", "")
        if ask and self._by_ask.setdefault(ask, new.id) != new.id:
            detail = f"ask {ask} was committed twice, as {self._by_ask[ask]} and {new.id}"
            self.violated("duplicated", detail, ask, new.id)
        known = self._granted.setdefault(new.id, [])
        fresh = Granted(self._now_us(), new.granted_bps if new.live else 0, new.confirming_nodes)
        if not known or (known[-1].bps, known[-1].nodes) != (fresh.bps, fresh.nodes):
            known.append(fresh)
        if old is None:
            return
        if action in BY_OWNER:
            return
        if new.service_state in LOST_STATES and new.service_state != old.service_state:
            self._lost(new, ServiceState.Name(ServiceState.ValueType(new.service_state)))
        elif old.live and not new.live:
            self._lost(new, Lifecycle.Name(Lifecycle.ValueType(new.lifecycle)))
        elif new.granted_bps < old.granted_bps:
            self._lost(new, f"lowered from {old.granted_bps} to {new.granted_bps} bit/s")

    def _lost(self, reservation: Reservation, what: str) -> None:
        loss = Loss(reservation.id, reservation.revision, what)
        self.losses[loss] = self._now_us()
        if reservation.specification.callback_url:
            self._calls_owed[loss] = self._now_us()
        self._losers.add(reservation.id)

    def on_record(self, topic: str, value: object) -> None:
        """A record was stored in a stream."""
        if topic == "chart.rate-request.v1" and isinstance(value, rate_request_pb2.RateRequest):
            for loss in [one for one in self.losses if one.request_id == value.id and one.revision <= value.revision]:
                del self.losses[loss]

    def called(self, identity: str, request_id: str, revision: int) -> None:
        """A notice arrived at its application; repetitions carry the same identity."""
        if identity in self._calls:
            return
        self._calls.add(identity)
        if revision <= self._told_revision.get(request_id, 0):
            detail = f"{request_id}: revision {revision} was told after {self._told_revision[request_id]}"
            self.violated("untold", detail, request_id, identity)
        self._told_revision[request_id] = revision
        for loss in [one for one in self._calls_owed if one.request_id == request_id and one.revision <= revision]:
            del self._calls_owed[loss]

    def promised(self, request: rate_request_pb2.RateRequest) -> None:
        """A caller was told what its request is granted."""
        self.promises.setdefault(request.id, Promise(request.id)).granted_bps = request.granted_bps

    def given_back(self, request_id: str) -> None:
        """A caller released or changed a request, or tried to: what it has now is the caller's own doing."""
        if request_id in self.promises:
            self.promises[request_id].given_back = True

    def check_kernel(self, node: str, grants: dict[str, Any]) -> None:
        """What a node applies: no more than was granted at some time of the last validity."""
        since_us = self._now_us() - self.stale_us
        for request_id, one in grants.items():
            if not one.gr_bps:
                continue
            history = self._granted.get(request_id, [])
            later = [entry for entry in history if entry.since_us > since_us]
            recent = [*later, *history[: len(history) - len(later)][-1:]]
            if not any(entry.bps >= one.gr_bps and node in entry.nodes for entry in recent):
                detail = f"{node} applies {one.gr_bps} bit/s for {request_id}, which it should have lost by now"
                self.violated("stale", detail, request_id, node)

    def reserved_bps(self, link_id: str) -> int:
        """What requests, not leases, have reserved on a link for this moment."""
        now_us = self._now_us()
        return sum(
            one.committed_bps
            for (name, _), one in self._on_link.get(link_id, {}).items()
            if one.kind == Kind.FIRM and one.start_us <= now_us < one.end_us and not name.startswith(LEASE)
        )

    def check_in_band(self, link_id: str, drawn_bps: int) -> None:
        """What flows drew in band on a link, beside what is reserved on it at this moment."""
        reserved, limit = self.reserved_bps(link_id), self._admissible_bps(link_id)
        if drawn_bps and reserved + drawn_bps > limit:
            detail = f"{link_id}: {reserved} bit/s reserved and {drawn_bps} drawn in band, it may commit {limit}"
            self.violated("overcommitted", detail, link_id)

    def check_applied(self, kernels: Mapping[str, Kernel], now_s: float, limit_bps: Callable[[str], int]) -> None:
        """What nodes apply at this instant: over every link goes what any node of a path still lets in for a request,
        and what flows drew in band. `limit_bps`: the most that a link could carry of it while any of it was promised.
        """
        by_link: dict[str, dict[str, int]] = {}
        for kernel in kernels.values():
            for request_id, one in kernel.grants.items():
                if now_s < one.gr_until_s and one.gr_bps:
                    for link_id in one.path:
                        sums = by_link.setdefault(link_id, {})
                        sums[request_id] = max(sums.get(request_id, 0), one.gr_bps)
            for link_id, flows in kernel.in_band.items():
                drawn_bps = sum(flow.rate_bps for flow in flows if flow.until_s > now_s)
                by_link.setdefault(link_id, {})["in band"] = drawn_bps
        for link_id, sums in by_link.items():
            self.applied_sums += 1
            applied, limit = sum(sums.values()), limit_bps(link_id)
            if applied > limit:
                parts = ", ".join(f"{bps} for {name}" for name, bps in sums.items())
                detail = f"nodes apply {applied} bit/s on {link_id}, it may carry {limit}: {parts}"
                self.violated("applied_overcommitted", detail, link_id, *sums)

    def check_end(
        self,
        reservations: dict[str, Reservation],
        profile_peak_bps: Callable[[str, int], int],
        grant_of: Callable[[str], flow_grant_pb2.FlowGrant | None],
        applied: Callable[[str, str], int | None],
    ) -> None:
        """After everything healed and settled. `applied`: the guaranteed rate that (node, request) has in the kernel;
        `profile_peak_bps`: what the stored profile of a link says from a moment on.
        """
        now_us = self._now_us()
        for promise in self.promises.values():
            self._check_promise(promise, reservations.get(promise.request_id))
        for one in reservations.values():
            self._check_settled(one, grant_of(one.id), applied)
        for loss, at_us in self.losses.items():
            if now_us - at_us < LATE_US:
                continue
            self.violated("untold", f"{loss.request_id} was never told that it is {loss.what}", loss.request_id)
        for loss, at_us in self._calls_owed.items():
            if now_us - at_us >= CALL_LATE_US:
                detail = f"the application of {loss.request_id} was never called: it is {loss.what}"
                self.violated("untold", detail, loss.request_id)
        for link_id, rows in self._on_link.items():
            peak, at_us = peak_bps(_firm(rows.values(), now_us, FOREVER_US))
            if peak > self._admissible_bps(link_id):
                self.violated("overcommitted", f"{link_id} has {peak} bit/s committed at {at_us} for good", link_id)
            stored = profile_peak_bps(link_id, now_us)
            if stored < peak:
                self.violated("overcommitted", f"the profile of {link_id} knows {stored} of {peak} bit/s", link_id)

    def _check_promise(self, promise: Promise, one: Reservation | None) -> None:
        identity = promise.request_id
        if one is None:
            self.violated("lost", f"{identity} was granted to its caller and is not in the database", identity)
            return
        if promise.given_back or identity in self._losers:
            return
        if one.lifecycle in ENDED and self._now_us() < one.end_us:
            name = Lifecycle.Name(Lifecycle.ValueType(one.lifecycle))
            self.violated("lost", f"{identity} is {name} before its end, and nobody gave it back", identity)
        elif one.live and one.granted_bps < promise.granted_bps:
            self.violated("lost", f"{identity} has {one.granted_bps} of {promise.granted_bps} bit/s", identity)

    def _check_settled(
        self,
        one: Reservation,
        grant: flow_grant_pb2.FlowGrant | None,
        applied: Callable[[str, str], int | None],
    ) -> None:
        """Streams and nodes agree with the database."""
        now_us, identity = self._now_us(), one.id
        if one.lifecycle in ENDED:
            if grant is not None and grant.valid_until_us > now_us:
                self.violated("lost", f"{identity} ended, its grant is still in force on the stream", identity)
            return
        if now_us > one.end_us + LATE_US:
            self.violated("stuck", f"{identity} should have ended at {one.end_us}", identity)
        if one.lifecycle != Lifecycle.LIFECYCLE_ACTIVE:
            if one.lifecycle == Lifecycle.LIFECYCLE_RESERVED and now_us > one.start_us + LATE_US:
                self.violated("stuck", f"{identity} should have started at {one.start_us}", identity)
            return
        # Nodes end a grant on time, the database a moment later.
        if now_us - one.updated_at_us < LATE_US or now_us >= one.end_us:
            return
        if grant is None or grant.valid_until_us <= now_us:
            self.violated("lost", f"{identity} is active and has no valid grant on the stream", identity)
            return
        due_bps = one.in_force_bps if one.waits_until_us else one.granted_bps
        if one.waits_until_us and now_us > one.waits_until_us + LATE_US:
            self.violated("stuck", f"{identity} should be in force since {one.waits_until_us}", identity)
        if grant.guaranteed_bps != due_bps:
            detail = f"{identity} has {due_bps} bit/s in force, its grant on the stream says {grant.guaranteed_bps}"
            self.violated("lost", detail, identity)
        missing = [node for node in one.confirming_nodes if applied(node, identity) != due_bps]
        if missing:
            self.violated("lost", f"{identity} is active and not applied by {', '.join(missing)}", identity)
        elif one.granted_bps and not one.waits_until_us and one.enforcement != Enforcement.ENFORCEMENT_ENFORCED:
            self.violated("stuck", f"{identity} is applied by everybody but not enforced: {one.reason}", identity)


def _firm(rows: Iterable[LinkCommitment], start_us: int, end_us: int) -> Iterator[tuple[int, int, int]]:
    """Firm commitments within an interval, cut to it."""
    for one in rows:
        if one.kind == Kind.FIRM and one.start_us < end_us and one.end_us > start_us:
            yield max(one.start_us, start_us), min(one.end_us, end_us), one.committed_bps
