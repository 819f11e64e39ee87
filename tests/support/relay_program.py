"""A process that only relays an outbox, for tests that kill it: DATABASE_URL BOOTSTRAP SCHEMA TOPICS_FILE."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from chart.common import catalogue, database
from chart.common.outbox import OutboxRelay
from chart.common.settings import BaseServiceSettings
from chart.common.streams import KafkaBroker


async def main() -> None:
    database_url, bootstrap, schema, topics_file = sys.argv[1:]
    settings = BaseServiceSettings(database_url=database_url, kafka_bootstrap=bootstrap)
    broker = KafkaBroker(bootstrap, catalogue=catalogue.load(Path(topics_file)))
    async with database.pool(settings) as pool:
        await OutboxRelay(pool, broker, schema).run()


if __name__ == "__main__":
    asyncio.run(main())
