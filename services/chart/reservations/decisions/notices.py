"""Callbacks about a request: content, signature, and when a delivery is tried again. Pure.

Form and signature are those of Standard Webhooks: the receiver checks HMAC-SHA-256 over "id.timestamp.body" under the
secret of the application, and refuses old timestamps.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json

from chart.common.units import rfc3339
from chart.reservations.decisions.reservation import Outcome, Reservation
from chart.reservations.decisions.state_machines import CALLBACK, CALLBACK_LIMIT_S, CallbackEvent
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, ServiceState

SECRET_BYTES = 32
SECRET_PREFIX = "whsec_"  # noqa: S105 - how secrets of this kind begin
# Seconds before each further try; the last one goes on until CALLBACK_LIMIT_S is over.
BACK_OFF_S = (1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
# Undelivered notices of one request; of more the oldest are given up.
MOST_WAITING = 100


def event(before: Reservation | None, after: Reservation) -> str:
    """What happened, as the application calls it; empty when it is nothing that it has to know."""
    if before is None:
        return "rate-request.held" if after.lifecycle == Lifecycle.LIFECYCLE_HELD else "rate-request.granted"
    if before.lifecycle != after.lifecycle:
        return f"rate-request.{Lifecycle.Name(Lifecycle.ValueType(after.lifecycle)).split('_', 1)[1].lower()}"
    if before.service_state != after.service_state:
        names = {
            int(ServiceState.SERVICE_STATE_PREEMPTED): "rate-request.preempted",
            int(ServiceState.SERVICE_STATE_DEGRADED): "rate-request.degraded",
        }
        return names.get(after.service_state, "rate-request.restored")
    if (before.granted_bps, before.end_us, before.specification.maximum_bps) != (
        after.granted_bps,
        after.end_us,
        after.specification.maximum_bps,
    ):
        return "rate-request.rate-changed" if after.background else "rate-request.changed"
    if before.link_ids != after.link_ids:
        return "rate-request.moved"
    if before.enforcement != after.enforcement:
        names = {
            int(Enforcement.ENFORCEMENT_ENFORCED): "rate-request.enforced",
            int(Enforcement.ENFORCEMENT_FAILED): "rate-request.failed",
        }
        return names.get(after.enforcement, "")
    return ""


def noted(before: Reservation | None, outcome: Outcome) -> tuple[Outcome, str]:
    """The outcome with its callback pending, if there is something to tell and somebody who wants to hear it."""
    after = outcome.reservation
    name = event(before, after) if after.specification.callback_url and outcome.announce else ""
    state = CALLBACK.next(after.callback_state, CallbackEvent.QUEUE) if name else None
    if state is None:
        return outcome, ""
    return dataclasses.replace(outcome, reservation=after.replaced(callback_state=state)), name


def settled(reservation: Reservation, delivered: bool, now_us: int) -> Outcome | None:
    """The request when its last waiting notice was delivered, or given up."""
    return _moved_on(reservation, CallbackEvent.DELIVER if delivered else CallbackEvent.GIVE_UP, now_us)


def queued_again(reservation: Reservation, now_us: int) -> Outcome | None:
    """The request when a notice that was delivered or given up is sent again."""
    return _moved_on(reservation, CallbackEvent.QUEUE, now_us)


def _moved_on(reservation: Reservation, happened: CallbackEvent, now_us: int) -> Outcome | None:
    state = CALLBACK.next(reservation.callback_state, happened)
    if state is None or state == reservation.callback_state:
        return None
    changed = dataclasses.replace(
        reservation, callback_state=state, revision=reservation.revision + 1, updated_at_us=now_us
    )
    return Outcome(changed)


def body(name: str, reservation: Reservation) -> str:
    """The JSON document that is sent."""
    data = {
        "id": reservation.id,
        "revision": reservation.revision,
        "lifecycle": Lifecycle.Name(Lifecycle.ValueType(reservation.lifecycle)).removeprefix("LIFECYCLE_"),
        "enforcement": Enforcement.Name(Enforcement.ValueType(reservation.enforcement)).removeprefix("ENFORCEMENT_"),
        "service_state": ServiceState.Name(ServiceState.ValueType(reservation.service_state)).removeprefix(
            "SERVICE_STATE_"
        ),
        "granted_bps": reservation.granted_bps,
        "path": list(reservation.link_ids),
        "start": rfc3339(reservation.start_us),
        "end": None if reservation.end_us == FOREVER_US else rfc3339(reservation.end_us),
        "waits_until": rfc3339(reservation.waits_until_us) if reservation.waits_until_us else None,
        "reason": reservation.reason,
        "tags": dict(reservation.specification.tags),
    }
    return json.dumps({"type": name, "timestamp": rfc3339(reservation.updated_at_us), "data": data})


def secret_text(secret: bytes) -> str:
    """A secret as an application gets it."""
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def signature(secret: bytes, identity: str, timestamp_s: int, text: str) -> str:
    """One entry of the header webhook-signature."""
    signed = f"{identity}.{timestamp_s}.{text}".encode()
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def headers(secrets: list[bytes], identity: str, timestamp_s: int, text: str) -> dict[str, str]:
    """Headers of a delivery; signed under each secret that is valid, so that one can be replaced without a gap."""
    return {
        "content-type": "application/json",
        "user-agent": "chart",
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(signature(one, identity, timestamp_s, text) for one in secrets),
    }


def next_attempt_us(attempts: int, created_at_us: int, now_us: int) -> int:
    """When to try again after this many attempts; 0: never."""
    again_us = now_us + int(BACK_OFF_S[min(attempts, len(BACK_OFF_S)) - 1] * 1e6)
    return again_us if again_us < created_at_us + int(CALLBACK_LIMIT_S * 1e6) else 0


PENDING = int(CallbackState.CALLBACK_STATE_PENDING)
DELIVERED = int(CallbackState.CALLBACK_STATE_DELIVERED)
DEAD = int(CallbackState.CALLBACK_STATE_DEAD)
