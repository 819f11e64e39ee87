"""Rights of nodes at the broker: given at enrolment, taken at revocation, compared again and again in between.

The database says who is enrolled; what the broker has beside it is removed, whoever put it there. Where the broker has
no authoriser (on one machine), there is nothing to do, and the log says so once.
"""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import Counter, Gauge

from chart.authority import repository
from chart.common import broker_access, kafka_properties
from chart.common.broker_access import Difference, NoAuthoriser, RulesNotInForceError
from chart.common.catalogue import Catalogue
from chart.common.database import Pool
from chart.common.identity_files import IdentityFiles
from chart.common.retries import for_ever

EVERY_S = 15.0
RETRY_S = 2.0
# How long an enrolment waits for the broker: the node is enrolled without it, and hears of its streams a little later.
ENROLMENT_WAIT_S = 3.0
LIMIT_S = 5.0

MISSING = Gauge(
    "chart_authority_broker_rules_missing_count", "Rules of nodes that the broker did not have at the last look"
)
CHANGED = Counter("chart_authority_broker_rules_total", "Rules of nodes given and taken", ["change"])
FAILURES = Counter("chart_authority_broker_rules_failures_total", "Looks at the broker's rules that failed")

_log = structlog.get_logger("chart.authority")


class BrokerRights:
    """Keeps the broker's rules of nodes what the database says. One look at a time."""

    def __init__(self, pool: Pool, catalogue: Catalogue, bootstrap: str) -> None:
        self._pool = pool
        self._catalogue = catalogue
        self._bootstrap = bootstrap
        self._files = IdentityFiles()
        self._admin: AdminClient | None = None
        self._news = asyncio.Condition()
        # Looks that were asked for, and up to which of them the broker has been compared.
        self._asked = 0
        self._done = 0
        # Why nobody need wait for a look: the last one failed, or the broker has no authoriser.
        self._away = False
        self._open = bootstrap.startswith("local:")

    async def run(self) -> None:
        """Compare until cancelled; survives an absent broker and an absent database."""
        if self._open:  # the streams are in this process
            await asyncio.Event().wait()

        def told(error: Exception, _: float) -> None:
            FAILURES.inc()
            self._away = True
            _log.warning("the broker's rules cannot be compared, trying again", reason=_words(error))

        await for_ever(self._follow, (KafkaException, RulesNotInForceError, psycopg.Error, OSError), told, RETRY_S)

    async def _follow(self) -> None:
        asked = self._asked
        await self.compare()
        async with self._news:
            self._away = False
            self._done = asked
            self._news.notify_all()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_S):
                    await self._news.wait_for(lambda: self._asked > self._done)

    async def settled(self, limit_s: float = ENROLMENT_WAIT_S) -> bool:
        """Look now; whether the broker has what the database says, within the limit."""
        async with self._news:
            self._asked += 1
            mine = self._asked
            self._news.notify_all()
            if self._away or self._open:
                return self._open
            try:
                async with asyncio.timeout(limit_s):
                    await self._news.wait_for(lambda: self._done >= mine)
            except TimeoutError:
                return False
        return True

    async def compare(self) -> Difference:
        """Make the broker's rules of nodes what the database says.

        Raises:
            KafkaException: the broker does not answer or refuses.
            psycopg.Error: the database does not answer.
            RulesNotInForceError: it does not follow.
        """
        async with self._pool.connection() as connection:
            nodes = await repository.active_elements(connection)
        wanted = frozenset(rule for node in nodes for rule in broker_access.of_node(self._catalogue, node))
        try:
            found = await asyncio.to_thread(self._make, wanted)
        except NoAuthoriser as error:
            if not self._open:
                self._open = True
                _log.warning("rights of nodes cannot be given", reason=str(error), broker=self._bootstrap)
            return Difference()
        self._open = False
        MISSING.set(len(found.missing))
        CHANGED.labels(change="given").inc(len(found.missing))
        CHANGED.labels(change="taken").inc(len(found.surplus))
        if found.missing or found.surplus:
            names = sorted({rule.principal for rule in (*found.missing, *found.surplus)})
            _log.info(
                "the broker's rules of nodes changed",
                given=len(found.missing),
                taken=len(found.surplus),
                principals=names[:20],
            )
        return found

    def _make_admin(self) -> AdminClient:
        return AdminClient({**kafka_properties.load(), "bootstrap.servers": self._bootstrap, "log_level": 3})

    def _make(self, wanted: frozenset[broker_access.Rule]) -> Difference:
        if self._admin is None:
            self._files, self._admin = IdentityFiles(), self._make_admin()
        elif self._files.renewed():
            self._admin = self._files.successor(self._make_admin) or self._admin
        actual = {rule for rule in broker_access.in_force(self._admin, LIMIT_S) if rule.principal.startswith("node:")}
        found = broker_access.difference(wanted, actual)
        broker_access.change(self._admin, found, LIMIT_S)
        return found


def _words(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.str() if hasattr(reason, "str") else str(error)
