"""Types that several resources share: times, rates, identifiers, pages, problem documents (RFC 9457)."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from chart.common import names

# 1 Pbit/s: above any link, below 2^53, so that every JSON reader keeps the number exact.
MAX_BPS = 10**15
MAX_SAFE_INTEGER = 2**53 - 1


@functools.lru_cache(maxsize=4096)
def timestamp(microseconds: int) -> str:
    """Microseconds since the epoch as RFC 3339 UTC text with microseconds."""
    moment = datetime.fromtimestamp(microseconds // 1_000_000, UTC).replace(microsecond=microseconds % 1_000_000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def timestamp_or_none(microseconds: int) -> str | None:
    """As `timestamp`; 0, which the interface definitions use for "never", becomes null."""
    return timestamp(microseconds) if microseconds else None


def microseconds(moment: datetime) -> int:
    """An aware time as microseconds since the epoch, exactly."""
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _serialise(moment: datetime) -> str:
    return timestamp(microseconds(moment))


_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)


def _rfc3339(value: Any) -> Any:
    """No number: nobody could tell whether it counts seconds or milliseconds."""
    if isinstance(value, datetime) or (isinstance(value, str) and _RFC3339.fullmatch(value)):
        return value
    msg = "must be a time with its offset from UTC (RFC 3339), such as 2026-03-01T09:30:00Z"
    raise ValueError(msg)


_TIME_SCHEMA = {"type": "string", "format": "date-time"}
# An answer's time: text already, made by `timestamp`.
Timestamp = Annotated[str, WithJsonSchema({**_TIME_SCHEMA, "examples": ["2026-03-01T09:30:00.000000Z"]})]
# A time that a client states: RFC 3339 with an offset.
InputTimestamp = Annotated[
    AwareDatetime,
    Strict(False),
    BeforeValidator(_rfc3339),
    PlainSerializer(_serialise, return_type=str, when_used="json"),
    WithJsonSchema({**_TIME_SCHEMA, "examples": ["2026-03-01T09:30:00Z"]}),
]

CustomerName = Annotated[str, Field(min_length=1, max_length=63)]
Weight = Annotated[int, Field(ge=1, le=10_000)]
Bps = Annotated[int, Field(ge=0, le=MAX_BPS, description="Bits per second, IP headers included.")]
Revision = Annotated[int, Field(ge=0, description="Grows with every change; also the ETag.")]
LABEL_PATTERN = rf"^{names.LABEL}$"
NODE_ID_PATTERN = rf"^{names.NODE}$"
NodeId = Annotated[str, Field(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX, examples=["bravo"])]
LINK_ID_PATTERN = rf"^{names.NODE}:{names.INTERFACE}$"
LinkId = Annotated[str, Field(pattern=LINK_ID_PATTERN, max_length=names.LINK_LENGTH_MAX, examples=["bravo:to-charlie"])]
ENTITY_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.,:-]{0,127}$"
TagText = Annotated[str, Field(max_length=256)]
TagName = Annotated[str, Field(min_length=1, max_length=64)]
Tags = Annotated[
    dict[TagName, TagText],
    Field(max_length=32, description="Free key-value pairs.", examples=[{"site": "lab"}]),
]
_is_parameter = re.compile(r"[a-z][a-z0-9_]{0,31}").fullmatch


def _parameters_read(stated: dict[str, str]) -> dict[str, str]:
    """A pod would not run a configuration with other names, and could tell nobody but its log."""
    for name in stated:
        if not _is_parameter(name):
            words = "{name} is no name of a sensor's parameter, such as timeout_ms"
            raise PydanticCustomError("parameter", words, {"name": repr(name)})
    return stated


SensorParameters = Annotated[dict[TagName, TagText], AfterValidator(_parameters_read)]


class Input(BaseModel):
    """Base of request bodies: unknown fields and wrong types are refused, not guessed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, data: Any) -> Any:
        """JSON knows one kind of number: 5.0 is an integer (JSON Schema 2020-12, section 4.2.3)."""
        if not isinstance(data, dict):
            return data
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in data.items()
        }


class Output(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(extra="forbid")


class Problem(BaseModel):
    """Problem document (RFC 9457): what was wrong, in which field, and what would be accepted."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:chart:problem:insufficient-capacity",
                    "title": "Conflict",
                    "status": 409,
                    "detail": "Link bravo:to-charlie has 20000000 bit/s left of the 80000000 bit/s it may grant.",
                    "instance": "/v1/rate-requests",
                    "field": "guaranteed_bps",
                    "ceiling": 20000000,
                    "suggestions": ["Ask for at most 20000000 bit/s."],
                    "request_id": "01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN",
                }
            ]
        },
    )

    type: str = Field(description="URI that names the kind of problem; about:blank when the status says it all.")
    title: str = Field(description="Short name of the kind of problem.")
    status: int = Field(ge=100, le=599, description="HTTP status.")
    detail: str = Field(description="What was wrong with this request.")
    instance: str | None = Field(default=None, description="Path of the request.")
    field: str | None = Field(default=None, description="The field, parameter or header at fault.")
    floor: int | float | None = Field(
        default=None, description="Lowest value that would be accepted, in the field's unit."
    )
    ceiling: int | float | None = Field(
        default=None, description="Highest value that would be accepted, in the field's unit."
    )
    suggestions: list[str] | None = Field(default=None, description="What would be accepted.")
    request_id: str | None = Field(default=None, description="Id of this request in the gateway's log.")


class Page(Output):
    """Base of lists: `next_cursor` is null on the last page."""

    next_cursor: str | None = Field(
        default=None, description="Pass as `cursor` to read the next page; null: that was the last one."
    )
