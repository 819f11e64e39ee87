"""Measurements and series: what the archiver keeps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chart.gateway.schemas.common import Output, Page, Timestamp

SeriesKind = Literal["measurement", "link", "grant"]


class Measurement(Output):
    """Latest result of a sensor for one pair of nodes and one metric."""

    source_node: str
    destination_node: str
    metric: str = Field(examples=["rtt_us"])
    sensor: str
    value: float
    unit: str = Field(examples=["us"])
    measured_at: Timestamp
    error: str = Field(description="Why the run failed; empty when value is good.")
    stale: bool = Field(description="Older than CHART_MEASUREMENT_STALE_S.")


class MeasurementPage(Page):
    """Latest measurements by source, destination and metric."""

    items: list[Measurement]


class SeriesPoint(Output):
    """One step of a series; value is null where there is no data."""

    at: Timestamp = Field(description="Start of the step.")
    value: float | None = Field(description="Mean of the step.")
    minimum: float | None
    maximum: float | None
    count: int = Field(description="Number of records in the step.")


class Series(Output):
    """History of one metric of one subject."""

    unit: str
    points: list[SeriesPoint]
