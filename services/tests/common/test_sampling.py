"""How many traces are recorded."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, ParentBased

from chart.common.telemetry import SomePerSecond


def test_so_many_a_second_and_twice_as_many_at_once() -> None:
    now = [0.0]
    sampler = SomePerSecond(10, lambda: now[0])

    def recorded(calls: int) -> int:
        found = [sampler.should_sample(None, 1, "x").decision for _ in range(calls)]
        return found.count(Decision.RECORD_AND_SAMPLE)

    assert recorded(100) == 20
    now[0] += 0.5
    assert recorded(100) == 5
    now[0] += 1000
    assert recorded(100) == 20
    assert SomePerSecond(0, lambda: now[0]).should_sample(None, 1, "x").decision == Decision.DROP


def test_a_trace_is_recorded_wholly_or_not_at_all() -> None:
    tracer = TracerProvider(sampler=ParentBased(SomePerSecond(0.5, lambda: 0.0))).get_tracer("x")
    for expected in (True, False):
        with tracer.start_as_current_span("outer") as outer, tracer.start_as_current_span("inner") as inner:
            assert (outer.is_recording(), inner.is_recording()) == (expected, expected)
            assert outer.get_span_context().trace_id == inner.get_span_context().trace_id
