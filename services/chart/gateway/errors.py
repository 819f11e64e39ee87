"""Errors as problem documents (RFC 9457) that name the field and what would be accepted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from chart.common.problems import MEDIA_TYPE, ProblemError
from chart.gateway.schemas.common import Problem

_log = structlog.get_logger("chart.gateway")


class GatewayError(ProblemError):
    """A problem with HTTP headers of its own (``WWW-Authenticate``, ``Retry-After``, ``Allow``)."""

    def __init__(self, status: int, title: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any):
        super().__init__(status, title, detail, **more)
        self.headers = dict(headers or {})


def unauthorised(detail: str, *, invalid: bool = True) -> GatewayError:
    """401: no token, or one that is not accepted (RFC 6750 section 3)."""
    challenge = 'Bearer realm="chart"'
    if invalid:
        challenge += f', error="invalid_token", error_description="{detail}"'
    return GatewayError(
        401,
        "Unauthorized",
        detail,
        field="Authorization",
        headers={"WWW-Authenticate": challenge},
        suggestions=["Send Authorization: Bearer with a token of the configured issuer."],
    )


def forbidden(detail: str, *, roles: Sequence[str] = ()) -> GatewayError:
    """403: known, but may not."""
    return GatewayError(
        403,
        "Forbidden",
        detail,
        headers={"WWW-Authenticate": 'Bearer realm="chart", error="insufficient_scope"'},
        suggestions=[f"Use a token with one of the roles {', '.join(roles)}."] if roles else [],
    )


def away(backend: str, *, retry_after_s: int = 2) -> GatewayError:
    """503: a service or stream that the answer needs cannot be reached."""
    return GatewayError(
        503,
        "Service unavailable",
        f"{backend} is unreachable. Traffic is not affected; try again in {retry_after_s} s.",
        headers={"Retry-After": str(retry_after_s)},
        kind="backend-unavailable",
    )


def problem_response(
    document: dict[str, Any], headers: Mapping[str, str] | None = None, *, request_id: str = ""
) -> JSONResponse:
    """The answer that carries a problem document."""
    if request_id:
        document = {**document, "request_id": request_id}
    return JSONResponse(document, document["status"], headers=dict(headers or {}), media_type=MEDIA_TYPE)


def _answer(request: Request, error: ProblemError) -> JSONResponse:
    request_id = getattr(request.state, "request_id", "")
    if error.status == 403 and request.url.path.startswith("/v1"):
        _log.info("refused", path=request.url.path, detail=error.detail)
    headers = getattr(error, "headers", None)
    return problem_response(error.document(request.url.path), headers, request_id=request_id)


def _number(value: object) -> float | None:
    """A bound that JSON can carry; pydantic gives numbers for numeric bounds only."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _bounds(error: Mapping[str, Any]) -> tuple[float | None, float | None]:
    context = error.get("ctx", {})
    kind = str(error["type"])
    floor, ceiling = context.get("floor"), context.get("ceiling")
    if kind in ("greater_than_equal", "greater_than"):
        floor = context.get("ge", context.get("gt"))
    elif kind in ("less_than_equal", "less_than"):
        ceiling = context.get("le", context.get("lt"))
    elif kind in ("string_too_short", "too_short"):
        floor = context.get("min_length")
    elif kind in ("string_too_long", "too_long"):
        ceiling = context.get("max_length")
    return _number(floor), _number(ceiling)


def _suggestions(error: Mapping[str, Any]) -> list[str]:
    context = error.get("ctx", {})
    if "suggestions" in context:
        return [str(text) for text in context["suggestions"]]
    match error["type"]:
        case "literal_error":
            return [f"Use one of {context['expected']}."]
        case "string_pattern_mismatch":
            return [f"It must match {context['pattern']}."]
        case "extra_forbidden":
            return ["Remove it; /openapi.json lists the fields."]
        case "missing":
            return ["This field is required."]
        case "timezone_aware":
            return ["Write the time with an offset, for example 2026-03-01T09:30:00Z."]
    return []


def _location(error: Mapping[str, Any]) -> str:
    """Name of the field, parameter or header: "guaranteed_bps", "tags.site"; "body" when it is the body itself."""
    place, *rest = [str(part) for part in error["loc"]] or ["body"]
    named = error.get("ctx", {}).get("field")
    if named:
        rest = [*rest, str(named)]
    if error["type"] == "json_invalid" or not rest:
        return place
    return ".".join(rest)


def validation_problem(errors: Sequence[Mapping[str, Any]]) -> ProblemError:
    """The problem of a request that does not fit its schema: the first fault as detail, the others as suggestions."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return ProblemError(
            400, "Malformed JSON", f"The body is not JSON: {first.get('ctx', {}).get('error', 'it ends early')}.",
            field="body",
        )  # fmt: skip
    field = _location(first)
    floor, ceiling = _bounds(first)
    message = str(first["msg"])
    others = [f"Another error: {_location(error)}: {error['msg']}." for error in errors[1:6]]
    return ProblemError(
        422,
        "Invalid request",
        f"{field}: {message[:1].lower()}{message[1:]}.",
        field=field,
        floor=floor,
        ceiling=ceiling,
        suggestions=[*_suggestions(first), *others],
        kind="invalid-value",
    )


def too_large(limit_bytes: int) -> ProblemError:
    """413: the body is over the limit."""
    return ProblemError(
        413,
        "Body too large",
        f"The body is larger than {limit_bytes} bytes.",
        field="body",
        ceiling=limit_bytes,
        suggestions=[f"Send at most {limit_bytes} bytes."],
    )


def http_problem(error: HTTPException, path: str, allowed: Sequence[str], body_limit_bytes: int) -> ProblemError:
    """What the framework itself refuses: unknown paths, wrong methods, bodies that cannot be read."""
    status = HTTPStatus(error.status_code)
    match status:
        case HTTPStatus.NOT_FOUND:
            return ProblemError(
                404, "Not found", f"No resource at {path}.", suggestions=["/openapi.json lists every path."]
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return GatewayError(
                405,
                "Method not allowed",
                f"{path} does not support this method.",
                headers={"Allow": ", ".join(allowed)},
                suggestions=[f"Use {' or '.join(allowed)}."] if allowed else [],
            )
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return too_large(body_limit_bytes)
        case HTTPStatus.BAD_REQUEST:
            return ProblemError(400, "Bad request", "The body could not be read.", field="body")
    return ProblemError(status.value, status.phrase, str(error.detail))


def unsupported_media_type() -> ProblemError:
    """415: a body that is not declared as JSON."""
    return ProblemError(
        415,
        "Unsupported media type",
        "The body must be declared as JSON.",
        field="Content-Type",
        suggestions=["Send Content-Type: application/json."],
    )


def install(app: FastAPI, allowed: Callable[[str], Sequence[str]], body_limit_bytes: int) -> None:
    """Answer every error of the application with a problem document."""

    async def on_problem(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ProblemError)
        return _answer(request, error)

    async def on_invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = media_type == "application/json" or (media_type.startswith("application/") and "+json" in media_type)
        if any(tuple(entry["loc"]) == ("body",) for entry in error.errors()) and not is_json and error.body is not None:
            return _answer(request, unsupported_media_type())
        return _answer(request, validation_problem(error.errors()))

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        path = request.url.path
        return _answer(request, http_problem(error, path, allowed(path), body_limit_bytes))

    app.add_exception_handler(ProblemError, on_problem)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)


def internal_error_body(path: str, request_id: str) -> bytes:
    """500: the log has the rest; nothing about the inside goes out."""
    document = ProblemError(500, "Internal error", f"Internal error; see {request_id} in the gateway's log.").document(
        path
    )
    return json.dumps({**document, "request_id": request_id}).encode()


_DESCRIPTIONS = {
    400: "The body is not JSON.",
    401: "No token, or one that is not accepted.",
    403: "The token's roles do not permit this call.",
    404: "The resource does not exist, or belongs to another owner.",
    409: "Conflict: not enough capacity, no path, resource in use, or Idempotency-Key used for another body.",
    412: "The revision of the resource differs from If-Match.",
    413: "The body is larger than 1 MB.",
    415: "The body is not declared as application/json.",
    422: "A value is not accepted; `field`, `floor`, `ceiling` and `suggestions` name what would be.",
    429: "Too many requests; retry after Retry-After seconds.",
    500: "Internal error of the gateway.",
    503: "A service behind the gateway is unavailable; retry after Retry-After seconds.",
}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the problems that a route really answers with."""
    entries: dict[int | str, dict[str, Any]] = {}
    for status in sorted({*statuses}):
        entry: dict[str, Any] = {
            "description": _DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        if status in (429, 503):
            entry["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
        if status == 401:
            entry["headers"] = {"WWW-Authenticate": {"description": "RFC 6750.", "schema": {"type": "string"}}}
        entries[status] = entry
    return entries


__all__ = ["GatewayError", "Problem", "ProblemError", "away", "forbidden", "install", "responses", "unauthorised"]
