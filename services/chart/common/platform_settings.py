"""What operators set for the whole platform, and how a service follows it while it runs.

The registry keeps it and publishes it on ``chart.platform-settings.v1``. A field has the name of the service's setting
that it goes before; what operators leave out is what the service was started with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog
from google.protobuf.message import DecodeError, Message

from chart.common.files import write_private
from chart.common.retries import for_ever
from chart.common.settings import BaseServiceSettings
from chart.common.streams import Broker, StreamError
from chart.v1.platform_settings_pb2 import PlatformSettings

TOPIC = "chart.platform-settings.v1"
KEY = "platform"
BACK_OFF_S = (0.5, 15.0)

S = TypeVar("S", bound=BaseServiceSettings)

_log = structlog.get_logger("chart.settings")


def applied(started: S, platform: PlatformSettings) -> S:
    """A service's settings with what operators set in place of what it was started with. Fields of messages are none of
    a service's settings: who needs them reads them of ``platform``.
    """
    set_values = {
        field.name: value
        for field, value in platform.ListFields()
        if field.message_type is None and field.name in type(started).model_fields
    }
    return started.model_copy(update=set_values) if set_values else started


class PlatformView:
    """The settings of this moment; nothing is set until they are read. While the broker is away the last ones hold."""

    def __init__(self, kept_in: Path | None = None) -> None:
        """``kept_in``: a file that they are kept in over a restart, for a process that works without the broker."""
        self._kept_in = kept_in
        self._followers: list[Callable[[], object]] = []
        self.now = PlatformSettings()
        self.read = asyncio.Event()
        if kept_in is not None and kept_in.exists():
            try:
                self.now = PlatformSettings.FromString(kept_in.read_bytes())
            except (DecodeError, OSError) as error:
                _log.error("kept platform settings cannot be read", file=str(kept_in), reason=str(error))

    def applied(self, started: S) -> S:
        """A service's settings of this moment."""
        return applied(started, self.now)

    def changed(self, call: Callable[[], object]) -> None:
        """Have this called after each change, in the event loop."""
        self._followers.append(call)

    async def run(self, broker: Broker) -> None:
        """Follow until cancelled."""

        def told(error: Exception, in_s: float) -> None:
            _log.warning("going on with the platform settings that are known", reason=str(error), again_in_s=in_s)

        async def follow() -> None:
            state = await broker.compacted(TOPIC)
            try:
                changes = state.subscribe_changes()
                await self._take(state.get(KEY))
                self.read.set()
                async for key, value in changes:
                    if key == KEY:
                        await self._take(value)
            finally:
                await state.close()
            msg = "the platform settings are no longer followed"
            raise StreamError(msg)

        await for_ever(follow, StreamError, told, BACK_OFF_S)

    async def _take(self, value: Message | None) -> None:
        fresh = value if isinstance(value, PlatformSettings) else PlatformSettings()
        if fresh == self.now:
            return
        before, self.now = self.now, fresh
        _log.info("platform settings changed", revision=fresh.revision, fields=_changed_fields(before, fresh))
        for call in self._followers:
            call()
        if self._kept_in is not None:
            try:
                await asyncio.to_thread(write_private, self._kept_in, fresh.SerializeToString())
            except OSError as error:
                _log.error("platform settings are not kept over a restart", file=str(self._kept_in), reason=str(error))


def _changed_fields(before: PlatformSettings, after: PlatformSettings) -> list[str]:
    old, new = ({field.name: value for field, value in one.ListFields()} for one in (before, after))
    return sorted(name for name in old.keys() | new.keys() if name != "revision" and old.get(name) != new.get(name))
