"""Entry point of `chart-authority`."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager

import structlog
import uvicorn
import uvloop

from chart.authority import housekeeping, streams, tls
from chart.authority.api import create_app
from chart.authority.broker_rights import BrokerRights
from chart.authority.changes import Changes
from chart.authority.context import Authority, Buckets
from chart.authority.keys import Keys
from chart.authority.keystore import KeyStore, KeyStoreUnavailable
from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.authority.keystore_vault import VaultKeyStore
from chart.authority.kubernetes import Kubernetes
from chart.authority.service import KeyTimes
from chart.authority.settings import AuthoritySettings
from chart.authority.trust import Trust
from chart.common import catalogue, database, runtime, telemetry
from chart.common.clock import SystemClock
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.retries import until_done
from chart.common.streams import Broker, connect
from chart.common.tokens import RemoteKeys, TokenVerifier

STOP_GRACE_S = 3
STORE_RETRY_S = 2.0

_log = structlog.get_logger("chart.authority")


class _Server(uvicorn.Server):
    """Leaves the signals to the runtime."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def key_store(settings: AuthoritySettings) -> KeyStore:
    """The store that the settings name.

    Raises:
        ValueError: the embedded store in production, or Vault without what it needs.
    """
    if settings.authority_key_store == "vault":
        return VaultKeyStore(settings)
    if settings.environment == "production":
        msg = "the embedded key store is for one machine: set CHART_AUTHORITY_KEY_STORE=vault in production"
        raise ValueError(msg)
    return EmbeddedKeyStore(settings.home / "store", settings.authority_domain)


def listen(addresses: str) -> list[socket.socket]:
    """Listening sockets on "host:port[,host:port]"."""
    sockets = []
    for address in addresses.split(","):
        host, _, port = address.strip().rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=1024)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.append(listening)
    return sockets


async def _open_store(store: KeyStore) -> None:
    """Wait for a store that is unreachable or sealed; the reason is in the log."""

    def told(error: Exception, _: float) -> None:
        _log.warning("the key store cannot be used yet, waiting for it", store=store.name, reason=str(error))

    await until_done(store.open, KeyStoreUnavailable, told, STORE_RETRY_S)


@asynccontextmanager
async def running(settings: AuthoritySettings, context: ssl.SSLContext) -> AsyncIterator[tuple[Authority, int]]:
    """An authority without its listener, and when its own certificate is due (microseconds)."""
    clock = SystemClock()
    store = key_store(settings)
    async with database.pool(settings) as pool:
        await _open_store(store)
        try:
            own = await store.authority()
            housekeeping.publish_authority(settings, own)
            trust = Trust(pool, clock, context, settings.authority_domain, own, settings.authority_revocation_age_s)
            await trust.refresh()
            times = KeyTimes(round(settings.authority_key_life_s * 1e6), round(settings.authority_key_lead_s * 1e6))
            keys = Keys(pool, store, clock, times)
            authority = Authority(
                settings=settings,
                clock=clock,
                pool=pool,
                store=store,
                trust=trust,
                keys=keys,
                changes=Changes(pool, trust.refresh, keys),
                verifier=TokenVerifier(settings, RemoteKeys(settings.jwks_url, settings.token_jwks_cache_s)),
                reports=Buckets(settings.authority_reports_per_s, settings.authority_reports_burst),
                rights=BrokerRights(pool, catalogue.load(), settings.kafka_bootstrap),
                kubernetes=Kubernetes(settings) if settings.authority_kubernetes_url else None,
            )
            yield authority, await housekeeping.own_certificate(settings, store, context)
        finally:
            await store.close()


async def serve(
    settings: AuthoritySettings, sockets: list[socket.socket] | None = None, broker: Broker | None = None
) -> None:
    """Serve until cancelled. ``broker``: instead of the one that the settings name."""
    context = tls.server_context()
    sockets = sockets or listen(settings.authority_listen)
    broker = broker or connect(settings)
    try:
        async with running(settings, context) as (authority, renew_at_us):
            app = create_app(settings)
            app.state.authority = authority
            server = _Server(_config(app, settings, context))
            checks = {
                "database": lambda: database.reachable(authority.pool),
                "key store": authority.store.check,
            }
            # What was made until here stays until the end: the collector need not look through it while keys are read.
            gc.collect()
            gc.freeze()
            async with HealthServer(settings.http_listen, checks):
                _log.info(
                    "the authority listens",
                    listen=settings.authority_listen,
                    domain=settings.authority_domain,
                    key_store=authority.store.name,
                )
                try:
                    await runtime.run_together(
                        server.serve(sockets=sockets),
                        authority.changes.run(),
                        authority.rights.run(),
                        housekeeping.run(authority, context, renew_at_us),
                        OutboxRelay(authority.pool, broker, "authority").run(),
                        streams.follow_topology(authority.pool, broker, authority.clock),
                        streams.follow_accounts(authority.pool, broker, authority.clock),
                        authority.owners.follow(broker),
                        streams.follow_platform(authority.pool, authority.platform, broker),
                        *_publications(authority),
                    )
                finally:
                    server.should_exit = True
    finally:
        for listening in sockets:
            listening.close()
        await broker.close()


def _publications(authority: Authority) -> list[Coroutine[None, None, None]]:
    """What keeps the authority's certificate where pods of the cluster find it."""
    config_map = authority.settings.authority_kubernetes_config_map
    if authority.kubernetes is None or not config_map:
        return []
    return [authority.kubernetes.keep_published(config_map, (authority.settings.home / "ca.pem").read_text())]


def _config(app: object, settings: AuthoritySettings, context: ssl.SSLContext) -> uvicorn.Config:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=tls.protocol_class(settings.authority_head_limit_s),
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=STOP_GRACE_S,
        limit_concurrency=settings.authority_connections,
    )
    config.load()
    config.ssl = context
    return config


def main() -> int:
    """Run the authority; returns the exit code."""
    settings = AuthoritySettings()
    telemetry.setup("authority", settings)
    try:
        key_store(settings)
        sockets = listen(settings.authority_listen)
    except (ValueError, OSError) as error:
        _log.critical("the authority cannot start", listen=settings.authority_listen, error=str(error))
        return 1
    # TLS in C: of asyncio's own loop it is half of the time that an answer takes.
    return runtime.run(serve(settings, sockets), loop_factory=uvloop.new_event_loop)


if __name__ == "__main__":
    raise SystemExit(main())
