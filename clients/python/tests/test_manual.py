"""chart(1) names every command of this distribution."""

from pathlib import Path

import typer

from chart_client.cli import build

MANUAL = Path(__file__).parents[1] / "man" / "chart.1"


def test_every_command_is_in_the_manual() -> None:
    words = MANUAL.read_text().replace("\\-", "-").replace(",", " ").replace('"', " ").split()
    commands = typer.main.get_group(build()).commands
    added = {"lab", "platform", "topics"}  # of other distributions
    assert not [name for name in commands if name not in words and name not in added]
