"""Enrolment by a pod's service account token: who comes, from what the cluster says of the token (TokenReview).

A setting maps service accounts ("namespace/name") to identities: ``node`` is the node that the pod runs on, anything
else an identity as it is written (``service/gateway``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chart.authority.identity import Identity, IdentityError, moment, of_short
from chart.authority.kubernetes import Kubernetes
from chart.authority.settings import AuthoritySettings
from chart.common.kubernetes import KubernetesError, claims_of
from chart.common.problems import ProblemError

NODE = "node"
_PREFIX = "system:serviceaccount:"
_EXTRA = "authentication.kubernetes.io/"


@dataclass(frozen=True)
class Account:
    """Who came with a service account token: the account, "namespace/name", and the identity that it is let be."""

    name: str
    identity: Identity


@dataclass(frozen=True)
class Holder:
    """What the cluster says of a token that it believes. ``node``: empty before Kubernetes 1.30."""

    account: str
    pod: str
    pod_uid: str
    node: str


def is_one(token: str) -> bool:
    """Whether a token is a service account's (a JWT) and not a one-time token, which has no points."""
    return token.count(".") == 2


def refused(kind: str, detail: str, *suggestions: str) -> ProblemError:
    """403: the token enrols nobody."""
    return ProblemError(403, "Not enrolled", detail, field="token", suggestions=suggestions, kind=kind)


def why_not_believed(token: str, audience: str, error: str, now_us: int) -> ProblemError:
    """The refusal of a token that the cluster does not believe."""
    claims = claims_of(token)
    stated = claims.get("aud", ())
    audiences = [stated] if isinstance(stated, str) else [one for one in stated if isinstance(one, str)]
    if audiences and audience not in audiences:
        return refused(
            "account-audience",
            f"This service account token is for the audience {', '.join(audiences)[:80]}, not {audience}.",
            f"Project a token with audience: {audience} into the pod.",
        )
    until = claims.get("exp")
    if isinstance(until, int | float) and until * 1e6 <= now_us:
        return refused(
            "account-token-expired", f"This service account token expired at {moment(round(until * 1e6))}.",
            "The kubelet renews projected tokens: is the file the projected one, and read again?",
        )  # fmt: skip
    return refused("account-unknown", f"The cluster does not believe this service account token: {error[:120]}.")


def holder_of(status: Mapping[str, Any]) -> Holder | None:
    """Whose token it is; None: the cluster does not believe it, or it is no service account's."""
    user = status.get("user") or {}
    name = user.get("username", "")
    if not status.get("authenticated") or not name.startswith(_PREFIX):
        return None
    extra = user.get("extra") or {}

    def first(what: str) -> str:
        values = extra.get(_EXTRA + what) or ()
        return str(values[0]) if values else ""

    account = name.removeprefix(_PREFIX).replace(":", "/", 1)
    return Holder(account, first("pod-name"), first("pod-uid"), first("node-name"))


def choose(wanted: Identity | None, allowed: Sequence[str], holder: Holder, domain: str) -> Identity:
    """The identity that the holder of a token gets: the one that it says to be, when it may be that.

    Raises:
        ProblemError: 403 with what is wrong.
    """
    if not allowed:
        raise refused(
            "account-not-allowed", f"The service account {holder.account} enrols nobody here.",
            "CHART_AUTHORITY_KUBERNETES_ACCOUNTS says which ones do.",
        )  # fmt: skip
    try:
        mine = [of_short(f"node/{holder.node}" if one == NODE else one, domain) for one in allowed]
    except IdentityError as error:
        raise refused("account-not-allowed", f"The service account {holder.account} cannot be enrolled: {error}.") \
            from None  # fmt: skip
    if wanted is None:
        return mine[0]
    if wanted in mine:
        return wanted
    if wanted.kind == "node" and NODE in allowed:
        raise refused(
            "token-of-another",
            f"This token is of a pod on the node {holder.node}, and {wanted.short} came with it.",
            "Start the agent with --node and the name of the cluster's node (spec.nodeName).",
        )
    raise refused(
        "account-not-allowed", f"The service account {holder.account} may not be {wanted.short}.",
        f"It may be {', '.join(one.short for one in mine)}.",
    )  # fmt: skip


async def account_of(
    kubernetes: Kubernetes | None, settings: AuthoritySettings, token: str, wanted: Identity | None, now_us: int
) -> Account:
    """Who comes with a service account token. ``wanted``: who the caller says to be.

    Raises:
        ProblemError: 403 the token enrols nobody, with the reason; 503 the API server cannot be asked.
    """
    if kubernetes is None:
        raise refused(
            "account-unknown", "This authority takes no service account tokens: no cluster is configured.",
            "Take a one-time token: chart node enrol.",
        )  # fmt: skip
    try:
        status = await kubernetes.review(token, settings.authority_kubernetes_audience)
        holder = holder_of(status)
        if holder is None or settings.authority_kubernetes_audience not in status.get("audiences", ()):
            words = str(status.get("error", "it is not authenticated"))
            raise why_not_believed(token, settings.authority_kubernetes_audience, words, now_us)
        allowed = settings.authority_kubernetes_accounts.get(holder.account, ())
        if NODE in allowed:
            holder = await _with_node(kubernetes, holder)
    except KubernetesError as error:
        raise ProblemError(
            503, "Service unavailable", f"Service account tokens cannot be checked: {error}.",
            suggestions=["Try again in 2 s."],
        ) from error  # fmt: skip
    return Account(holder.account, choose(wanted, allowed, holder, settings.authority_domain))


async def _with_node(kubernetes: Kubernetes, holder: Holder) -> Holder:
    """The holder with its node: as the token says, or as the cluster says of the pod (before Kubernetes 1.30).

    Raises:
        ProblemError: 403, it is not known.
        KubernetesError: the API server cannot be asked.
    """
    if holder.node:
        return holder
    if not holder.pod:
        raise refused(
            "account-node-missing",
            f"This token of {holder.account} is bound to no pod, so it names no node.",
            "Take the token that is projected into the pod, not one made by hand.",
        )
    namespace = holder.account.partition("/")[0]
    node = await kubernetes.node_of_pod(namespace, holder.pod, holder.pod_uid)
    if node is None:
        raise refused(
            "account-node-missing", f"The pod {namespace}/{holder.pod} of this token runs on no node (any more)."
        )
    return Holder(holder.account, holder.pod, holder.pod_uid, node)
