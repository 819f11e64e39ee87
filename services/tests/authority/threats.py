"""`make threat-test`: what is tried against the authority and what came of it; writes report.json.

Everything is real: PostgreSQL, two replicas of `chart-authority` as processes, mutual TLS. Run by itself, because it
measures: python -m ... --out DIR.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import impostors
import jwt
import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forgeries import FLOW, Attack
from load import read_keys
from support.authority import OtherAuthority, Place, settings_of
from support.postgres import PostgresServer
from support.waiting import eventually

from chart.authority.settings import AuthoritySettings
from chart.common import migrate, qos
from chart.lab.experiments.framework import Figure

FORGERIES = 100_000
ROTATIONS = 20
ROTATION_S = 3.0
LOAD_S = 10.0
SIGNALS_PER_S = 1000


class Replica:
    """One `chart-authority` as a process with its log."""

    def __init__(self, settings: AuthoritySettings, log: Path) -> None:
        self.settings = settings
        self.log = log
        environment = {
            "PATH": os.environ["PATH"],
            "CHART_KAFKA_BOOTSTRAP": "local:",
            "CHART_DATABASE_URL": settings.database_url,
            "CHART_STATE_DIR": str(settings.state_dir),
            "CHART_AUTHORITY_LISTEN": settings.authority_listen,
            "CHART_HTTP_LISTEN": settings.http_listen,
            "CHART_AUTHORITY_KEY_LIFE_S": str(settings.authority_key_life_s),
            "CHART_AUTHORITY_KEY_LEAD_S": str(settings.authority_key_lead_s),
            "CHART_LOG_LEVEL": "debug",
        }
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [str(Path(sys.executable).parent / "chart-authority")], env=environment, stdout=file, stderr=file
            )
        self.place = Place(settings, settings.state_dir, f"https://{settings.authority_listen}")

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.settings.authority_listen.split(":")
        return host, int(port)

    async def ready(self) -> None:
        async def answers() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text()[-2000:])
            if not self.place.has("user-operator"):
                return False
            try:
                return (await self.place.operator.get("/v1/elements")).status_code == 200
            except httpx.HTTPError:
                return False

        await eventually(answers, 30)

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(20)


class Threats:
    """The trials; each notes its figures and the secrets that it saw."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self.place = replicas[0].place
        self.figures: dict[str, Figure] = {}
        self.secrets: set[str] = set()
        self.tried = 0
        self.accepted = 0
        self.notes: dict[str, Any] = {}

    def figure(self, name: str, value: float, unit: str, goal: str | None = None) -> None:
        self.figures[name] = Figure(name, value, unit, goal)

    async def keys(self, client: httpx.AsyncClient, path: str) -> Any:
        answer = await client.get(path)
        answer.raise_for_status()
        found = answer.json()
        for epoch in found["epochs"]:
            plain = base64.b64decode(epoch["key"])
            self.secrets |= {epoch["key"], plain.hex(), repr(plain)[2:-1]}
        return found

    async def forge(self) -> None:
        """Signals, certificates and tokens that must not be accepted."""
        place = self.place
        nodes = {name: await place.node(name) for name in ("alpha", "bravo", "mallory")}
        true = await self.keys(nodes["alpha"], "/v1/keys/alpha/bravo")
        strange = await self.keys(nodes["mallory"], "/v1/keys/mallory/bravo")
        epoch = true["epochs"][-1]
        attack = Attack(
            base64.b64decode(epoch["key"]), epoch["epoch"], true["sender_id"],
            base64.b64decode(strange["epochs"][-1]["key"]), 1,
        )  # fmt: skip
        attack.run(FORGERIES)
        self.tried += sum(attack.tried.values())
        self.accepted += sum(attack.accepted.values())
        self.notes["signals"] = {"tried": dict(attack.tried), "accepted": dict(attack.accepted)}
        assert attack.good_refused == 0
        await self._steal(nodes["mallory"])
        await self._impersonate(nodes["mallory"], true, strange)
        await self._forge_tokens()

    async def _impersonate(self, thief: httpx.AsyncClient, true: Any, strange: Any) -> None:
        """Records and reports in the name of alpha, with all that mallory has."""
        key = base64.b64decode(strange["epochs"][-1]["key"])
        for name, found in (
            ("records", await impostors.records(self.place, thief)),
            ("reports", await impostors.reports(thief, true["sender_id"], true["epochs"][-1]["epoch"], key)),
        ):
            self.tried += found.tried
            self.accepted += len(found.accepted)
            self.notes[name] = {"tried": found.tried, "accepted": found.accepted}
            assert found.good_refused == 0

    async def _steal(self, thief: httpx.AsyncClient) -> None:
        """A stolen node certificate, used for other nodes' keys and for what only operators may do."""
        stolen: list[tuple[str, str, Any]] = [
            ("GET", "/v1/keys/alpha/bravo", None),
            ("GET", "/v1/keys/bravo/alpha?start=true", None),
            ("GET", "/v1/stream-keys/alpha", None),
            ("POST", "/v1/enrolments", {"identity": "node/alpha"}),
            ("POST", "/v1/revocations", {"identity": "node/alpha"}),
            ("PUT", "/v1/next-hops", {"element": "alpha", "prefix": "0.0.0.0/0", "next_element": "mallory"}),
            ("PUT", "/v1/peers/evil.example", {"url": "https://x", "ca_pem": OtherAuthority().pem, "pairs": []}),
            ("POST", "/v1/authorisations", {"client_address": "10.0.0.1"}),
            ("GET", "/v1/receipts/any", None),
        ]
        for method, path, body in stolen:
            self.tried += 1
            answer = await thief.request(method, path, json=body)
            if answer.is_success:
                self.accepted += 1
                self.notes.setdefault("stolen certificate accepted", []).append(path)

    async def _forge_tokens(self) -> None:
        """Tokens that the gateway would never forward, sent with the gateway's own certificate."""
        gateway = self.place.client(self.place.local("service-gateway"))
        now = int(time.time())
        claims = {"iss": "urn:chart:dev-issuer", "aud": "chart", "sub": "m", "roles": ["admin"], "iat": now,
                  "exp": now + 60}  # fmt: skip
        strange = Ed25519PrivateKey.generate()
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
        tokens = [
            f"{none}.{body}.", "x", "a.b.c",
            jwt.encode(claims, strange, algorithm="EdDSA", headers={"kid": "x"}),
            jwt.encode({**claims, "aud": "other"}, strange, algorithm="EdDSA", headers={"kid": "x"}),
            jwt.encode(claims, "s" * 64, algorithm="HS256"),
        ]  # fmt: skip
        for token in tokens:
            self.tried += 1
            self.secrets.add(token)
            answer = await gateway.post(
                "/v1/enrolments", json={"identity": "node/x"}, headers={"Authorization": f"Bearer {token}"}
            )
            self.accepted += answer.is_success

    async def reads(self) -> None:
        """Key reads of one replica, by twenty nodes."""
        clients = []
        for number in range(20):
            files = await self.place.enrol(f"node/n{number}")
            clients.append((self.place.context(files), f"/v1/keys/n{number}/bravo"))
        await read_keys([self.replicas[0].address], clients, 1.0)
        # Few connections at once: the other core is the load's own.
        found = await read_keys([self.replicas[0].address], clients[:8], LOAD_S)
        self.figure("key_reads_per_s", round(found.per_s, 1), "1/s", ">= 1000")
        self.figure("key_read_p99_ms", round(found.p99_ms, 2), "ms", "<= 20")
        assert found.failed_after_retry == 0
        self.load_clients = clients

    async def kill(self) -> None:
        """kill -9 of one of two replicas while keys are read from both."""
        addresses = [replica.address for replica in self.replicas]
        load = asyncio.create_task(read_keys(addresses, self.load_clients[:8], 6.0))
        began = time.monotonic()
        await eventually(lambda: time.monotonic() > began + 2)
        self.replicas[1].stop(signal.SIGKILL)
        found = await load
        self.figure("failed_after_retry", found.failed_after_retry, "requests", "<= 0")
        self.notes["kill -9"] = {"reads": len(found.seconds), "retried": found.retried}
        assert found.retried > 0

    async def rotate(self) -> None:
        """Both ends follow their keys as agents do while signals flow and others read keys."""
        alpha = self.place.client((f"{self.place.folder}/node-alpha.pem", f"{self.place.folder}/node-alpha.key"))
        bravo = self.place.client((f"{self.place.folder}/node-bravo.pem", f"{self.place.folder}/node-bravo.key"))
        duration_s = ROTATIONS * ROTATION_S
        background = asyncio.create_task(read_keys([self.replicas[0].address], self.load_clients[:4], duration_s))
        ends = [End(self, alpha), End(self, bravo)]
        for end in ends:
            await end.ask()
        following = [asyncio.create_task(end.follow()) for end in ends]
        sent = refused = 0
        first = ends[0].newest
        stop_at = time.monotonic() + duration_s
        while time.monotonic() < stop_at or ends[0].newest - first < ROTATIONS:
            assert time.monotonic() < stop_at + 30, "the keys do not rotate"
            for _ in range(SIGNALS_PER_S // 100):
                sent += 1
                refused += not ends[1].accept(ends[0].send())
            await asyncio.sleep(0.01)
        for task in (*following, background):
            task.cancel()
        await asyncio.gather(*following, background, return_exceptions=True)
        self.figure("valid_refused_in_rotation", refused, "signals", "<= 0")
        self.notes["rotation"] = {"signals": sent, "rotations": ends[0].newest - first}

    async def revoke(self) -> None:
        """From the revocation at one replica until every replica refuses and the neighbours know."""
        files = await self.place.enrol("node/victim")
        neighbour = await self.place.node("neighbour")
        await self.keys(neighbour, "/v1/keys/victim/neighbour")
        thieves = [replica.place.client(files) for replica in self.replicas]
        state = (await neighbour.get("/v1/next-hops")).json()
        told = asyncio.create_task(neighbour.get(f"/v1/next-hops?since={state['revision']}&wait_s=20"))
        began = time.monotonic()
        answer = await self.place.operator.post("/v1/revocations", json={"identity": "node/victim"})
        assert answer.status_code == 204

        async def cut_off() -> bool:
            return all([(await thief.get("/v1/elements")).status_code == 403 for thief in thieves])

        await eventually(cut_off, 20)
        assert {"element": "victim", "id": None} in (await told).json()["elements"]
        self.figure("revocation_s", round(time.monotonic() - began, 3), "s", "<= 10")

    def search(self, logs: list[Path], database_url: str) -> None:
        """Every key, token and private key that was issued, in every log and in the database."""
        folder = self.place.folder
        for file in [*folder.glob("*.key"), *self.place.settings.home.rglob("*.key")]:
            octets = file.read_bytes()
            lines = octets.decode(errors="replace").splitlines()
            self.secrets |= {line for line in lines if len(line) > 30 and "PRIVATE" not in line}
        self.secrets |= {secret for replica in self.replicas for secret in replica.place.secrets}
        master = (self.place.settings.home / "store" / "master.key").read_bytes()
        self.secrets |= {master.hex(), base64.b64encode(master).decode()}
        texts = [log.read_text(errors="replace") for log in logs]
        with psycopg.connect(database_url) as connection:
            tables = ("audit", "outbox", "key_epoch", "enrolment", "certificate", "authorisation")
            texts += [
                str(connection.execute(f"SELECT to_jsonb(t) FROM authority.{table} t").fetchall())  # type: ignore[arg-type]
                for table in tables
            ]
        # Forged tokens of a few letters are no secrets.
        secrets = {secret for secret in self.secrets if len(secret) >= 16}
        found = sum(secret in text for secret in secrets for text in texts)
        self.figure("secrets_in_logs", found, "occurrences", "<= 0")
        self.notes["logs"] = {"secrets": len(secrets), "octets": sum(map(len, texts))}


class End:
    """One end of the pair alpha > bravo that follows the keys as the agent does."""

    def __init__(self, threats: Threats, client: httpx.AsyncClient) -> None:
        self._threats, self._client = threats, client
        self._epochs: list[dict[str, Any]] = []
        self._renew_at_us = 0
        self._pair = qos.Pair()
        self._installed: set[int] = set()
        self._sequences: dict[int, int] = {}
        self.newest = 0

    async def ask(self) -> None:
        found = await self._threats.keys(self._client, "/v1/keys/alpha/bravo")
        self._epochs, self._renew_at_us = found["epochs"], found["renew_at_us"]
        for epoch in self._epochs:
            if epoch["generation"] not in self._installed:
                self._installed.add(epoch["generation"])
                self._pair.install(epoch["epoch"], base64.b64decode(epoch["key"]))
            self.newest = max(self.newest, epoch["generation"])

    async def follow(self) -> None:
        while True:
            wait_s = min(1.0, max(0.1, (self._renew_at_us - time.time() * 1e6) / 1e6 + 0.05))
            await asyncio.sleep(wait_s)
            await self.ask()

    def send(self) -> qos.Signal:
        now_us = time.time() * 1e6
        usable = [one for one in self._epochs if one["sign_from_us"] <= now_us < one["expires_at_us"]]
        epoch = usable[-1]
        sequence = qos.next_sequence(self._sequences.get(epoch["generation"], 0))
        self._sequences[epoch["generation"]] = sequence
        made = qos.Signal(qos.Qos(guaranteed_rate=0x61B0), 1, epoch["epoch"], sequence)
        return made.sign(FLOW, base64.b64decode(epoch["key"]))

    def accept(self, sent: qos.Signal) -> bool:
        return self._pair.verify(sent, FLOW) is qos.Reason.OK


async def run(folder: Path, postgres: PostgresServer) -> tuple[dict[str, Figure], dict[str, Any]]:
    """All trials in order."""
    logs = [folder / "one.log", folder / "two.log", folder / "postgres.log"]
    times = {"authority_key_life_s": 2 * ROTATION_S, "authority_key_lead_s": 1.0}
    url = postgres.role_url("authority")
    replicas = [Replica(settings_of(url, folder / "state", **times), log) for log in logs[:2]]
    try:
        for replica in replicas:
            await replica.ready()
        threats = Threats(replicas)
        await threats.forge()
        await threats.reads()
        await threats.revoke()
        await threats.kill()
        await threats.rotate()
        for replica in replicas:
            await replica.place.close()
    finally:
        for replica in replicas:
            if replica.process.poll() is None:
                replica.stop()
    threats.search(logs, postgres.url)
    threats.figure("forgeries_tried", threats.tried, "forgeries", f">= {FORGERIES}")
    threats.figure("forgeries_accepted", threats.accepted, "forgeries", "<= 0")
    return threats.figures, threats.notes


def main() -> int:
    """Run; exit status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="chart-threats-") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        postgres = PostgresServer(folder)
        postgres.start()
        try:
            migrate.upgrade(postgres.create_database())
            figures, notes = asyncio.run(run(folder, postgres))
        finally:
            postgres.stop()
    out.mkdir(parents=True, exist_ok=True)
    listed = [
        {"name": one.name, "value": one.value, "unit": one.unit, "goal": one.goal, "peer": None}
        for one in figures.values()
    ]
    (out / "report.json").write_text(json.dumps({"command": "make threat-test", "figures": listed}, indent=2) + "\n")
    (out / "details.json").write_text(json.dumps(notes, indent=2) + "\n")
    for one in figures.values():
        verdict = {True: "met", False: "MISSED", None: ""}[one.met()]
        sys.stdout.write(f"{one.name:28} {one.value:>12} {one.unit:12} {one.goal or '':12} {verdict}\n")
    return 0 if all(one.met() is not False for one in figures.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
