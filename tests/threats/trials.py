"""What is tried against an installation's authority and streams, whoever installed it; each trial notes its figures and
the secrets that it saw.
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any

import httpx

from chart_lab.experiments.framework import Figure
from support.authority import OtherAuthority, Place
from support.waiting import eventually
from threats import hostile, impostors
from threats.forgeries import Attack

FORGERIES = 100_000


class Trials:
    """What an authority and the certificates of its nodes are enough for. ``signals`` comes first: it enrols alpha,
    bravo and mallory, who has every certificate and key of a node of its own.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.figures: dict[str, Figure] = {}
        self.secrets: set[str] = set()
        self.tried = 0
        self.accepted = 0
        self.notes: dict[str, Any] = {}
        self.nodes: dict[str, httpx.AsyncClient] = {}
        # Answers with the keys of alpha, and of mallory, towards bravo.
        self._true: Any = None
        self._strange: Any = None

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

    async def signals(self) -> None:
        """Forged signals: replayed, altered, raised, of strangers."""
        self.nodes = {name: await self.place.node(name) for name in ("alpha", "bravo", "mallory")}
        self._true = await self.keys(self.nodes["alpha"], "/v1/keys/alpha/bravo")
        self._strange = await self.keys(self.nodes["mallory"], "/v1/keys/mallory/bravo")
        epoch, own = self._true["epochs"][-1], self._strange["epochs"][-1]
        attack = Attack(
            base64.b64decode(epoch["key"]), epoch["epoch"], self._true["sender_id"], base64.b64decode(own["key"]), 1
        )
        attack.run(FORGERIES)
        self.tried += sum(attack.tried.values())
        self.accepted += sum(attack.accepted.values())
        self.notes["signals"] = {"tried": dict(attack.tried), "accepted": dict(attack.accepted)}
        assert attack.good_refused == 0

    async def impersonate(self) -> None:
        """Records and reports in the name of alpha, with all that mallory has."""
        thief, key = self.nodes["mallory"], base64.b64decode(self._strange["epochs"][-1]["key"])
        self.note("records", await impostors.records(self.place, thief))
        sender, epoch = self._true["sender_id"], self._true["epochs"][-1]["epoch"]
        self.note("reports", await impostors.reports(thief, sender, epoch, key))

    async def steal(self) -> None:
        """A stolen node certificate, used for other nodes' keys and for what only operators may do."""
        thief = self.nodes["mallory"]
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

    async def be_hostile(self) -> None:
        """Strangers, injection, bodies and heads that are too large, clients that are slow."""
        trials = {
            "strangers": await hostile.strangers(self.place, self.place.folder),
            "expired authorisation": await hostile.expired_authorisation(self.place, self.nodes["bravo"]),
            "requests": await hostile.requests(self.place),
            "slow clients": await hostile.slow(self.place),
        }
        for name, found in trials.items():
            self.note(name, found)

    async def revoke(self, places: list[Place]) -> None:
        """From the revocation at the first replica until all of them refuse, the neighbours know, and no consumer takes
        what the node writes.
        """
        files = await self.place.enrol("node/victim")
        neighbour = await self.place.node("neighbour")
        await self.keys(neighbour, "/v1/keys/victim/neighbour")
        thieves = [place.client(files) for place in places]
        writer = await impostors.Writer.of(self.place, "victim", thieves[0])
        assert await writer.own_taken()
        state = (await neighbour.get("/v1/next-hops")).json()
        told = asyncio.create_task(neighbour.get(f"/v1/next-hops?since={state['revision']}&wait_s=20"))
        began = time.monotonic()
        answer = await self.place.operator.post("/v1/revocations", json={"identity": "node/victim"})
        assert answer.status_code == 204

        async def cut_off() -> bool:
            return all([(await thief.get("/v1/elements")).status_code == 403 for thief in thieves])

        await eventually(cut_off, 20)
        assert {"element": "victim", "id": None} in (await told).json()["elements"]
        self.notes["revocation"] = {"authority_s": round(time.monotonic() - began, 3)}

        async def unheard() -> bool:
            return not await writer.own_taken()

        await eventually(unheard, 20)
        self.figure("revocation_s", round(time.monotonic() - began, 3), "s", "<= 10")

    def note(self, name: str, found: impostors.Findings) -> None:
        self.tried += found.tried
        self.accepted += len(found.accepted)
        self.notes[name] = {"tried": found.tried, "accepted": found.accepted}
        assert found.good_refused == 0, name

    def figure_of(self, name: str, unit: str, found: impostors.Findings) -> None:
        accepted = name if name.endswith(("_starts", "_across")) else f"{name}_accepted"
        self.figure(f"{name}_tried", found.tried, unit)
        self.figure(accepted, len(found.accepted), unit, "<= 0")
        self.notes[name] = {"tried": found.tried, "accepted": found.accepted}
        assert found.good_refused == 0, name


def listed(figures: dict[str, Figure]) -> list[dict[str, Any]]:
    """Figures as a report has them."""
    return [
        {"name": one.name, "value": one.value, "unit": one.unit, "goal": one.goal, "peer": one.peer}
        for one in figures.values()
    ]
