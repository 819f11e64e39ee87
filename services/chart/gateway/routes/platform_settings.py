"""/v1/platform-settings: what operators set for the whole platform; one item, followed by the services at once."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response

from chart.gateway import platform_mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import IfMatch, expected_revision, tag
from chart.gateway.schemas.platform_settings import PlatformSettings, PlatformSettingsBody, PlatformSettingsPage
from chart.v1 import platform_settings_pb2, registry_pb2

router = APIRouter(prefix="/v1", tags=["policy"], responses=responses(401, 403, 422, 429, 500, 503))

SettingsId = Annotated[Literal["platform"], Path(alias="id", description="There is one for the whole platform.")]


async def _settings(gateway: Gateway) -> platform_settings_pb2.PlatformSettings:
    with problems("registry"):
        answer = await gateway.backends.registry.GetPlatformSettings(registry_pb2.GetPlatformSettingsRequest())
    return answer.settings


@router.get("/platform-settings", summary="List settings of the platform")
async def list_settings(gateway: Context, _principal: AnyRole) -> PlatformSettingsPage:
    """The one item, `platform`."""
    return PlatformSettingsPage(items=[platform_mapping.settings(await _settings(gateway))], next_cursor=None)


@router.get("/platform-settings/{id}", summary="Settings of the platform")
async def get_settings(
    _settings_id: SettingsId, response: Response, gateway: Context, _principal: AnyRole
) -> PlatformSettings:
    """What operators set; null is what the services were started with."""
    message = await _settings(gateway)
    tag(response, message.revision)
    return platform_mapping.settings(message)


@router.put("/platform-settings/{id}", summary="Set the platform", responses=responses(400, 409, 412, 413))
async def put_settings(
    _settings_id: SettingsId,
    body: PlatformSettingsBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> PlatformSettings:
    """Replaces all of them: what is null or left out is from now on what the services were started with. Services and
    sensor pods follow within seconds, without a restart, and keep it over every restart.
    """
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = (await _settings(gateway)).revision
    call = registry_pb2.PutPlatformSettingsRequest(
        settings=platform_mapping.settings_message(body), expected_revision=expected_revision(if_match, current)
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutPlatformSettings(call, metadata=acting(principal.subject))
    tag(response, answer.settings.revision)
    return platform_mapping.settings(answer.settings)
