"""Mutual TLS of the local platform's broker: its certificate and those of the services, issued by the key store of the
platform's authority before that runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.authority.settings import AuthoritySettings
from chart.maintenance import broker_identities
from chart.maintenance.broker_identities import Request
from chart_lab.platform.kafka import BrokerTls, KafkaUnavailableError
from chart_lab.platform.settings import PlatformSettings


def prepare(settings: PlatformSettings) -> BrokerTls:
    """Make what certificates are due; the broker's files.

    Raises:
        KafkaUnavailableError: the authority's keys are not in files of this machine.
    """
    # Its log line belongs to people.
    with contextlib.redirect_stdout(sys.stderr):
        asyncio.run(_keep(settings))
    own = settings.broker_identities / broker_identities.BROKER
    return BrokerTls(own / broker_identities.BROKER_FILE, own / broker_identities.AUTHORITY_FILE)


async def _keep(settings: PlatformSettings) -> None:
    told = AuthoritySettings(state_dir=settings.state_dir)
    if told.authority_key_store != "embedded":
        msg = (
            "CHART_KAFKA_TLS needs the authority's keys on this machine: leave CHART_AUTHORITY_KEY_STORE at embedded, "
            "or run docker-compose.yml, which has a Vault"
        )
        raise KafkaUnavailableError(msg)
    store = EmbeddedKeyStore(told.home / "store", told.authority_domain)
    await store.open()
    loop = asyncio.get_running_loop()

    def sign(request: Request, uri: str, names: tuple[str, ...]) -> str:
        issuing = store.issue(request, uri, life_s=broker_identities.LIFE.total_seconds(), names=names)
        return asyncio.run_coroutine_threadsafe(issuing, loop).result().pem

    names = (broker_identities.BROKER, broker_identities.ADMINISTRATOR, *broker_identities.SERVICES)
    try:
        await asyncio.to_thread(
            broker_identities.keep,
            settings.broker_identities,
            names,
            sign,
            authority=await store.authority(),
            domain=told.authority_domain,
            broker_names=("127.0.0.1", "localhost", settings.management_address),
        )
    finally:
        await store.close()
