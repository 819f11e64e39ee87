"""What operators may set for the whole platform."""

from __future__ import annotations

import importlib
from typing import Any

import annotated_types
import pytest
from pydantic_settings import BaseSettings

from chart.common.platform_settings import KEY, applied
from chart.common.rpc_errors import RefusalError
from chart.registry.platform_settings import BOUNDS, platform_settings
from chart.registry.probe_leases import budget_of
from chart.reservations.settings import ReservationsSettings
from chart.v1.platform_settings_pb2 import ApplicationLimits, ApplicationLimitsByOwner, PlatformSettings

MODELS = ("reservations", "archiver", "sensor_pod", "inference", "authority")


def models() -> list[type[BaseSettings]]:
    found = []
    for service in MODELS:
        module = importlib.import_module(f"chart.{service}.settings")
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, BaseSettings) and one.__module__ == module.__name__
        ]
    return found


def test_every_field_is_the_setting_of_one_service() -> None:
    names = {field.name for field in PlatformSettings.DESCRIPTOR.fields} - {"id", "revision"}
    holders = {name: [model for model in models() if name in model.model_fields] for name in names}
    assert {name: len(found) for name, found in holders.items()} == dict.fromkeys(names, 1)


@pytest.mark.parametrize("name", BOUNDS)
def test_no_bound_is_wider_than_the_services_own(name: str) -> None:
    (model,) = (one for one in models() if name in one.model_fields)
    least, most = BOUNDS[name]
    for one in model.model_fields[name].metadata:
        if isinstance(one, annotated_types.Ge):
            assert least >= one.ge  # type: ignore[operator]
        elif isinstance(one, annotated_types.Gt):
            assert least > one.gt  # type: ignore[operator]
        elif isinstance(one, annotated_types.Le):
            assert most <= one.le  # type: ignore[operator]


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"oversubscription": 0.9}, "oversubscription"),
        ({"oversubscription": float("nan")}, "oversubscription"),
        ({"inference_active_valid_s": 5}, "inference_active_valid_s"),
        ({"authority_unauthorised": "all"}, "authority_unauthorised"),
        ({"lease_idle_share": 0.5, "lease_greatest_share": 0.2}, "lease_idle_share"),
        ({"id": "alpha"}, "id"),
        (
            {"application_limits": ApplicationLimitsByOwner(owners={"a": ApplicationLimits(probe_share=2)})},
            "application_limits.a.probe_share",
        ),
        (
            {"application_limits": ApplicationLimitsByOwner(owners={"x" * 129: ApplicationLimits()})},
            "application_limits",
        ),
    ],
)
def test_what_cannot_hold_is_refused_by_field(fields: dict[str, Any], at_fault: str) -> None:
    with pytest.raises(RefusalError) as refused:
        platform_settings(PlatformSettings(**fields))
    assert refused.value.refusal.field == at_fault


def test_what_is_set_goes_before_what_a_service_was_started_with() -> None:
    started = ReservationsSettings(oversubscription=3.0, lease_idle_share=0.3)
    assert applied(started, PlatformSettings()) is started
    now = applied(started, platform_settings(PlatformSettings(oversubscription=1, snapshot_period_s=5, revision=9)))
    assert (now.oversubscription, now.lease_idle_share) == (1, 0.3)
    assert platform_settings(PlatformSettings(revision=9)) == PlatformSettings(id=KEY)


def test_leases_follow_the_share_of_probes() -> None:
    assert budget_of(100_000_000, 0.02) == 2 * budget_of(100_000_000, 0.01)
