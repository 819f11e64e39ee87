"""An application that asks for flows of another tenant, and one that reads what another tenant has.

Two tenants of a platform that runs: `near` owns one node, `far` the others. Every try is a call of the REST interface
with the token of an application of `near`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from support.waiting import eventually
from threats.hostile import Issuer
from threats.impostors import Findings

NODES = {"tn-near": "198.51.100.129", "tn-far": "198.51.100.130", "tn-end": "198.51.100.131"}
LINKS = (("tn-near", "tn-end"), ("tn-far", "tn-end"), ("tn-near", "tn-far"))
NEAR, FAR = "tn-alice", "tn-bob"
# Stands in whatever is of the other tenant.
MARK = "mark-of-the-far-tenant"
Token = Callable[[str, tuple[str, ...]], str]


def foreign() -> Iterator[dict[str, Any]]:
    """Requests for flows that neither start nor end at what `near` owns."""
    ends = [
        (["tn-far", NODES["tn-far"], f"{NODES['tn-far']}/32"], ["tn-end", NODES["tn-end"]]),
        (["tn-end"], ["tn-far"]),
    ]
    parts: list[dict[str, Any]] = [
        {},
        {"protocol": "tcp", "destination_port": 443},
        {"protocol": "udp", "source_port": 5004},
        {"protocol": "tcp", "source_port": 1, "destination_port": 65_535},
        {"dscp": 46},
        {"cgroup_id": 77},
        {"cgroup_id": 78},
    ]
    rates: list[dict[str, Any]] = [
        {"service": "guaranteed", "guaranteed_bps": 1000},
        {"service": "maximum", "maximum_bps": 1000},
        {"service": "available"},
        {"service": "guaranteed", "guaranteed_bps": 1_000_000, "hold": True},
        {"service": "guaranteed", "guaranteed_bps": 1_000_000, "priority": 255},
    ]
    for sources, destinations in ends:
        for source, destination in itertools.product(sources, destinations):
            for part, rate in itertools.product(parts, rates):
                yield {"source": source, "destination": destination, "duration_s": 60, **part, **rate}


class Tenants:
    """The two tenants and who speaks for them."""

    def __init__(self, url: str, token: Token) -> None:
        def client(subject: str, role: str) -> httpx.AsyncClient:
            headers = {"Authorization": f"Bearer {token(subject, (role,))}"}
            return httpx.AsyncClient(base_url=url, headers=headers, timeout=15)

        self.operator = client("tn-operator", "operator")
        self.near = client(NEAR, "application")
        self.far = client(FAR, "application")

    async def state(self) -> None:
        """State nodes, links and tenants, and wait until what is `near`'s own is granted."""
        for node, address in NODES.items():
            await self._put(f"/v1/nodes/{node}", {"addresses": [f"{address}/32"]})
        for origin, target in LINKS:
            for one, other in ((origin, target), (target, origin)):
                body = {"to_node": other, "capacity_bps": 100_000_000}
                await self._put(f"/v1/links/{one}:to-{other[3:]}", body)
        await self._put("/v1/tenants/tn-near", {"members": [NEAR], "ends": [{"node": "tn-near"}]})
        far = [{"node": "tn-far"}, {"node": "tn-end"}, {"node": "tn-far", "cgroup_id": 78}]
        await self._put("/v1/tenants/tn-far", {"members": [FAR], "ends": far})
        await eventually(lambda: self.good(), 20)

    async def good(self) -> bool:
        """Whether both tenants get what is theirs."""
        own = {"source": "tn-near", "destination": "tn-end", "guaranteed_bps": 1000, "duration_s": 60}
        theirs = {**own, "source": "tn-far"}
        answers = [
            await client.post("/v1/rate-requests:preview", json=body)
            for client, body in ((self.near, own), (self.far, theirs))
        ]
        return all(one.status_code == 200 and one.json()["granted"] for one in answers)

    async def _put(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.operator.put(path, json=body)
        assert answer.is_success, answer.text

    async def ask(self) -> Findings:
        """Flows of the other tenant, in every way there is."""
        found = Findings()
        for body in foreign():
            # Nothing else is wrong with it.
            assert "foreign-selector" in await self._try(found, "POST", "/v1/rate-requests", body), body
            found.tried += 1
            answer = await self.near.post("/v1/rate-requests:preview", json=body)
            if answer.status_code == 200 and answer.json()["granted"]:
                found.accepted.append(f"preview {json.dumps(body)}")
        for address in (NODES["tn-far"], NODES["tn-end"], "0.0.0.0"):
            await self._try(found, "POST", "/v1/authorisations", {"client_address": address})
        found.good_refused = int(not await self.good())
        return found

    async def _try(self, found: Findings, method: str, path: str, body: dict[str, Any]) -> str:
        found.tried += 1
        answer = await self.near.request(method, path, json=body)
        assert answer.status_code != 429, answer.text
        if answer.is_success:
            found.accepted.append(f"{method} {path} {json.dumps(body)}")
            return "foreign-selector accepted"
        return str(answer.json()["type"])

    async def read(self) -> Findings:
        """What the other tenant has, read and changed in every way there is."""
        body = {
            **{"source": "tn-far", "destination": "tn-end", "guaranteed_bps": 1_000_000, "duration_s": 600},
            **{"description": MARK, "tags": {"mark": MARK}},
        }
        made = await self.far.post("/v1/rate-requests", json=body)
        assert made.status_code == 201, made.text
        identity = made.json()["id"]
        hidden = (identity, MARK, FAR)
        found = Findings()
        for path in self._paths(identity):
            found.tried += 1
            answer = await self.near.get(path)
            assert answer.status_code != 429, answer.text
            # A refusal repeats what was asked for.
            told = [one for one in hidden if answer.is_success or one not in path]
            if any(one in answer.text for one in told):
                found.accepted.append(f"GET {path}")
        for method, path, change in (
            ("PATCH", f"/v1/rate-requests/{identity}", {"guaranteed_bps": 1000}),
            ("POST", f"/v1/rate-requests/{identity}/preview", {"guaranteed_bps": 1000}),
            ("POST", f"/v1/rate-requests/{identity}/commit", None),
            ("POST", f"/v1/rate-requests/{identity}/release", None),
        ):
            found.tried += 1
            if (await self.near.request(method, path, json=change)).is_success:
                found.accepted.append(f"{method} {path}")
        found.tried += 1
        if await self._overheard(identity):
            found.accepted.append("GET /v1/events")
        mine = await self.far.get(f"/v1/rate-requests/{identity}")
        found.good_refused = int(mine.status_code != 200 or mine.json()["request"]["description"] != MARK)
        await self.far.post(f"/v1/rate-requests/{identity}/release")
        return found

    def _paths(self, identity: str) -> list[str]:
        one = f"/v1/rate-requests/{identity}"
        return [
            *(one, f"{one}/history", f"{one}/receipt", f"/v1/receipts/{identity}"),
            *("/v1/rate-requests", f"/v1/rate-requests?owner={FAR}", f"/v1/rate-requests?q={MARK}"),
            *(f"/v1/rate-requests?tag=mark={MARK}", "/v1/rate-requests?link=tn-far:to-end"),
            *("/v1/callbacks", f"/v1/callbacks?request_id={identity}", "/v1/flows", "/v1/in-band-flows"),
            *("/v1/quotas", f"/v1/quotas/{FAR}", "/v1/tenants", "/v1/tenants/tn-far", "/v1/authorisations"),
            *(f"/v1/series?kind=grant&subject={identity}&metric=granted_bps", "/v1/links/tn-far:to-end/capacity"),
            *("/v1/audit", f"/v1/audit?subject={identity}", "/v1/node-keys", "/v1/identities", "/v1/record-checks"),
            *("/v1/nodes", "/v1/links", "/v1/policies", "/v1/session-rules", "/v1/tunnels", "/v1/alerts"),
            *("/v1/paths/tn-far/tn-end", "/v1/sensing-configurations", "/v1/enrolments", "/v1/revocations"),
        ]

    async def _overheard(self, identity: str) -> bool:
        """Whether an event stream tells `near` of a change of the other's request."""
        own = {"source": "tn-near", "destination": "tn-end", "guaranteed_bps": 1000, "duration_s": 60}
        async with self.near.stream("GET", "/v1/events") as stream:
            changed = await self.far.patch(f"/v1/rate-requests/{identity}", json={"guaranteed_bps": 2_000_000})
            assert changed.status_code == 200, changed.text
            made = await self.near.post("/v1/rate-requests", json=own)
            assert made.status_code == 201, made.text
            mine, text = made.json()["id"], ""
            async with asyncio.timeout(30):
                async for part in stream.aiter_text():
                    text += part
                    # What comes of the change came before it.
                    if mine in text:
                        break
        await self.near.post(f"/v1/rate-requests/{mine}/release")
        return identity in text or MARK in text

    async def close(self) -> None:
        """Take away what was stated, and hang up."""
        for origin, target in LINKS:
            for one, other in ((origin, target), (target, origin)):
                await self.operator.delete(f"/v1/links/{one}:to-{other[3:]}")
        for tenant in ("tn-near", "tn-far"):
            await self.operator.delete(f"/v1/tenants/{tenant}")
        for node in NODES:
            await self.operator.delete(f"/v1/nodes/{node}")
        for client in (self.operator, self.near, self.far):
            await client.aclose()


def tokens_of(issuer: Issuer) -> Token:
    """Tokens of an identity provider, good for ten minutes."""

    def token(subject: str, roles: tuple[str, ...]) -> str:
        return issuer.token(sub=subject, roles=list(roles), exp=int(time.time()) + 600)

    return token


async def trials(url: str, token: Token) -> tuple[Findings, Findings]:
    """Foreign selectors, and reads across tenants."""
    place = Tenants(url, token)
    try:
        await place.state()
        return await place.ask(), await place.read()
    finally:
        await place.close()
