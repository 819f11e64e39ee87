"""Numbers and times in bodies: JSON has one kind of number, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from chart.gateway.schemas.common import InputTimestamp
from chart.gateway.schemas.tunnels import TunnelBody


def test_a_whole_number_is_an_integer_however_it_is_written() -> None:
    body = TunnelBody.model_validate({"connections": 3.0, "kp": 1, "window_min_segments": 4})
    assert (body.connections, body.kp, body.window_min_segments) == (3, 1.0, 4.0)


@pytest.mark.parametrize("wrong", [{"connections": 1.5}, {"connections": "3"}, {"connections": True}, {"ki": False}])
def test_nothing_else_is_taken_for_a_number(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TunnelBody.model_validate(wrong)


@pytest.mark.parametrize("wrong", ["0.5", "1772357400", 1772357400, "2026-03-01", "2026-03-01T09:30:00"])
def test_a_time_says_its_offset(wrong: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(InputTimestamp).validate_python(wrong)


def test_times_are_the_same_moment_in_every_zone() -> None:
    parse = TypeAdapter(InputTimestamp).validate_python
    assert parse("2026-03-01T09:30:00Z") == parse("2026-03-01T10:30:00.000+01:00")
