"""Settings of the platform over REST."""

from __future__ import annotations

from typing import Any

import pytest

from chart.gateway import platform_mapping
from chart.gateway.schemas.platform_settings import PlatformSettingsBody
from support.gateway import World

PATH = "/v1/platform-settings/platform"


async def put(place: World, body: dict[str, Any], role: str = "operator", **headers: str) -> Any:
    return await place.client.put(PATH, json=body, headers={**place.headers(role), **headers})


async def test_they_are_set_read_listed_and_given_back(place: World) -> None:
    first = await place.client.get(PATH, headers=place.headers("viewer"))
    assert first.status_code == 200
    assert {value for name, value in first.json().items() if name not in ("id", "revision")} == {None}
    body = {
        **{"oversubscription": 2, "inference_active_pairs": 0, "authority_unauthorised": "drop"},
        "application_limits": {"*": {"configurations": 100, "probe_share": 0.25}},
    }
    made = await put(place, body, **{"If-Match": first.headers["ETag"]})
    assert made.status_code == 200
    # A zero that is set is not the same as nothing.
    assert (made.json()["oversubscription"], made.json()["inference_active_pairs"]) == (2, 0)
    assert made.json()["application_limits"]["*"] == {
        **{"configurations": 100, "probe_share": 0.25},
        **dict.fromkeys(("priority", "period_ms", "one_shots_per_minute")),
    }
    assert (await put(place, {}, **{"If-Match": first.headers["ETag"]})).status_code == 412
    listed = await place.client.get("/v1/platform-settings", headers=place.headers("viewer"))
    assert listed.json()["items"] == [made.json()]
    emptied = await put(place, {"application_limits": {}})
    assert (emptied.json()["oversubscription"], emptied.json()["application_limits"]) == (None, {})
    assert (await put(place, {})).json()["application_limits"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"oversubscription": 0.5}, "oversubscription"),
        ({"lease_idle_share": 0.6, "lease_greatest_share": 0.5}, "lease_idle_share"),
        ({"probe_share": 0}, "probe_share"),
        ({"authority_unauthorised": "allow"}, "authority_unauthorised"),
        ({"application_limits": {"*": {"pairs": 3}}}, "application_limits"),
        ({"inference_active_pairs": 1.5}, "inference_active_pairs"),
    ],
)
async def test_what_cannot_hold_is_refused_by_field(place: World, body: dict[str, Any], field: str) -> None:
    answer = await put(place, body)
    assert answer.status_code == 422
    assert str(answer.json()["field"]).startswith(field)


async def test_there_is_one_and_operators_set_it(place: World) -> None:
    assert (await put(place, {}, "viewer")).status_code == 403
    assert (await put(place, {}, "application")).status_code == 403
    other = await place.client.get("/v1/platform-settings/alpha", headers=place.headers("viewer"))
    assert other.status_code == 422


def test_every_field_finds_its_way_to_the_message_and_back() -> None:
    body = PlatformSettingsBody.model_validate(
        {
            **{
                "oversubscription": 3.0,
                "lease_idle_share": 0.2,
                "lease_greatest_share": 0.4,
                "snapshot_period_s": 60.0,
            },
            **{"probe_share": 0.02, "inference_fraction": 0.2, "inference_active_pairs": 5},
            **{"inference_active_valid_s": 30.0, "inference_active_priority": 7, "authority_unauthorised": "free"},
            **{"authority_free_available_bps": 1_000_000, "application_limits": {"a": {"priority": 3}}},
        }
    )
    assert all(value is not None for _, value in body)
    shown = platform_mapping.settings(platform_mapping.settings_message(body))
    assert shown.model_dump(exclude={"id", "revision"}) == body.model_dump()
