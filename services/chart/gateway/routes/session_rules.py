"""/v1/session-rules: what nodes ask in band for sessions of a kind; configured by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from chart.common.problems import ProblemError
from chart.gateway import session_rule_mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.schemas.common import NODE_ID_PATTERN
from chart.gateway.schemas.session_rules import SessionRule, SessionRuleBody, SessionRulePage
from chart.v1 import registry_pb2, session_rule_pb2

router = APIRouter(prefix="/v1", tags=["session rules"], responses=responses(401, 403, 422, 429, 500, 503))

RuleId = Annotated[
    str,
    Path(
        alias="id",
        pattern=NODE_ID_PATTERN,
        max_length=63,
        description="Chosen by the caller; `telephony` and `video` exist from the start.",
        examples=["telephony"],
    ),
]


async def _rules(gateway: Gateway) -> list[session_rule_pb2.SessionRule]:
    with problems("registry"):
        answer = await gateway.backends.registry.ListSessionRules(registry_pb2.ListSessionRulesRequest())
    return list(answer.rules)


def _shown(gateway: Gateway, rule: session_rule_pb2.SessionRule) -> SessionRule:
    return session_rule_mapping.rule(rule, gateway.live.current_states(gateway.clock.now_us()))


@router.get("/session-rules", summary="List session rules")
async def list_rules(
    gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None
) -> SessionRulePage:
    """By id, with the sessions that run under each."""
    shown, next_cursor = page(await _rules(gateway), lambda rule: rule.id, limit, cursor)
    return SessionRulePage(items=[_shown(gateway, rule) for rule in shown], next_cursor=next_cursor)


@router.get("/session-rules/{id}", summary="One session rule", responses=responses(404))
async def get_rule(rule_id: RuleId, response: Response, gateway: Context, _principal: AnyRole) -> SessionRule:
    """With what nodes report of it."""
    for rule in await _rules(gateway):
        if rule.id == rule_id:
            tag(response, rule.revision)
            return _shown(gateway, rule)
    raise ProblemError(404, "Not found", f"Session rule {rule_id} does not exist.", field="id")


@router.put(
    "/session-rules/{id}",
    summary="Set a session rule",
    responses={**responses(400, 409, 412, 413), 201: {"model": SessionRule, "description": "Created."}},
)
async def put_rule(
    rule_id: RuleId,
    body: SessionRuleBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> SessionRule:
    """Reaches the nodes within 2 s: running sessions ask by it with their next packet, or cease to."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {rule.id: rule.revision for rule in await _rules(gateway)}.get(rule_id)
    call = registry_pb2.PutSessionRuleRequest(
        rule=session_rule_mapping.rule_message(rule_id, body), expected_revision=expected_revision(if_match, current)
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutSessionRule(call, metadata=acting(principal.subject))
    tag(response, answer.rule.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/session-rules/{rule_id}"
    return _shown(gateway, answer.rule)


@router.delete("/session-rules/{id}", status_code=204, summary="Remove a session rule", responses=responses(404, 409))
async def delete_rule(rule_id: RuleId, gateway: Context, principal: Operator) -> None:
    """Its sessions give their rates back. Built-in rules can only be disabled."""
    call = registry_pb2.DeleteSessionRuleRequest(id=rule_id)
    with problems("registry"):
        await gateway.backends.registry.DeleteSessionRule(call, metadata=acting(principal.subject))
