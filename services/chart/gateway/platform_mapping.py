"""Platform settings between the interface definitions (protobuf) and the REST shapes; names are the same. Pure."""

from __future__ import annotations

from chart.common.platform_settings import KEY
from chart.gateway.schemas.platform_settings import ApplicationLimits, PlatformSettings, PlatformSettingsBody
from chart.v1 import platform_settings_pb2


def settings_message(body: PlatformSettingsBody) -> platform_settings_pb2.PlatformSettings:
    """What the registry stores."""
    message = platform_settings_pb2.PlatformSettings()
    for name, value in body:
        if value is not None and name != "application_limits":
            setattr(message, name, value)
    if body.application_limits is not None:
        # Present although it may hold nobody.
        message.application_limits.SetInParent()
        for owner, limits in body.application_limits.items():
            stated = {name: value for name, value in limits if value is not None}
            message.application_limits.owners[owner].CopyFrom(platform_settings_pb2.ApplicationLimits(**stated))
    return message


def settings(message: platform_settings_pb2.PlatformSettings) -> PlatformSettings:
    """The settings as REST shows them."""
    found = {field.name: value for field, value in message.ListFields() if field.message_type is None}
    limits = None
    if message.HasField("application_limits"):
        limits = {
            owner: ApplicationLimits(**{field.name: value for field, value in one.ListFields()})
            for owner, one in sorted(message.application_limits.owners.items())
        }
    values = {name: found.get(name) for name in PlatformSettings.model_fields}
    return PlatformSettings.model_validate(
        {**values, "id": KEY, "revision": message.revision, "application_limits": limits}
    )
