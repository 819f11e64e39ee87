"""/healthz, /readyz, /metrics: for supervisors and scrapers; open, because they listen where the gateway does."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from chart.common.health import Check, run_checks
from chart.gateway.context import Context, Gateway

router = APIRouter(tags=["operations"])


def checks(gateway: Gateway) -> dict[str, Check]:
    """What the gateway needs to answer everything."""

    def backend(name: str) -> Check:
        return lambda: gateway.backends.check(name)

    async def streams() -> None:
        if gateway.followers.missing:
            msg = f"not read yet: {', '.join(gateway.followers.missing)}"
            raise RuntimeError(msg)

    return {**{name: backend(name) for name in gateway.backends.names}, "streams": streams}


@router.get("/healthz", summary="Liveness")
async def healthz() -> dict[str, str]:
    """ok while the process responds."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    summary="Readiness",
    responses={
        503: {
            "description": "Names the dependency that is unreachable.",
            "content": {"application/json": {"schema": {}}},
        }
    },
)
async def readyz(gateway: Context) -> dict[str, Any]:
    """Whether the services, streams and archive behind the gateway are reachable. Without them REST works in part."""
    outcome = await run_checks(checks(gateway))
    ready = all(words == "ok" for words in outcome.values())
    body = {"status": "ok" if ready else "not ready", "checks": outcome}
    return body if ready else JSONResponse(body, 503)  # type: ignore[return-value]


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response)
async def metrics() -> Response:
    """Text format."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
