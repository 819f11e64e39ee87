"""The process manager: configuration as supervisord reads it, ordered start by health, stop without a trace."""

from __future__ import annotations

import configparser
import os
import shlex
import socket
import sys
from pathlib import Path

import pytest

from chart_lab.platform import kafka
from chart_lab.platform.programs import Program, service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import Supervisor, SupervisorError, configuration, healthy, socket_path

SERVER = """
import socket, sys, pathlib
pathlib.Path(sys.argv[2]).write_text("started")
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
while True: s.accept()[0].close()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def server(name: str, stage: int, marker: Path) -> Program:
    port = free_port()
    script = marker.with_suffix(".py")
    script.write_text(SERVER)
    command = (sys.executable, str(script), str(port), str(marker))
    return Program(name=name, command=command, stage=stage, health=f"tcp:127.0.0.1:{port}", stop_wait_s=3)


def test_configuration_survives_percent_signs_and_spaces(tmp_path: Path) -> None:
    program = Program("odd", ("/bin/echo", "100 %", 'say "x"'), 0, "tcp:127.0.0.1:1", {"A": "50%"})
    parser = configparser.RawConfigParser()
    parser.read_string(configuration(tmp_path, [program], "chart"))
    section = parser["program:odd"]
    # As supervisord reads it: percent signs are expanded, then the words are split as a shell does.
    assert shlex.split(section["command"] % {}) == list(program.command)
    assert section["environment"] == 'A="50%%"'
    assert section["autostart"] == "false"


def test_long_state_directories_get_a_socket_that_fits(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 90)
    assert len(str(socket_path(deep))) < 108
    assert socket_path(deep) == socket_path(deep)


def test_programs_start_in_stages_and_leave_nothing_behind(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    programs = [server("second", 1, second), server("first", 0, first)]
    supervisor = Supervisor(tmp_path / "state")
    order: list[str] = []
    try:
        supervisor.launch(programs)
        supervisor.start_all(programs, order.append)
        assert order == ["first", "second"]
        assert first.stat().st_mtime_ns < second.stat().st_mtime_ns
        rows = {row.name: row for row in supervisor.status(programs)}
        assert all(row.healthy and row.pid for row in rows.values())
    finally:
        supervisor.stop(programs)
    assert not supervisor.running()
    assert not any(healthy(program.health) for program in programs)
    for row in rows.values():
        with pytest.raises(ProcessLookupError):
            os.kill(row.pid, 0)


def test_a_program_that_never_gets_healthy_is_named_with_its_log(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import time; print('no listener here', flush=True); time.sleep(60)")
    program = Program("mute", command, 0, f"tcp:127.0.0.1:{free_port()}", stop_wait_s=1)
    supervisor = Supervisor(tmp_path)
    supervisor.launch([program])
    try:
        with pytest.raises(SupervisorError, match="mute is not healthy after 2 s") as raised:
            supervisor.start(program, limit_s=2)
        assert "no listener here" in str(raised.value)
    finally:
        supervisor.stop([program])


def test_every_service_knows_every_other_and_only_its_own_database() -> None:
    programs = {program.name: program for program in service_programs(PlatformSettings())}
    assert set(programs) == {
        *("registry", "allocator", "reservations", "archiver", "inference", "tunnels", "authority", "gateway")
    }
    assert programs["gateway"].environment["CHART_REGISTRY_TARGET"] == "127.0.0.1:18101"
    assert programs["registry"].environment["CHART_DATABASE_URL"].startswith("postgresql://registry@")
    assert "CHART_DATABASE_URL" not in programs["allocator"].environment
    assert "CHART_DATABASE_URL" not in programs["gateway"].environment


def test_the_broker_listens_on_loopback_and_on_the_management_bridge_only(tmp_path: Path) -> None:
    text = kafka.server_properties(PlatformSettings(), tmp_path, with_nodes=True)
    listeners = next(line for line in text.splitlines() if line.startswith("listeners="))
    hosts = {part.split("://")[1].rsplit(":", 1)[0] for part in listeners.removeprefix("listeners=").split(",")}
    assert hosts == {"127.0.0.1", "10.254.0.1"}
    assert "auto.create.topics.enable=false" in text


def test_missing_jars_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(kafka.KafkaUnavailableError, match="make kafka"):
        kafka.jars(PlatformSettings(build_dir=tmp_path))
