"""What the routes work with; made once per process, reached through the application's state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from chart.common.clock import Clock
from chart.common.streams import Broker
from chart.gateway.authority import AuthorityClient
from chart.gateway.backends import Backends
from chart.gateway.ended import GatewayVerifier, Introspection
from chart.gateway.events import EventHub
from chart.gateway.issuer import DevelopmentIssuer
from chart.gateway.live import LiveState
from chart.gateway.login import Provider
from chart.gateway.observed import Observed
from chart.gateway.settings import GatewaySettings
from chart.gateway.shared_limits import SharedLimiter
from chart.gateway.streams import Followers


@dataclass
class Gateway:
    """Everything behind the routes."""

    settings: GatewaySettings
    clock: Clock
    broker: Broker
    backends: Backends
    live: LiveState
    hub: EventHub
    followers: Followers
    limiter: SharedLimiter
    verifier: GatewayVerifier
    introspection: Introspection
    issuer: DevelopmentIssuer | None
    provider: Provider | None
    authority: AuthorityClient
    observed: Observed
    archive_read_at: float = float("-inf")
    archive_reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Subscriptions to groups of pairs that are open.
    group_watchers: int = 0


def _of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


Context = Annotated[Gateway, Depends(_of)]
