"""/v1/policies and /v1/sensing-configurations: configured by operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import mapping
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, IfMatch, Limit, expected_revision, page, tag
from chart.gateway.live import POLICY
from chart.gateway.schemas.common import ENTITY_ID_PATTERN, NODE_ID_PATTERN
from chart.gateway.schemas.network import (
    Policy,
    PolicyBody,
    PolicyPage,
    SensingConfiguration,
    SensingConfigurationBody,
    SensingConfigurationPage,
)
from chart.v1 import policy_pb2, registry_pb2, sensing_configuration_pb2

router = APIRouter(prefix="/v1", responses=responses(401, 403, 422, 429, 500, 503))

PolicyId = Annotated[
    str,
    Path(
        alias="id",
        pattern=NODE_ID_PATTERN,
        max_length=names.NODE_LENGTH_MAX,
        description="A node's id, or `default` for every node without a policy of its own.",
        examples=["default"],
    ),
]
ConfigurationId = Annotated[
    str,
    Path(alias="id", pattern=ENTITY_ID_PATTERN, description="Chosen by the caller.", examples=["alpha-bravo-ping"]),
]


async def known_policies(gateway: Gateway) -> list[policy_pb2.Policy]:
    """Every policy: from the registry, or from the stream while the registry is away."""
    try:
        with problems("registry"):
            answer = await gateway.backends.registry.ListPolicies(registry_pb2.ListPoliciesRequest())
    except ProblemError as problem:
        if problem.status != 503 or POLICY in gateway.followers.missing:
            raise
        return list(gateway.live.policies.values())
    return list(answer.policies)


def _default_of(known: list[policy_pb2.Policy]) -> policy_pb2.Policy | None:
    return next((policy for policy in known if policy.id == "default"), None)


@router.get("/policies", tags=["policy"], summary="List policies")
async def list_policies(
    gateway: Context, _principal: AnyRole, limit: Limit = 1000, cursor: Cursor = None
) -> PolicyPage:
    """By id."""
    known = await known_policies(gateway)
    shown, next_cursor = page(known, lambda policy: policy.id, limit, cursor)
    default = _default_of(known)
    return PolicyPage(items=[mapping.policy(policy, default) for policy in shown], next_cursor=next_cursor)


@router.get("/policies/{id}", tags=["policy"], summary="One policy", responses=responses(404))
async def get_policy(policy_id: PolicyId, response: Response, gateway: Context, _principal: AnyRole) -> Policy:
    """A node without a policy of its own follows `default`."""
    known = await known_policies(gateway)
    for policy in known:
        if policy.id == policy_id:
            tag(response, policy.revision)
            return mapping.policy(policy, _default_of(known))
    raise ProblemError(
        404,
        "Not found",
        f"Policy {policy_id} does not exist.",
        field="id",
        suggestions=["A node without a policy of its own follows /v1/policies/default."],
    )


@router.put(
    "/policies/{id}",
    tags=["policy"],
    summary="Set a policy",
    responses={**responses(400, 409, 412, 413), 201: {"model": Policy, "description": "Created."}},
)
async def put_policy(
    policy_id: PolicyId,
    body: PolicyBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> Policy:
    """Reaches every agent within 2 s. With `enforcement: off` every flow returns to its default congestion control.
    What a node's policy leaves out follows `default`.
    """
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {policy.id: policy.revision for policy in await known_policies(gateway)}.get(policy_id)
    call = registry_pb2.PutPolicyRequest(
        policy=mapping.policy_message(policy_id, body),
        expected_revision=expected_revision(if_match, current),
        keep_customer_weights=body.customer_weights is None,
        keep_default_congestion=body.default_congestion is None,
        keep_ipfix_collector=body.ipfix_collector is None,
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutPolicy(call, metadata=acting(principal.subject))
    tag(response, answer.policy.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/policies/{policy_id}"
    return mapping.policy(answer.policy, _default_of(await known_policies(gateway)))


@router.delete(
    "/policies/{id}",
    tags=["policy"],
    status_code=204,
    summary="Remove a node's policy",
    responses=responses(404, 409),
)
async def delete_policy(policy_id: PolicyId, gateway: Context, principal: Operator) -> None:
    """The node follows `default` from then on; `default` itself stays."""
    with problems("registry"):
        await gateway.backends.registry.DeletePolicy(
            registry_pb2.DeletePolicyRequest(id=policy_id), metadata=acting(principal.subject)
        )


async def _configurations(
    gateway: Gateway, source_node: str = ""
) -> list[sensing_configuration_pb2.SensingConfiguration]:
    call = registry_pb2.ListSensingConfigurationsRequest(source_node=source_node)
    with problems("registry"):
        return list((await gateway.backends.registry.ListSensingConfigurations(call)).configurations)


@router.get("/sensing-configurations", tags=["sensing"], summary="List sensing configurations")
async def list_configurations(
    gateway: Context,
    _principal: AnyRole,
    source: Annotated[
        str | None,
        Query(
            pattern=NODE_ID_PATTERN,
            max_length=names.NODE_LENGTH_MAX,
            description="Only configurations that this node's sensor pod runs.",
        ),
    ] = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> SensingConfigurationPage:
    """By id."""
    found = await _configurations(gateway, source or "")
    shown, next_cursor = page(found, lambda item: item.id, limit, cursor)
    return SensingConfigurationPage(
        items=[mapping.sensing_configuration(item) for item in shown], next_cursor=next_cursor
    )


@router.get(
    "/sensing-configurations/{id}", tags=["sensing"], summary="One sensing configuration", responses=responses(404)
)
async def get_configuration(
    configuration_id: ConfigurationId, response: Response, gateway: Context, _principal: AnyRole
) -> SensingConfiguration:
    """What is measured, and for which owner."""
    for item in await _configurations(gateway):
        if item.id == configuration_id:
            tag(response, item.revision)
            return mapping.sensing_configuration(item)
    raise ProblemError(404, "Not found", f"Sensing configuration {configuration_id} does not exist.", field="id")


@router.put(
    "/sensing-configurations/{id}",
    tags=["sensing"],
    summary="Set a sensing configuration",
    responses={**responses(400, 409, 412, 413), 201: {"model": SensingConfiguration, "description": "Created."}},
)
async def put_configuration(
    configuration_id: ConfigurationId,
    body: SensingConfigurationBody,
    response: Response,
    gateway: Context,
    principal: Operator,
    if_match: IfMatch = None,
) -> SensingConfiguration:
    """The sensor pod of the source node merges equal measurements into one."""
    current = None
    if if_match is not None and if_match.strip() == "*":
        current = {item.id: item.revision for item in await _configurations(gateway)}.get(configuration_id)
    call = registry_pb2.PutSensingConfigurationRequest(
        configuration=mapping.sensing_configuration_message(configuration_id, body, principal.subject),
        expected_revision=expected_revision(if_match, current),
    )
    with problems("registry"):
        answer = await gateway.backends.registry.PutSensingConfiguration(call, metadata=acting(principal.subject))
    tag(response, answer.configuration.revision)
    if answer.created:
        response.status_code = 201
        response.headers["Location"] = f"/v1/sensing-configurations/{configuration_id}"
    return mapping.sensing_configuration(answer.configuration)


@router.delete(
    "/sensing-configurations/{id}",
    tags=["sensing"],
    status_code=204,
    summary="Remove a sensing configuration",
    responses=responses(404, 409),
)
async def delete_configuration(configuration_id: ConfigurationId, gateway: Context, principal: Operator) -> None:
    """Stored results are kept."""
    call = registry_pb2.DeleteSensingConfigurationRequest(id=configuration_id)
    with problems("registry"):
        await gateway.backends.registry.DeleteSensingConfiguration(call, metadata=acting(principal.subject))
