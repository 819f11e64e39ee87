"""The certificate with which a process speaks to the broker: a file that an enrolment makes and renewals replace.

librdkafka reads it once, when a client is made: who depends on one that is renewed waits until it is there, and ends
when another takes its place, so that its supervisor starts it with that one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import structlog

from chart.common import kafka_properties
from chart.common.clock import Clock

LOOK_EVERY_S = 1.0

_log = structlog.get_logger("chart.identity")


class CertificateReplacedError(RuntimeError):
    """The file is another one than that which was read."""


class BrokerCertificate:
    """The file that `ssl.certificate.location` of CHART_KAFKA_PROPERTIES names; None: there is none to wait for."""

    def __init__(self, clock: Clock) -> None:
        """As the environment says.

        Raises:
            KafkaPropertiesError: the properties cannot be read.
        """
        stated = kafka_properties.load().get("ssl.certificate.location")
        self._path = Path(stated) if stated else None
        self._clock = clock
        self._used: tuple[int, int] | None = None

    async def present(self, meanwhile: Coroutine[Any, Any, None] | None = None) -> None:
        """Return when it is there; ``meanwhile`` is what makes it, and runs until then."""
        making = asyncio.create_task(meanwhile) if meanwhile is not None else None
        try:
            said = False
            while self._path is not None and (found := await asyncio.to_thread(self._look)) is None:
                if not said:
                    _log.info("the broker is asked when there is a certificate", file=str(self._path))
                said = True
                if making is not None and making.done():
                    making.result()
                await self._clock.sleep(LOOK_EVERY_S)
            if self._path is not None:
                self._used = found
        finally:
            if making is not None:
                making.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await making

    async def replaced(self) -> None:
        """Watch until cancelled.

        Raises:
            CertificateReplacedError: another one is there.
        """
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            found = await asyncio.to_thread(self._look) if self._path is not None else None
            if found is not None and found != self._used:
                msg = f"{self._path} was renewed: the connections to the broker begin anew with this process"
                raise CertificateReplacedError(msg)

    def _look(self) -> tuple[int, int] | None:
        """What tells one file from the next; None: it is not there."""
        assert self._path is not None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return (found.st_ino, found.st_mtime_ns) if found.st_size else None
