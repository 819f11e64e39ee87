"""Units, leases, clock, catalogue, problems, settings: pure parts."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common import catalogue, leases, units
from chart.common.clock import FakeClock
from chart.common.problems import ProblemError
from chart.common.settings import BaseServiceSettings

MOMENT_US = 1_750_000_000_123_456


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("50M", 50_000_000), ("1.5 Gbit/s", 1_500_000_000), ("800kbps", 800_000), ("1000", 1000), ("2g", 2_000_000_000)],
)
def test_rates_are_read(text: str, rate_bps: int) -> None:
    assert units.parse_rate(text) == rate_bps


@pytest.mark.parametrize("text", ["", "fast", "-5M", "5 MB", "1e6", "5Mi"])
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a rate"):
        units.parse_rate(text)


@given(st.integers(min_value=0, max_value=10**13))
def test_a_written_rate_reads_back_within_three_digits(rate_bps: int) -> None:
    assert units.parse_rate(units.format_bps(rate_bps)) == pytest.approx(rate_bps, rel=0.006)


@pytest.mark.parametrize(
    ("text", "duration_us"), [("100ms", 100_000), ("10s", 10_000_000), ("1.5h", 5_400_000_000), ("7d", 604_800_000_000)]
)
def test_durations_are_read(text: str, duration_us: int) -> None:
    assert units.parse_duration_us(text) == duration_us


def test_rates_and_durations_are_written_for_people() -> None:
    assert units.format_duration_us(12_300) == "12.3 ms"
    assert units.format_duration_us(7) == "7 us"
    assert units.format_bps(999_999) == "1000 kbit/s"
    assert units.format_duration_us(999_999) == "1000 ms"
    assert units.format_duration_us(1234 * 86400 * 10**6) == "1234 d"


@given(st.integers(min_value=0, max_value=4_000_000_000_000_000))
def test_times_survive_rfc3339(time_us: int) -> None:
    moment = datetime.fromisoformat(units.rfc3339(time_us))
    assert (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) == time_us


def test_a_lease_ends_at_its_moment_and_is_renewed_at_half() -> None:
    until_us = leases.expiry_us(MOMENT_US, 10_000_000)
    assert leases.is_valid(until_us, until_us - 1)
    assert not leases.is_valid(until_us, until_us)
    assert not leases.renewal_due(MOMENT_US, until_us, MOMENT_US + 4_999_999)
    assert leases.renewal_due(MOMENT_US, until_us, MOMENT_US + 5_000_000)
    assert leases.expiry_us(MOMENT_US, 10_000_000, MOMENT_US + 3) == MOMENT_US + 3


async def test_sleepers_of_a_fake_clock_wake_in_order_at_their_moments() -> None:
    clock = FakeClock(MOMENT_US)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps_s: float) -> None:
        for nap_s in naps_s:
            await clock.sleep(nap_s)
            woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper("a", 2.0, 2.0)), asyncio.create_task(sleeper("b", 3.0))]
    await clock.advance(1.0)
    assert woken == []
    await clock.advance(4.0)
    assert woken == [("a", 2.0), ("b", 3.0), ("a", 4.0)]
    assert clock.now_us() == MOMENT_US + 5_000_000
    await asyncio.gather(*tasks)


def test_the_catalogue_knows_every_message_and_its_class() -> None:
    real = catalogue.load()
    assert len(real.topics()) >= 14
    for topic in real.topics():
        assert real.message_class(topic.name).DESCRIPTOR.full_name == topic.message
    assert real.topic("chart.measurement.v1").retention_ms == 7 * 86400 * 1000
    assert real.topic("chart.policy.v1").retention_ms is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{message: a, key: k, partitions: 1, cleanup: shred, dlq: true}", "must be compact or delete"),
        ("{message: a, key: k, partitions: 1, cleanup: compact, retention: 1d, dlq: true}", "retention belongs"),
        ("{message: a, key: k, partitions: 1, cleanup: delete, dlq: true}", "retention belongs"),
    ],
)
def test_a_wrong_catalogue_is_refused(entry: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        catalogue.parse(f"topics:\n  t: {entry}\n")


def test_a_problem_document_has_what_is_known_and_nothing_else() -> None:
    problem = ProblemError(422, "Invalid value", "too fast", field="guaranteed_bps", ceiling=5, suggestions=["5"])
    assert problem.document("/v1/rate-requests") == {
        "type": "urn:chart:problem:invalid-value",
        "title": "Invalid value",
        "status": 422,
        "detail": "too fast",
        "instance": "/v1/rate-requests",
        "field": "guaranteed_bps",
        "ceiling": 5,
        "suggestions": ["5"],
    }


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHART_KAFKA_BOOTSTRAP", "broker:9092")
    monkeypatch.setenv("CHART_DATABASE_POOL_SIZE", "3")
    settings = BaseServiceSettings()
    assert (settings.kafka_bootstrap, settings.database_pool_size) == ("broker:9092", 3)
