"""`make compose-test`: the trials of `make threat-test` that need no more than an installation's addresses, against one
that runs.

``--folder`` holds what an installation gives to its services: ``authority/ca.pem``, and below ``authority/identities``
the certificates service-gateway and service-records, each as .pem and .key. An operator's token is in CHART_TOKEN. Keys
of Keycloak are not ours to change, so only tokens are tried that anybody can make of a good one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from chart.authority.settings import AuthoritySettings
from support.authority import Place
from threats import commands, hostile
from threats.trials import Trials, listed

RSA_BITS, RSA_EXPONENT = 2048, 65537


@dataclass(frozen=True)
class Broker:
    """Where the trials speak to the broker of an installation."""

    kafka_bootstrap: str


def forged_tokens(good: str, issuer_keys: str) -> dict[str, str]:
    """Of a good token, each with one fault. ``issuer_keys``: where its issuer publishes its keys."""
    claims = jwt.decode(good, options={"verify_signature": False})
    other = rsa.generate_private_key(RSA_EXPONENT, RSA_BITS)
    head = jwt.get_unverified_header(good)
    published = httpx.get(issuer_keys, timeout=20).raise_for_status().json()["keys"]
    own = jwt.PyJWK(next(one for one in published if one["kid"] == head["kid"])).key
    public = own.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return {
        **hostile.altered(good, public),
        "key of another": jwt.encode(claims, other, algorithm="RS256", headers={"kid": head["kid"]}),
    }


@dataclass
class Installation(Place):
    """An authority whose operators come through the gateway: with its certificate, and their own token."""

    operators: str = "service-gateway"
    token: str = ""

    @property
    def operator(self) -> httpx.AsyncClient:
        made = super().operator
        made.headers["Authorization"] = f"Bearer {self.token}"
        return made


async def run(place: Installation, bootstrap: str, issuer_keys: str) -> Trials:
    """All trials in order."""
    token = place.token
    trials = Trials(place)
    await trials.signals()
    await trials.steal()
    await trials.impersonate()
    forged = await asyncio.to_thread(forged_tokens, token, issuer_keys)
    trials.note("tokens", await hostile.bearer(place, token, forged))
    await trials.be_hostile()
    broker = Broker(bootstrap)
    found = await asyncio.to_thread(commands.by_node, broker, place, "mallory", "alpha")
    trials.figure_of("commands_by_node", "commands", found)
    trials.figure("stream_after_revocation_s", round(await commands.shut_out_s(broker, place), 3), "s", "<= 5")
    trials.figure("stream_after_revocation_s_tried", 1, "revocations")
    await trials.revoke([place])
    trials.figure("forgeries_tried", trials.tried, "forgeries", ">= 100000")
    trials.figure("forgeries_accepted", trials.accepted, "forgeries", "<= 0")
    trials.secrets |= {token, *place.secrets}
    await place.close()
    return trials


def secrets_in(trials: Trials, logs: str) -> int:
    """How often logs say a secret that a trial saw: keys, private keys, tokens."""
    files = [*trials.place.folder.rglob("*.key")]
    lines = [line for file in files for line in file.read_text(errors="replace").splitlines()]
    secrets = trials.secrets | {line for line in lines if len(line) > 30 and "PRIVATE" not in line}
    return sum(secret in logs for secret in secrets if len(secret) >= 16)


def main() -> int:
    """Run; exit status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--authority", required=True, help="host:port")
    parser.add_argument("--kafka", required=True, help="host:port of the listener for nodes")
    parser.add_argument("--issuer-keys", required=True, help="URL of the keys that tokens are checked with (JWKS)")
    parser.add_argument("--report", type=Path, required=True, help="file for the figures, JSON")
    parser.add_argument("--logs", required=True, help="command that prints what the services said")
    arguments = parser.parse_args()
    # Nothing is connected to: the trials' clients read folder and address from it.
    settings = AuthoritySettings(
        state_dir=arguments.folder,
        authority_listen=arguments.authority,
        database_url="postgresql://nobody@nowhere/none",
    )
    token = os.environ["CHART_TOKEN"]
    place = Installation(settings, arguments.folder, f"https://{arguments.authority}", token=token)
    trials = asyncio.run(run(place, arguments.kafka, arguments.issuer_keys))
    logs = subprocess.run(shlex.split(arguments.logs), check=True, capture_output=True, text=True, timeout=120).stdout
    trials.figure("secrets_in_logs", secrets_in(trials, logs), "occurrences", "<= 0")
    told: dict[str, Any] = {"figures": listed(trials.figures), "notes": trials.notes}
    arguments.report.write_text(json.dumps(told) + "\n", encoding="utf-8")
    return 0 if all(one.met() is not False for one in trials.figures.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
