"""Puts the gateway together and runs what feeds it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from chart.common.clock import Clock, SystemClock
from chart.common.problems import ProblemError
from chart.common.retries import until_done
from chart.common.streams import Broker, connect
from chart.common.tokens import KeySource, RemoteKeys
from chart.gateway.authority import AuthorityClient
from chart.gateway.backends import Backends
from chart.gateway.context import Gateway
from chart.gateway.ended import GatewayVerifier, Introspection
from chart.gateway.events import EventHub
from chart.gateway.issuer import DevelopmentIssuer
from chart.gateway.limits import RateLimiter
from chart.gateway.live import LiveState, Staleness
from chart.gateway.login import Provider
from chart.gateway.observed import Observed
from chart.gateway.routes.history import read_archive
from chart.gateway.settings import GatewaySettings
from chart.gateway.shared_limits import SharedLimiter
from chart.gateway.streams import Followers

ARCHIVE_RETRY_S = 2.0

_log = structlog.get_logger("chart.gateway")


class ConfigurationError(RuntimeError):
    """The settings do not go together; the words say what to set."""


def key_source(settings: GatewaySettings) -> tuple[KeySource, DevelopmentIssuer | None]:
    """Where the issuer's public keys come from, and the development issuer unless this is production.

    Raises:
        ConfigurationError: production without an identity provider.
    """
    if settings.development:
        issuer = DevelopmentIssuer(settings)
        _log.warning("the development issuer gives any role to whoever reaches this gateway")
        return issuer, issuer
    if not settings.token_jwks_url:
        msg = "production needs an identity provider: set CHART_TOKEN_ISSUER and CHART_TOKEN_JWKS_URL"
        raise ConfigurationError(msg)
    return RemoteKeys(settings.token_jwks_url, settings.token_jwks_cache_s), None


@asynccontextmanager
async def running(
    settings: GatewaySettings, *, broker: Broker | None = None, clock: Clock | None = None
) -> AsyncIterator[Gateway]:
    """A gateway that follows the streams inside the context."""
    clock = clock or SystemClock()
    keys, issuer = key_source(settings)
    broker = broker or connect(settings)
    live = LiveState(
        Staleness(
            node_us=round(settings.node_stale_s * 1e6),
            load_us=round(settings.load_stale_s * 1e6),
            measurement_us=round(settings.measurement_stale_s * 1e6),
        )
    )
    hub = EventHub(
        clock,
        ring=settings.events_ring,
        client_queue=settings.events_client_queue,
        clients=settings.events_clients,
        clients_per_subject=settings.events_clients_per_subject,
        coalesce_s=settings.events_load_interval_s,
        ping_s=settings.events_ping_s,
    )
    backends = Backends(settings)
    limit: dict[str, Any] = {"per_s": settings.rate_limit_per_s, "burst": settings.rate_limit_burst}
    gateway = Gateway(
        settings=settings,
        clock=clock,
        broker=broker,
        backends=backends,
        live=live,
        hub=hub,
        followers=Followers(broker, live, hub, clock),
        limiter=SharedLimiter(backends.reservations, RateLimiter(clock, **limit), clock, **limit),
        verifier=GatewayVerifier(settings, keys),
        introspection=Introspection(settings),
        issuer=issuer,
        provider=Provider(settings) if settings.oidc_client_id else None,
        authority=AuthorityClient(settings),
        observed=Observed(),
    )
    loops = [
        *gateway.followers.loops(),
        *gateway.observed.loops(broker, clock),
        hub.run(),
        _read_archive_once(gateway),
    ]
    tasks = [asyncio.create_task(loop) for loop in loops]
    try:
        yield gateway
    finally:
        hub.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.backends.close()
        await gateway.authority.close()
        await broker.close()


async def _read_archive_once(gateway: Gateway) -> None:
    """What was measured before this gateway began; tried until the archiver answers."""

    def told(error: Exception, _: float) -> None:
        _log.info("the archive cannot be read yet", reason=str(error))

    read = functools.partial(read_archive, gateway)
    await until_done(read, ProblemError, told, ARCHIVE_RETRY_S, sleep=gateway.clock.sleep)
