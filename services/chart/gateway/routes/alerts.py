"""/v1/alert-rules and /v1/alerts: when somebody is told, and what they were told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from chart.common.problems import ProblemError
from chart.gateway import mapping_sensing
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import IfMatch, expected_revision, tag
from chart.gateway.schemas.common import LABEL_PATTERN
from chart.gateway.schemas.sensing import AlertRule, AlertRuleBody, AlertRules, Alerts
from chart.v1 import archive_pb2

# Part of the router in history.py.
router = APIRouter(tags=["sensing"], responses=responses(401, 403, 422, 429, 500, 503))

RuleId = Annotated[
    str, Path(alias="id", pattern=LABEL_PATTERN, max_length=63, description="DNS label.", examples=["slow-path"])
]


async def _rules(gateway: Gateway) -> list[archive_pb2.AlertRule]:
    with problems("archiver"):
        return list((await gateway.backends.archive.ListAlertRules(archive_pb2.ListAlertRulesRequest())).rules)


@router.get("/alert-rules", summary="Alert rules")
async def list_alert_rules(gateway: Context, _principal: AnyRole) -> AlertRules:
    """By id."""
    return AlertRules(items=[mapping_sensing.alert_rule(rule) for rule in await _rules(gateway)])


@router.get("/alert-rules/{id}", summary="One alert rule", responses=responses(404))
async def get_alert_rule(rule_id: RuleId, response: Response, gateway: Context, _principal: AnyRole) -> AlertRule:
    """The rule's condition, paths and threshold."""
    for rule in await _rules(gateway):
        if rule.id == rule_id:
            tag(response, rule.revision)
            return mapping_sensing.alert_rule(rule)
    raise ProblemError(404, "Not found", f"Alert rule {rule_id} does not exist.", field="id")


@router.put(
    "/alert-rules/{id}",
    summary="Set an alert rule",
    responses={**responses(400, 409, 412, 413), 201: {"model": AlertRule, "description": "Created."}},
)
async def put_alert_rule(
    rule_id: RuleId,
    body: AlertRuleBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> AlertRule:
    """A rule without nodes applies to every path of its metric, with one alert per path."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {rule.id: rule.revision for rule in await _rules(gateway)}.get(rule_id)
    request = archive_pb2.PutAlertRuleRequest(
        rule=mapping_sensing.alert_rule_message(rule_id, body),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.PutAlertRule(request, metadata=acting(principal.subject))
    tag(response, answer.rule.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/alert-rules/{rule_id}"
    return mapping_sensing.alert_rule(answer.rule)


@router.delete("/alert-rules/{id}", status_code=204, summary="Remove an alert rule", responses=responses(404))
async def delete_alert_rule(rule_id: RuleId, gateway: Context, principal: Operator) -> None:
    """Its alerts are resolved."""
    with problems("archiver"):
        await gateway.backends.archive.DeleteAlertRule(
            archive_pb2.DeleteAlertRuleRequest(id=rule_id), metadata=acting(principal.subject)
        )


@router.get("/alerts", summary="Alerts")
async def list_alerts(
    gateway: Context,
    _principal: AnyRole,
    firing: Annotated[bool, Query(description="Only alerts that are firing.")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Alerts:
    """Newest first, including resolved alerts."""
    with problems("archiver"):
        answer = await gateway.backends.archive.ListAlerts(archive_pb2.ListAlertsRequest(firing=firing, limit=limit))
    return Alerts(items=[mapping_sensing.alert(one) for one in answer.alerts])
