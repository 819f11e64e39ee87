"""What a pod's transfer carries with the rate that its annotation asks for, beside the same pod without it, under CUBIC
and under BBR.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster_manifests import PORT, TRAFFIC
from control_plane import ControlPlane, ControlPlaneError

SETTLE_S = 2.0
LIMIT_S = 60.0


@dataclass
class Transfers:
    """Goodputs in bits per second by way: chart, cubic, bbr."""

    goodput_bps: dict[str, list[float]] = field(default_factory=dict)

    def median_bps(self, way: str) -> float:
        """The median of a way."""
        return statistics.median(self.goodput_bps[way])


class PodRates:
    """The sender's pod and the receiver's; ``destination``: the node that the rate is to."""

    def __init__(self, plane: ControlPlane, rate: str, destination: str, say: Callable[[str], None]) -> None:
        self._plane, self._rate, self._destination, self._say = plane, rate, destination, say

    def pod(self, app: str) -> dict[str, Any]:
        """The running pod of a deployment."""
        text = self._plane.kubectl("-n", TRAFFIC, "get", "pods", "-l", f"app={app}", "-o", "json")
        found = [one for one in json.loads(text)["items"] if not one["metadata"].get("deletionTimestamp")]
        if len(found) != 1 or not found[0].get("status", {}).get("podIP"):
            msg = f"the pod {app} is not there yet"
            raise ControlPlaneError(msg)
        pod: dict[str, Any] = found[0]
        return pod

    def events(self, name: str) -> list[dict[str, Any]]:
        """Events of a pod that the rate controller wrote."""
        text = self._plane.kubectl(
            "-n", TRAFFIC, "get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json"
        )
        every: list[dict[str, Any]] = json.loads(text)["items"]
        return [one for one in every if one["source"].get("component") == "chart-rate-controller"]

    def annotate(self, name: str, *, on: bool) -> float:
        """Ask for the rate, or no more; returns the seconds until the pod's events say that it is enforced (0: off)."""
        seen = {(one["metadata"]["name"], one.get("count")) for one in self.events(name)}
        started = time.monotonic()
        marks = [f"chart.io/egress-rate={self._rate}", f"chart.io/destination={self._destination}"]
        if not on:
            marks = [f"{one.partition('=')[0]}-" for one in marks]
        self._plane.kubectl("-n", TRAFFIC, "annotate", "pod", name, "--overwrite", *marks)
        while on:
            new = [one for one in self.events(name) if (one["metadata"]["name"], one.get("count")) not in seen]
            if any(one["reason"] == "RateEnforced" for one in new):
                return time.monotonic() - started
            if time.monotonic() - started > LIMIT_S:
                words = "; ".join(one["message"] for one in new) or "no event"
                msg = f"the rate of pod {name} is not enforced after {LIMIT_S:.0f} s: {words}"
                raise ControlPlaneError(msg)
            time.sleep(0.1)
        return 0.0

    def transfer(self, address: str, seconds: float, congestion: str = "") -> float:
        """One transfer between the pods; its goodput in bits per second, from its first SYN."""
        sender, receiver = (self.pod(app)["metadata"]["name"] for app in ("sender", "receiver"))
        listening = subprocess.Popen(
            self._exec(receiver, seconds, "receive", "--listen", f"0.0.0.0:{PORT}"), stdout=subprocess.PIPE, text=True
        )
        try:
            time.sleep(SETTLE_S)
            more = ["--congestion", congestion] if congestion else []
            to = ("--connect", f"{address}:{PORT}", "--duration-s", str(seconds))
            command = self._exec(sender, seconds, "send", *to, *more)
            sent = subprocess.run(command, capture_output=True, text=True, timeout=seconds + LIMIT_S, check=False)
            if sent.returncode:
                msg = f"the transfer failed: {sent.stderr.strip()[-500:]}"
                raise ControlPlaneError(msg)
            told, _ = listening.communicate(timeout=LIMIT_S)
        finally:
            listening.kill()
            listening.wait()
        try:
            return float(json.loads(told)["bytes"] * 8 / seconds)
        except (ValueError, LookupError):
            msg = f"the receiver tells {told[:200]!r} and not what it got"
            raise ControlPlaneError(msg) from None

    def _exec(self, pod: str, seconds: float, *arguments: str) -> list[str]:
        # What runs in the pod does not end with kubectl.
        limited = ["timeout", str(round(seconds + LIMIT_S)), "/opt/lab/bulk", *arguments]
        program = [str(self._plane.tools / "kubernetes"), "kubectl", "--kubeconfig", str(self._plane.kubeconfig)]
        return [*program, "-n", TRAFFIC, "exec", pod, "--", *limited]

    def compare(self, turns: int, seconds: float) -> Transfers:
        """As many turns; in every second one the order is reversed (ABBA)."""
        found = Transfers()
        address = self.pod("receiver")["status"]["podIP"]
        name = self.pod("sender")["metadata"]["name"]
        for turn in range(turns):
            ways = ["chart", "cubic", "bbr"]
            for way in ways if turn % 2 == 0 else reversed(ways):
                if way == "chart":
                    self.annotate(name, on=True)
                    goodput_bps = self.transfer(address, seconds)
                    self.annotate(name, on=False)
                    time.sleep(SETTLE_S)
                else:
                    goodput_bps = self.transfer(address, seconds, way)
                found.goodput_bps.setdefault(way, []).append(goodput_bps)
                self._say(f"turn {turn + 1} of {turns}: {way} carries {goodput_bps / 1e6:.1f} Mb/s")
        return found
