"""The application: routes, errors, OpenAPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from chart.gateway import errors
from chart.gateway.context import Gateway
from chart.gateway.forwarded import Forwarded
from chart.gateway.middleware import Envelope
from chart.gateway.routes import (
    authorisations,
    callbacks,
    events,
    history,
    identities,
    links,
    meshes,
    next_hops,
    nodes,
    observed,
    operations,
    overlay,
    pair_groups,
    paths,
    platform_settings,
    policies,
    quotas,
    rate_requests,
    session,
    session_rules,
    tenants,
    tunnels,
)
from chart.gateway.settings import GatewaySettings
from chart.gateway.web import Dashboard

VERSION = "0.1.0"

_DESCRIPTION = """CHART gives applications an explicit rate and makes the network keep it.

Rates are integers in bit/s, IP headers included; times are RFC 3339 in UTC; JSON is snake_case. Errors are problem
documents (RFC 9457) that name the field at fault and what would be accepted.
"""
_TAGS = [
    {"name": "rate requests", "description": "Request a rate, follow it, release it."},
    {"name": "callbacks", "description": "Signed POSTs to applications about changes of their requests."},
    {"name": "network", "description": "Nodes and links with their live state."},
    {"name": "authorisations", "description": "In-band authorisations and signed receipts."},
    {"name": "identities", "description": "Enrolment and revocation of identities, neighbouring domains, next hops."},
    {"name": "overlay", "description": "Paths that pass failed links: routes, traces, what happened."},
    {"name": "policy", "description": "Enforcement mode, link rate controller, limits."},
    {"name": "session rules", "description": "What nodes ask in band for sessions of a kind."},
    {"name": "sensing", "description": "Sensing configurations, runs, estimates."},
    {"name": "tunnels", "description": "Elastic tunnels: a target rate over ordinary TCP connections."},
    {"name": "history", "description": "Measurements over time."},
    {"name": "events", "description": "Live events in one stream."},
    {"name": "session", "description": "Who is signed in."},
    {"name": "development", "description": "Tokens on a development platform; absent in production."},
    {"name": "operations", "description": "Health and metrics."},
]


def create_app(settings: GatewaySettings) -> FastAPI:
    """The application without what stands behind it; `attach` that before the first request."""
    app = FastAPI(
        title="CHART gateway",
        version=VERSION,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # The envelope makes the server's span, so that health checks and event streams make none.
        telemetry={"tracing": False, "metrics": False},
        generate_unique_id_function=lambda route: route.name,
    )
    modules = (
        *(authorisations, identities, next_hops),
        *(rate_requests, callbacks, nodes, links, paths, overlay, policies, platform_settings, meshes),
        *(session_rules, tenants, quotas, tunnels),
        *(history, pair_groups, observed, events, session, operations),
    )
    routers = [*(module.router for module in modules), *([session.development] if settings.development else [])]
    for router in routers:
        app.include_router(router)
    errors.install(app, lambda path: allowed_methods(routers, path), settings.body_limit_bytes)
    app.router.default = Dashboard(settings.web_dir)
    app.add_middleware(Envelope, body_limit_bytes=settings.body_limit_bytes)
    # The last is the first that a request meets.
    app.add_middleware(Forwarded, forwarders=settings.trusted_forwarders)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def allowed_methods(routers: Sequence[APIRouter], path: str) -> list[str]:
    """Methods that some route has for this path."""
    methods: set[str] = set()
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.path_regex.match(path):
                methods |= route.methods or set()
    return sorted(methods)


def attach(app: FastAPI, gateway: Gateway) -> None:
    """Give the application what its routes work with."""
    app.state.gateway = gateway


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document; the problem document's schema is there although no route returns it by type."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            tags=app.openapi_tags,
            routes=app.routes,
        )
        schemas = document["components"]["schemas"]
        schemas.setdefault("Problem", errors.Problem.model_json_schema())
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        app.openapi_schema = document
    return app.openapi_schema
