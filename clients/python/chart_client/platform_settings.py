"""Settings of the whole platform."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chart_client.models import Model
from chart_client.resource import Resource, path_of

_PATH = path_of("platform-settings", "platform")


class ApplicationLimits(Model):
    """What an owner's sensing configurations and single runs may take of each sensor pod; None: no limit of its own."""

    configurations: int | None = None
    priority: int | None = None
    period_ms: int | None = None
    one_shots_per_minute: int | None = None
    probe_share: float | None = None


class PlatformSettings(Model):
    """What operators set for the whole platform; None: what the services were started with."""

    id: str = "platform"
    # None: nothing was ever set.
    revision: int | None = None
    oversubscription: float | None = None
    lease_idle_share: float | None = None
    lease_greatest_share: float | None = None
    snapshot_period_s: float | None = None
    probe_share: float | None = None
    application_limits: dict[str, ApplicationLimits] | None = None
    inference_fraction: float | None = None
    inference_active_pairs: int | None = None
    inference_active_valid_s: float | None = None
    inference_active_priority: int | None = None
    authority_unauthorised: str | None = None
    authority_free_available_bps: int | None = None

    def stated(self) -> dict[str, Any]:
        """The fields that `PlatformSettingsResource.put` takes."""
        return self.model_dump(mode="json", exclude={"id", "revision"})


class PlatformSettingsResource(Resource):
    """The one item of these settings."""

    def list(self) -> Iterator[PlatformSettings]:
        """The one item."""
        return self._all(PlatformSettings, path_of("platform-settings"))

    def get(self) -> PlatformSettings:
        """What is set."""
        return self._one(PlatformSettings, "GET", _PATH)

    def put(self, *, revision: int | None = None, **fields: Any) -> PlatformSettings:
        """Replace what is set; fields as in `PlatformSettings.stated`. ``revision``: only if it is still this one."""
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(PlatformSettings, "PUT", _PATH, fields, **headers)
