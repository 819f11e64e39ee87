"""Running a service: signals, graceful stop with a limit, exit codes.

Exit codes: 0 stopped by SIGTERM or SIGINT or done, 1 failed (the log says why), 3 did not stop within the limit.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

import structlog

from chart.common import telemetry

STOP_LIMIT_S = 10.0

_log = structlog.get_logger("chart.runtime")


class _Ending:
    """The time that a process has to close what it opened, once it is asked to end or something of it failed. A thread
    watches it: whatever hangs may hang the event loop too.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """It ends now; later calls change nothing."""
        if self._timer is None:
            self._timer = threading.Timer(self._limit_s, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def done(self) -> None:
        """Everything is closed."""
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        _log.critical("did not stop within the limit, ending now", limit_s=self._limit_s)
        # What hangs is only known now.
        faulthandler.dump_traceback()
        os._exit(3)


# Of the service that runs here; None outside of `run`.
_ending: ContextVar[_Ending | None] = ContextVar("ending", default=None)


def collect_rarely() -> None:
    """For services with much in memory: Python looks through all of it for circles of objects again and again, which
    stops everything for a tenth of a second each time. What is there now is left out of that, the rest is looked
    through every hundred thousands of new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def run(
    main: Coroutine[Any, Any, None],
    *,
    stop_limit_s: float = STOP_LIMIT_S,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Run a service until it ends or a signal asks it to; returns the exit code.

    A signal cancels ``main``: its context managers close what they opened. After ``stop_limit_s`` the process ends
    anyway, because a supervisor would kill it next and the log would not say so; so it does when that long ago one of
    the loops of `run_together` failed, because no supervisor would start it anew. ``loop_factory`` makes another event
    loop than asyncio's own.
    """
    ending = _Ending(stop_limit_s)
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_supervise(main, ending))
    finally:
        telemetry.shutdown()
        ending.done()


async def _supervise(main: Coroutine[Any, Any, None], ending: _Ending) -> int:
    loop = asyncio.get_running_loop()
    _ending.set(ending)
    task = asyncio.ensure_future(main)
    asked: list[str] = []

    def stop(name: str) -> None:
        if not asked:
            _log.info("stopping because of a signal", signal=name)
            ending.begin()
        asked.append(name)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await task
    except asyncio.CancelledError:
        if not asked:
            raise
    except Exception as error:
        if asked:
            _log.warning("an error came up while stopping", error=repr(error))
            return 0
        _log.critical("the service failed and ends", error=repr(error), exc_info=error)
        return 1
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if asked:
        _log.info("stopped")
    return 0


async def run_together(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run several loops of one service; when one fails or ends with an error all are cancelled and it is raised: the
    service is over, and has as long to close what it opened as after a signal (`run`).

    Raises:
        Exception: the first error, not a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(_watched(coroutine))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def _watched(coroutine: Coroutine[Any, Any, None]) -> None:
    try:
        await coroutine
    except Exception as error:
        if (ending := _ending.get()) is not None:
            # Told here already: should closing take too long, nobody else would.
            _log.warning("a part of the service failed, closing", error=repr(error))
            ending.begin()
        raise
