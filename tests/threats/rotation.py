"""Both ends of a pair whose keys rotate: they follow them as agents do."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any

from chart.common import qos
from threats.forgeries import FLOW


class End:
    """One end of the pair sender > receiver that follows the keys as the agent does."""

    def __init__(self, keys: Callable[[], Awaitable[Any]]) -> None:
        """``keys``: asks the authority for those of the pair."""
        self._keys = keys
        self._epochs: list[dict[str, Any]] = []
        self._renew_at_us = 0
        self._pair = qos.Pair()
        self._installed: set[int] = set()
        self._sequences: dict[int, int] = {}
        self.newest = 0

    async def ask(self) -> None:
        found = await self._keys()
        self._epochs, self._renew_at_us = found["epochs"], found["renew_at_us"]
        for epoch in self._epochs:
            if epoch["generation"] not in self._installed:
                self._installed.add(epoch["generation"])
                self._pair.install(epoch["epoch"], base64.b64decode(epoch["key"]))
            self.newest = max(self.newest, epoch["generation"])

    async def follow(self) -> None:
        while True:
            wait_s = min(1.0, max(0.1, (self._renew_at_us - time.time() * 1e6) / 1e6 + 0.05))
            await asyncio.sleep(wait_s)
            await self.ask()

    def send(self) -> qos.Signal:
        now_us = time.time() * 1e6
        usable = [one for one in self._epochs if one["sign_from_us"] <= now_us < one["expires_at_us"]]
        epoch = usable[-1]
        sequence = qos.next_sequence(self._sequences.get(epoch["generation"], 0))
        self._sequences[epoch["generation"]] = sequence
        made = qos.Signal(qos.Qos(guaranteed_rate=0x61B0), 1, epoch["epoch"], sequence)
        return made.sign(FLOW, base64.b64decode(epoch["key"]))

    def accept(self, sent: qos.Signal) -> bool:
        return self._pair.verify(sent, FLOW) is qos.Reason.OK
