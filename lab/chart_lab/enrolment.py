"""Enrolment of a lab's nodes at the authority of the local platform, as an operator does it: a one-time token for each
node, which its agent exchanges for a certificate; and the end of these identities with the lab.
"""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx

from chart.common.files import write_private
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.platform.settings import PlatformSettings
from chart_lab.programs import program

TOKEN_FILE = "enrolment-token"  # noqa: S105 - a file's name
# An agent that the machine keeps waiting for longer than this has other troubles.
TOKEN_LIFE_S = 3600
TIMEOUT_S = 10.0
# A platform that has just come up makes the operator's certificate a moment after it is healthy.
IDENTITY_LIMIT_S = 20.0
OPERATOR = "user-operator"


def token_file(lab: Lab, node: str) -> Path:
    """Where a node's agent finds its one-time token; of no use once the agent has its certificate."""
    return lab.node_directory(node) / TOKEN_FILE


def authority_url() -> str:
    """Where nodes of the lab, and root on this machine, reach the local platform's authority."""
    return PlatformSettings().node_authority_url


def authority_ca() -> Path:
    """Certificate of the local platform's authority."""
    return PlatformSettings().authority_ca


def pod_environment(lab: Lab, node: str) -> dict[str, str]:
    """Settings by which a node's sensor pod uses the certificate that its agent keeps; none without authority."""
    if not lab.authority:
        return {}
    return {
        "CHART_AUTHORITY_URL": lab.authority,
        "CHART_AUTHORITY_CA": str(authority_ca()),
        "CHART_NODE_IDENTITY": str(lab.node_directory(node) / "node"),
    }


def operator_client(url: str) -> httpx.Client:
    """A client with the certificate of this machine's operator, which a development authority keeps ready.

    Raises LabError when there is none.
    """
    ca = authority_ca()
    identity = ca.parent / "identities" / OPERATOR
    certificate = identity.with_suffix(".pem")
    deadline = time.monotonic() + IDENTITY_LIMIT_S
    while ca.exists() and not certificate.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if not certificate.exists():
        raise LabError(f"{certificate} is missing: is the platform up on this machine? `make up`, or --no-enrol")
    try:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(str(certificate), str(identity.with_suffix(".key")))
    except (OSError, ssl.SSLError) as error:
        raise LabError(f"{certificate} cannot be used: {error}") from error
    return httpx.Client(base_url=url, verify=context, timeout=TIMEOUT_S, trust_env=False)


def _ask(client: httpx.Client, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
    try:
        return client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise LabError(f"{method} {path} at the authority {client.base_url}: {error}") from error


def _demand(client: httpx.Client, method: str, path: str, body: dict[str, Any]) -> Any:
    answer = _ask(client, method, path, body)
    if answer.is_error:
        raise LabError(f"the authority refused {path}: {answer.status_code} {answer.text[:500]}")
    return answer.json() if answer.content else None


def enrol(lab: Lab, policy: tuple[str, dict[str, Any]]) -> None:
    """States the policy of the lab's authorisations and puts a one-time token into every node's folder, 0600.

    Raises LabError with the authority's own words when it refuses.
    """
    with operator_client(lab.authority) as client:
        path, body = policy
        _demand(client, "PUT", path, body)
        for node in lab.topology.nodes:
            made = _demand(client, "POST", "/v1/enrolments", {"identity": f"node/{node.name}", "life_s": TOKEN_LIFE_S})
            write_private(token_file(lab, node.name), made["token"].encode())


def revoke(lab: Lab) -> None:
    """Revokes the certificates of a lab's nodes. A lab of the same nodes enrols them again, under the same element ids.

    Raises LabError when the authority cannot be asked or refuses; a node that never enrolled is no error.
    """
    with operator_client(lab.authority) as client:
        for node in lab.topology.nodes:
            body = {"identity": f"node/{node.name}", "reason": f"the lab {lab.id} is down"}
            answer = _ask(client, "POST", "/v1/revocations", body)
            if answer.is_error and answer.status_code != httpx.codes.NOT_FOUND:
                raise LabError(f"the authority refused to revoke {node.name}: {answer.status_code} {answer.text[:500]}")


@dataclass(frozen=True)
class NodeEnrolment:
    """The enrolment that a node's agent reports. ``keys``: epochs of keys with its neighbours that it holds now."""

    enrolled: bool = False
    revoked: bool = False
    element: int = 0
    keys: int = 0
    next_hops: int = 0
    authorisations: int = 0
    records_signed: bool = False
    error: str = ""

    @property
    def in_words(self) -> str:
        """For people."""
        if self.revoked:
            return "its certificate is revoked"
        if not self.enrolled:
            return f"not enrolled ({self.error or 'its agent waits for the authority'})"
        return f"enrolled, element {self.element}, {self.keys} keys"


def of_status(told: dict[str, Any]) -> NodeEnrolment:
    """The part of `chart-agent --status --json` that speaks of the authority; without one the node is not enrolled."""
    part = told.get("authority")
    if part is None:
        return NodeEnrolment(error="its agent runs without an authority")
    return NodeEnrolment(**{field.name: part[field.name] for field in fields(NodeEnrolment)})


def of_node(lab: Lab, node: str) -> NodeEnrolment:
    """The report of a node's agent; an agent that does not answer counts as not enrolled."""
    command = [
        str(program("dataplane/chart-agent")),
        "--state-dir",
        str(lab.node_directory(node)),
        "--status",
        "--json",
    ]
    done = lab.exec(node, command, check=False, timeout_s=TIMEOUT_S)
    try:
        return of_status(json.loads(done.stdout))
    except ValueError:
        return NodeEnrolment(error="its agent does not answer")


def wait_enrolled(lab: Lab, limit_s: float) -> dict[str, NodeEnrolment]:
    """Until every node is enrolled, holds keys for its neighbours and signs its records; the nodes' reports.

    Raises LabError that names a node that is not, after the limit.
    """
    deadline = time.monotonic() + limit_s
    while True:
        found = {node.name: of_node(lab, node.name) for node in lab.topology.nodes}
        late = {name: one for name, one in found.items() if not (one.enrolled and one.keys and one.records_signed)}
        if not late:
            return found
        if time.monotonic() > deadline:
            words = "; ".join(f"{name}: {one.in_words}" for name, one in late.items())
            raise LabError(f"after {limit_s:.0f} s {words}")
        time.sleep(0.2)
