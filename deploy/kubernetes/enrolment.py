"""Enrolment by service account tokens against a real API server: the authority's own code, as the chart sets it up."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_plane import ControlPlane

from chart.authority.identity import of_short
from chart.authority.kubernetes import Kubernetes
from chart.authority.service_accounts import Account, account_of
from chart.authority.settings import AuthoritySettings
from chart.common.problems import ProblemError

AUDIENCE = "chart-authority"
DOMAIN = "chart.local"


class EnrolmentError(RuntimeError):
    """A token enrols whom it should not, or not whom it should."""


@dataclass(frozen=True)
class Pod:
    """A pod of the release."""

    name: str
    uid: str
    node: str


class Trial:
    """One authority without its database: what it makes of tokens."""

    def __init__(self, cluster: ControlPlane, namespace: str, release: str, folder: Path) -> None:
        self._cluster, self._namespace, self._release = cluster, namespace, release
        own = folder / "token"
        # With the rights that the chart gives the authority, and none beyond.
        own.write_text(self._kubectl("create", "token", f"{release}-authority").strip())
        environment = self._environment("authority")
        self.settings = AuthoritySettings(
            authority_domain=DOMAIN,
            authority_kubernetes_url=cluster.server,
            authority_kubernetes_ca_file=cluster.ca_file,
            authority_kubernetes_token_file=own,
            authority_kubernetes_audience=environment["CHART_AUTHORITY_KUBERNETES_AUDIENCE"],
            authority_kubernetes_accounts=json.loads(environment["CHART_AUTHORITY_KUBERNETES_ACCOUNTS"]),
            authority_kubernetes_config_map=environment["CHART_AUTHORITY_KUBERNETES_CONFIG_MAP"],
        )
        self.kubernetes = Kubernetes(self.settings)

    def _kubectl(self, *arguments: str) -> str:
        return self._cluster.kubectl("--namespace", self._namespace, *arguments)

    def _environment(self, name: str) -> dict[str, str]:
        found = json.loads(self._kubectl("get", "deployment", f"{self._release}-{name}", "-o", "json"))
        container = found["spec"]["template"]["spec"]["containers"][0]
        return {one["name"]: one.get("value", "") for one in container["env"]}

    def pod(self, component: str) -> Pod:
        """A pod of a component that is on a node."""
        selector = f"app.kubernetes.io/component={component}"
        for item in json.loads(self._kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]:
            if node := item["spec"].get("nodeName"):
                return Pod(item["metadata"]["name"], item["metadata"]["uid"], node)
        msg = f"no pod of {component} is on a node"
        raise EnrolmentError(msg)

    def token(self, account: str, pod: Pod | None = None, audience: str = AUDIENCE) -> str:
        """What the kubelet would project into a pod: a token that is bound to it."""
        bound: list[str] = []
        if pod is not None:
            bound = ["--bound-object-kind", "Pod", "--bound-object-name", pod.name, "--bound-object-uid", pod.uid]
        name = f"{self._release}-{account}"
        return self._kubectl("create", "token", name, "--audience", audience, *bound).strip()

    def ask(self, token: str, wanted: str) -> Account:
        """Whom a token enrols; raises ProblemError as the authority answers."""
        identity = of_short(wanted, DOMAIN)
        return asyncio.run(account_of(self.kubernetes, self.settings, token, identity, time.time_ns() // 1000))

    def must(self, token: str, wanted: str) -> None:
        """A token that enrols who comes with it."""
        if self.ask(token, wanted).identity.short != wanted:
            msg = f"the token does not enrol {wanted}"
            raise EnrolmentError(msg)

    def must_not(self, kind: str, word: str, token: str, wanted: str) -> None:
        """A token that is refused, with this type and a word of the reason."""
        try:
            found: Any = self.ask(token, wanted)
        except ProblemError as error:
            if error.kind == kind and word in error.detail:
                return
            found = f"{error.kind}: {error.detail}"
        msg = f"{wanted} should be refused as {kind} with the word {word!r}, but: {found}"
        raise EnrolmentError(msg)

    def published(self, pem: str) -> None:
        """The config map of the chart takes the authority's certificate."""
        asyncio.run(self.kubernetes.publish(self.settings.authority_kubernetes_config_map, pem))
        found = json.loads(self._kubectl("get", "configmap", f"{self._release}-authority-ca", "-o", "json"))
        if found["data"] != {"ca.pem": pem}:
            msg = f"the config map has {found.get('data')}"
            raise EnrolmentError(msg)


def check_enrolment(cluster: ControlPlane, namespace: str, release: str) -> None:
    """Tokens of the release's own pods enrol them, and nothing else does.

    Raises:
        EnrolmentError: what is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(cluster, namespace, release, Path(folder))
        agent, gateway = trial.pod("agent"), trial.pod("gateway")
        token = trial.token("agent", agent)
        trial.must(token, f"node/{agent.node}")
        trial.must(trial.token("sensor-pod", trial.pod("sensor-pod")), f"node/{trial.pod('sensor-pod').node}")
        for identity in ("service/gateway", "service/records"):
            trial.must(trial.token("gateway", gateway), identity)
        trial.must_not("token-of-another", agent.node, token, "node/somebody-else")
        trial.must_not("account-not-allowed", "may not be service/gateway", token, "service/gateway")
        web = trial.token("web", trial.pod("web"))
        trial.must_not("account-not-allowed", "enrols nobody", web, f"node/{agent.node}")
        wrong = trial.token("agent", agent, "somebody-else")
        trial.must_not("account-audience", "for the audience somebody-else", wrong, f"node/{agent.node}")
        trial.must_not("account-node-missing", "bound to no pod", trial.token("agent"), f"node/{agent.node}")
        forged = token[:-8] + ("A" * 8 if not token.endswith("A" * 8) else "B" * 8)
        trial.must_not("account-unknown", "does not believe", forged, f"node/{agent.node}")
        trial.published("-----BEGIN CERTIFICATE-----\n")
