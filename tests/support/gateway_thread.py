"""The gateway of `support.gateway` in a thread of its own, for tests of synchronous clients."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from support.gateway import World, listening, world


class Running:
    """A gateway on a free port of loopback, in a thread of its own: the client under test is synchronous."""

    def __init__(self, state_dir: Path) -> None:
        self.url = ""
        self.place: World
        self.loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(state_dir,), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)
        assert self.url

    def _run(self, state_dir: Path) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._serve(state_dir))
        finally:
            self._ready.set()

    async def _serve(self, state_dir: Path) -> None:
        async with world(state_dir) as self.place, listening(self.place) as self.url:
            self._ready.set()
            await self._stop.wait()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.loop.close()
