"""Sensor programs as worker processes: one per kind with --serve, JSON lines in and out; and the responder.

A worker that dies is started again with back-off and its requests fail with a clear record; one that stops answering is
ended and started again. Requests in flight are bounded, each has a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Counter

from chart.sensor_pod.model import GroupKey

RESPONDER = "sensor-responder"
IN_FLIGHT = 200
LINE_LIMIT_BYTES = 1 << 20
BACK_OFF_S = (0.2, 30.0)
# A worker that ran this long had a good start: the back-off begins anew.
GOOD_RUN_S = 30.0
SILENT_LIMIT = 3
STOP_LIMIT_S = 2.0
DECLARE_LIMIT_S = 5.0
_NAME = re.compile(r"^[a-z][a-z0-9-]{0,31}$")

RESTARTS = Counter("chart_sensor_pod_worker_restarts_total", "Starts of a program after the first", ["program"])

_log = structlog.get_logger("chart.sensor_pod.drivers")


class SensorError(Exception):
    """A request that got no answer: kind "unavailable" (no such program, it died) or "timeout"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def record(self) -> dict[str, Any]:
        """As a sensor would have reported it."""
        return {"error": {"kind": self.kind, "message": str(self)}}


class Program:
    """A child process that is kept running with back-off; the kernel ends it when the pod dies."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = [*_death_with_parent(), *command]
        self._environment = {**os.environ, **environment}
        self._task: asyncio.Task[None] | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.up = asyncio.Event()
        self._anew = False

    def start(self) -> None:
        """Begin to keep it running."""
        if self._task is None:
            self._task = asyncio.create_task(self._keep(), name=f"program {self.name}")

    async def stop(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def restart(self) -> None:
        """End what it does now and start it again at once, without back-off."""
        if self.process is not None:
            self._anew = True
            self.up.clear()
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    async def _keep(self) -> None:
        back_off_s = BACK_OFF_S[0]
        loop = asyncio.get_running_loop()
        for attempt in itertools.count():
            if attempt:
                RESTARTS.labels(program=self.name).inc()
            if self._anew:
                self._anew, back_off_s = False, BACK_OFF_S[0]
            elif attempt:
                await asyncio.sleep(back_off_s)
                back_off_s = min(2 * back_off_s, BACK_OFF_S[1])
            started = loop.time()
            try:
                await self._run_once()
            except OSError as error:
                _log.error("a program cannot be started", program=self.name, reason=str(error))
            if loop.time() - started > GOOD_RUN_S:
                back_off_s = BACK_OFF_S[0]

    async def _run_once(self) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            limit=LINE_LIMIT_BYTES,
        )
        self.process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self.up.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_output(process.stdout))
                group.create_task(self._read_log(process.stderr))
                await process.wait()
        finally:
            self.up.clear()
            self.process = None
            await _end(process)
            self._ended(f"{self.name} ended with status {process.returncode}")

    async def _read_output(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readline()
            except ValueError:
                _log.warning("a program wrote a line beyond the limit", program=self.name)
                continue
            if not line:
                return
            self._take_line(line)

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        with contextlib.suppress(ValueError):
            while line := await stream.readline():
                _log.warning("a program says", program=self.name, words=line.decode(errors="replace").strip()[:500])

    def _take_line(self, line: bytes) -> None:
        _log.info("a program says", program=self.name, words=line.decode(errors="replace").strip()[:500])

    def _ended(self, reason: str) -> None:
        _log.warning("a program ended", program=self.name, reason=reason)


class Worker(Program):
    """A sensor with --serve."""

    def __init__(self, name: str, path: Path, environment: Mapping[str, str]) -> None:
        super().__init__(name, [str(path), "--serve"], environment)
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._silent = 0

    async def request(self, parameters: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Send one request and return its answer, an error record included.

        Raises:
            SensorError: no answer within the limit, or the program died meanwhile.
        """
        number = str(next(self._numbers))
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(limit_s), self._room:
                await self.up.wait()
                process = self.process
                if process is None or process.stdin is None:
                    raise SensorError("unavailable", f"{self.name} does not run")
                self._answers[number] = future
                process.stdin.write(json.dumps({**parameters, "id": number}).encode() + b"\n")
                await process.stdin.drain()
                answer = await future
        except TimeoutError:
            self._note_silence()
            raise SensorError("timeout", f"{self.name} gave no answer within {limit_s:.1f} s") from None
        except (BrokenPipeError, ConnectionResetError):
            raise SensorError("unavailable", f"{self.name} does not take requests") from None
        finally:
            self._answers.pop(number, None)
        self._silent = 0
        return answer

    def _note_silence(self) -> None:
        self._silent += 1
        if self._silent >= SILENT_LIMIT and self.process is not None:
            _log.error("a sensor stopped answering, starting it anew", program=self.name, requests=self._silent)
            self._silent = 0
            self.up.clear()  # what is asked from now on waits for the next one
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()

    def _take_line(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
            number = str(answer["id"])
        except (ValueError, KeyError, TypeError):
            _log.warning("a sensor wrote no answer", program=self.name, words=repr(line[:200]))
            return
        future = self._answers.get(number)
        if future is not None and not future.done():
            future.set_result(answer)

    def _ended(self, reason: str) -> None:
        super()._ended(reason)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(SensorError("unavailable", reason))
                future.exception()


class Drivers:
    """All sensors of a pod, found as programs in one directory; a worker starts with its first request."""

    def __init__(self, directory: Path, key_file: Path | None, responder_listen: str | None) -> None:
        self._directory = directory
        self._environment = {"CHART_SENSOR_KEY_FILE": str(key_file)} if key_file else {}
        self._workers: dict[str, Worker] = {}
        self._responder: Program | None = None
        if responder_listen is not None and key_file is not None:
            host, port = responder_listen.rsplit(":", 1)
            command = [str(directory / RESPONDER), "--bind", host, "--port", port, "--key-file", str(key_file)]
            self._responder = Program(RESPONDER, command, {})

    async def __aenter__(self) -> Drivers:
        if self._responder is not None:
            self._responder.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        programs: list[Program] = [*self._workers.values(), *([self._responder] if self._responder else [])]
        await asyncio.gather(*(program.stop() for program in programs))

    def sensors(self) -> list[str]:
        """Names of the sensors that can be run."""
        if not self._directory.is_dir():
            return []
        return sorted(
            entry.name
            for entry in self._directory.iterdir()
            if entry.name != RESPONDER and _NAME.match(entry.name) and entry.is_file() and os.access(entry, os.X_OK)
        )

    @property
    def responder_runs(self) -> bool:
        """Whether the responder is up, or not wanted."""
        return self._responder is None or self._responder.up.is_set()

    async def declare(self, key: GroupKey) -> dict[str, Any]:
        """What a run costs at most, or an error record. Raises SensorError."""
        return await self._worker(key.sensor).request({**_parameters(key), "declare": True}, DECLARE_LIMIT_S)

    async def run(self, key: GroupKey, limit_s: float) -> dict[str, Any]:
        """Run a sensor; returns its result or error record. Raises SensorError."""
        return await self._worker(key.sensor).request(_parameters(key), limit_s)

    def cancel(self, key: GroupKey) -> None:
        """End a sensor's run before its time; for sensors of which one run goes on at a time, as all its runs end."""
        worker = self._workers.get(key.sensor)
        if worker is not None:
            worker.restart()

    def _worker(self, sensor: str) -> Worker:
        worker = self._workers.get(sensor)
        if worker is None:
            if sensor not in self.sensors():
                known = ", ".join(self.sensors()) or "none"
                raise SensorError("unavailable", f"this pod has no sensor {sensor!r}; it has {known}")
            worker = self._workers[sensor] = Worker(sensor, self._directory / sensor, self._environment)
            worker.start()
        return worker


def _parameters(key: GroupKey) -> dict[str, Any]:
    return {"destination": key.destination_address, **dict(key.parameters)}


def _death_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
