"""The authority behind a gateway of tests: its answers, from dictionaries, without HTTPS."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from chart.common.problems import ProblemError

NOW_US = 1_780_000_000_000_000
CA_PEM = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"


def _missing(what: str) -> ProblemError:
    return ProblemError(404, "Not found", f"There is no such {what}.")


@dataclass
class MemoryAuthority:
    """In place of the HTTPS client; no receipts."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    enrolments: dict[str, dict[str, Any]] = field(default_factory=dict)
    identities: dict[str, dict[str, Any]] = field(default_factory=dict)
    revocations: list[dict[str, Any]] = field(default_factory=list)
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    hops: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def ask(self, method: str, path: str, request: Any, body: dict[str, Any] | None = None) -> Any:
        address = urlsplit(path)
        _, resource, *rest = address.path.strip("/").split("/")
        name = rest[0] if rest else ""
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        answer = getattr(self, f"_{resource.replace('-', '_')}", None)
        if answer is None:
            raise _missing("flow")
        return answer(method, name, body or {}, query)

    async def ca_pem(self) -> str:
        return CA_PEM

    def enrol(self, identity: str) -> None:
        """Somebody used a token."""
        self.identities[identity] = {
            "identity": identity, "element_id": 1, "active": True, "revoked_at_us": 0, "serial": "ab",
            "issued_at_us": NOW_US, "not_after_us": 4_000_000_000_000_000, "certificate_revoked_at_us": 0,
            "revoked_because": "",
        }  # fmt: skip

    def _receipt_keys(self, *_: Any) -> Any:
        return {"keys": []}

    def _authorisations(self, method: str, name: str, asked: dict[str, Any], _query: Any) -> Any:
        if method == "GET":
            return {"authorisations": list(self.rows.values())}
        if method == "DELETE":
            if self.rows.pop(name, None) is None:
                raise _missing("authorisation")
            return None
        row = {
            "id": f"A{len(self.rows)}", "owner": "tester", "removed": False,
            "client_address": asked.get("client_address", "10.0.0.1"),
            "service": asked.get("service", "available"),
            "max_guaranteed_bps": asked.get("max_guaranteed_bps", 0), "max_priority": asked.get("max_priority", 0),
            "delay_class": asked.get("delay_class", 0), "charging": 0, "expires_at_us": NOW_US,
        }  # fmt: skip
        self.rows[row["id"]] = row
        return row

    def _enrolments(self, method: str, name: str, asked: dict[str, Any], _query: Any) -> Any:
        if method == "GET":
            return list(self.enrolments.values())
        if method == "DELETE":
            if name not in self.enrolments:
                raise _missing("enrolment")
            self.enrolments[name] |= {"state": "withdrawn", "withdrawn_at_us": NOW_US}
            return None
        made = {"id": f"E{len(self.enrolments)}", "identity": asked["identity"]}
        expires_at_us = NOW_US + asked["life_s"] * 1_000_000
        self.enrolments[made["id"]] = {
            **made, "state": "open", "created_by": "tester", "created_at_us": NOW_US, "expires_at_us": expires_at_us,
            "used_at_us": None, "withdrawn_at_us": None, "serial": None, "not_after_us": None, "revoked_at_us": None,
        }  # fmt: skip
        return {**made, "token": f"token-of-{asked['identity']}", "expires_at_us": expires_at_us}

    def _identities(self, *_: Any) -> Any:
        return list(self.identities.values())

    def _revocations(self, method: str, _name: str, asked: dict[str, Any], _query: Any) -> Any:
        if method == "GET":
            return self.revocations
        found = self.identities.get(asked["identity"] or "")
        if found is None:
            detail = f"No certificate was ever issued to {asked['identity']}."
            raise ProblemError(404, "Not found", detail, field="identity", kind="unknown-identity")
        found |= {"active": False, "revoked_at_us": NOW_US, "revoked_because": asked["reason"]}
        self.revocations.append({
            "identity": found["identity"], "serial": found["serial"], "revoked_at_us": NOW_US,
            "reason": asked["reason"], "not_after_us": found["not_after_us"], "active": False,
        })  # fmt: skip
        return None

    def _peers(self, method: str, name: str, asked: dict[str, Any], _query: Any) -> Any:
        if method == "GET":
            return list(self.peers.values())
        if method == "DELETE":
            if self.peers.pop(name, None) is None:
                raise _missing("peer")
            return None
        self.peers[name] = {"domain": name, "url": asked["url"], "ca_sha256": "00" * 32, "pairs": asked["pairs"]}
        return self.peers[name]

    def _next_hop_entries(self, _method: str, _name: str, _asked: Any, query: dict[str, str]) -> Any:
        wanted = query.get("element")
        return [hop for (element, _), hop in sorted(self.hops.items()) if wanted in (None, element)]

    def _next_hops(self, method: str, name: str, asked: dict[str, Any], query: dict[str, str]) -> Any:
        if method == "PUT":
            key = (asked["element"], asked["prefix"])
            if asked["next_element"] is not None:
                self.hops[key] = {**asked, "source": "operator", "expires_at_us": None}
            elif self.hops.pop(key, None) is None:
                raise _missing("next hop")
            return None
        for (element, prefix), hop in self.hops.items():
            if element == query["element"] and ipaddress.ip_address(name) in ipaddress.ip_network(prefix):
                return {key: hop[key] for key in ("prefix", "next_element", "source", "shim_address")}
        detail = f"{query['element']} has no next hop towards {name}."
        raise ProblemError(404, "Not found", detail, kind="no-next-hop")

    def _authorisation_policies(self, method: str, name: str, asked: dict[str, Any], _query: Any) -> Any:
        if method == "GET":
            return list(self.policies.values())
        if method == "DELETE":
            if self.policies.pop(name, None) is None:
                raise _missing("policy")
        else:
            self.policies[name] = {"id": name, **asked}
        return None

    async def close(self) -> None:
        """Nothing to let go of."""
