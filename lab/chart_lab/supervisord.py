"""The configuration file of a supervisord, as the local platform and the lab write it. Pure."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterable, Mapping
from configparser import RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path

Options = Mapping[str, str | int | Path]


@dataclass(frozen=True)
class Supervised:
    """One program under supervisord; ``options`` are more of its ``[program:x]`` section, as supervisord names them."""

    name: str
    command: Iterable[str]
    environment: Mapping[str, str]
    log: Path
    options: Options = field(default_factory=dict)


def configuration(directory: Path, socket: Path, programs: Iterable[Supervised], options: Options) -> str:
    """Text of a supervisord.conf whose state is in ``directory``; ``options`` are those of its own section.

    What ends is started again, its whole process group is ended with it, and its log is kept in two files of 20 MB.
    """
    parser = RawConfigParser()
    sections: dict[str, Options] = {
        "unix_http_server": {"file": socket, "chmod": "0600"},
        "rpcinterface:supervisor": {
            "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
        },
        "supervisorctl": {"serverurl": f"unix://{socket}"},
        "supervisord": {"pidfile": directory / "supervisord.pid", "loglevel": "info", **options},
    }
    for program in programs:
        sections[f"program:{program.name}"] = {
            "command": shlex.join(program.command),
            "environment": ",".join(f'{key}="{value}"' for key, value in sorted(program.environment.items())),
            "autorestart": "true",
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile": program.log,
            "stdout_logfile_maxbytes": "20MB",
            "stdout_logfile_backups": 1,
            **program.options,
        }
    for name, values in sections.items():
        parser[name] = {key: str(value).replace("%", "%%") for key, value in values.items()}
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()
