"""Service account tokens of the cluster that the gateway runs in: who comes with one (TokenReview).

Every account is an application; its namespace says to which tenant it belongs. The accounts of a setting are
controllers: they see the requests of all, and ask in the name of a namespace that they state (header Chart-Namespace),
also for flows of its pods, whose addresses they state (header Chart-Pod-Addresses). Decision 49 has the reasons.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Mapping

from chart.common import names
from chart.common.kubernetes import ApiServer, KubernetesError, claims_of
from chart.common.ownership import SERVICE_ACCOUNT
from chart.common.tokens import IssuerAwayError, Principal, TokenError
from chart.gateway.errors import GatewayError, forbidden
from chart.gateway.settings import GatewaySettings

NAMESPACE_HEADER = "chart-namespace"
ADDRESSES_HEADER = "chart-pod-addresses"
ADDRESSES_MAX = 16
# In whose name a controller asks for a namespace, as an account of that namespace.
ACTING_ACCOUNT = "chart-rates"
# The cluster's word on a token is good for so long: a deleted account is refused after this at the latest.
KEPT_S = 15.0
KEPT_MAX = 4096


def is_one(token: str) -> bool:
    """Whether a token says that a cluster signed it for a service account; believed by nobody yet."""
    claims = claims_of(token)
    return isinstance(claims.get("kubernetes.io"), dict) and str(claims.get("sub", "")).startswith(SERVICE_ACCOUNT)


class ServiceAccounts:
    """Asks the API server, and remembers what it said of good tokens for a while."""

    def __init__(self, settings: GatewaySettings, api: ApiServer) -> None:
        self._audience = settings.kubernetes_audience
        self._controllers = frozenset(settings.kubernetes_controllers)
        self._api = api
        self._known: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """The principal of a token: subject ``system:serviceaccount:NAMESPACE:NAME``.

        Raises:
            TokenError: the cluster does not believe it, or it is for another audience.
            IssuerAwayError: the API server cannot be asked.
        """
        name = hashlib.sha256(token.encode()).digest()
        known = self._known.get(name)
        if known is not None and known[0] > time.monotonic() and known[1].expires_at > time.time():
            return known[1]
        try:
            status = await self._api.review(token, self._audience)
        except KubernetesError as error:
            raise IssuerAwayError(str(error)) from error
        user = status.get("user") or {}
        subject = str(user.get("username", ""))
        if not status.get("authenticated") or not subject.startswith(SERVICE_ACCOUNT):
            words = str(status.get("error", "it is no service account's"))[:120]
            raise TokenError(f"the cluster does not believe the service account token: {words}".replace('"', "'"))
        if self._audience not in status.get("audiences", ()):
            raise TokenError(f"the service account token is not for the audience {self._audience}")
        account = subject.removeprefix(SERVICE_ACCOUNT).replace(":", "/", 1)
        controls = account in self._controllers
        roles = frozenset({"viewer"} if controls else {"application"})
        found = Principal(subject, roles, int(claims_of(token).get("exp", 0)), controls=controls)
        self._known[name] = time.monotonic() + KEPT_S, found
        self._known.move_to_end(name)
        if len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return found


def acting(principal: Principal, headers: Mapping[str, str]) -> Principal:
    """The principal of a call with the headers of a controller: the namespace's, with the addresses of its pods.

    Raises:
        GatewayError: 403, who is no controller states them; 422, they cannot be read.
    """
    namespace, addresses = headers.get(NAMESPACE_HEADER), headers.get(ADDRESSES_HEADER)
    if namespace is None and addresses is None:
        return principal
    if not principal.controls:
        stated = "Chart-Namespace" if namespace is not None else "Chart-Pod-Addresses"
        raise forbidden(f"{principal.subject} is no controller and may not state {stated}")
    if namespace is None or not names.is_label(namespace):
        raise _unreadable("Chart-Namespace", "must be the name of a namespace, such as batch")
    try:
        found = tuple(str(ipaddress.ip_address(one.strip())) for one in (addresses or "").split(",") if one.strip())
    except ValueError:
        raise _unreadable("Chart-Pod-Addresses", "must be addresses with commas between them") from None
    if len(found) > ADDRESSES_MAX:
        raise _unreadable("Chart-Pod-Addresses", f"has {len(found)} addresses, at most {ADDRESSES_MAX} are taken")
    return dataclasses.replace(
        principal,
        subject=f"{SERVICE_ACCOUNT}{namespace}:{ACTING_ACCOUNT}",
        roles=frozenset({"application"}),
        addresses=found,
    )


def _unreadable(header: str, detail: str) -> GatewayError:
    return GatewayError(422, "Invalid request", f"the header {header} {detail}", field=header, kind="invalid-value")
