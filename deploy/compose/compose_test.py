"""`make compose-test`: the whole platform of docker-compose.yml, up, asked for a rate as the demo does, upgraded, down.

Two agents run in network namespaces of their own (compose.test.yml), each with a sensor pod; a request counts as
enforced when the agents along its path (that of its sender, here) have confirmed it. The platform starts in the
previous version. Then the schemas are brought up to date under it and every service and agent is replaced by the new
one, one after the other, while requests are posted and a path is measured: a request that was acknowledged and is not
there afterwards is lost, and so is a measurement that a pod has taken and the archive does not have. At the end a
backup is taken, every volume is thrown away and the backup restored: every request has to be back. Both nodes are
enrolled from the start; in the new version records are checked (trust.py), and Prometheus has to see every service
(observability.py); at last everything is thrown away once more and the commands of docs/install.md are followed from
nothing to an enforced rate (page.py). Exit status 1 with the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import observability
import page
import threatened
import trust
from installation import (
    AGENTS,
    NODES,
    PODS,
    ROOT,
    SETTLE_LIMIT_S,
    UPGRADED,
    ComposeTestError,
    Installation,
    address_of,
    client,
    figure,
    make_cgroups,
    put,
    remove_cgroups,
    say,
)
from rights import least_rights
from upgrade import upgrade

from chart_lab import demo
from chart_lab.platform import laboratory

ENGINE = str(ROOT / "deploy" / "images" / "engine")
CAPACITY_BPS = 1_000_000_000
# Where Vault has no image it is built from its source, which takes two busy cores half an hour.
BUILD_LIMIT_S = 3600.0


def register(rest: httpx.Client, installation: Installation) -> None:
    """State both nodes with the addresses of their containers, and the link of each to the other."""
    for node in NODES:
        address = address_of(installation, node)
        put(rest, f"/v1/nodes/{node}", {"description": "node of the test", "addresses": [f"{address}/32"]})
    for node, other in zip(NODES, reversed(NODES), strict=True):
        put(rest, f"/v1/links/{node}:eth0", {"to_node": other, "capacity_bps": CAPACITY_BPS, "delay_us": 50})


def bring_up(installation: Installation) -> float:
    """Start everything; seconds until all of it is healthy. Pods that wait for their identity are not."""
    started = time.monotonic()
    installation.compose("up", "-d")
    for service in ("web", *AGENTS, *(() if installation.needs_identity else PODS)):
        installation.wait_healthy(service)
    return time.monotonic() - started


def all_requests(rest: httpx.Client) -> dict[str, tuple[str, int]]:
    """Every rate request by id: what became of it, and its granted rate."""
    found: dict[str, tuple[str, int]] = {}
    query = {"limit": "200"}
    while True:
        page = laboratory.fetch(rest, "/v1/rate-requests", **query)
        found |= {one["id"]: (one["lifecycle"], one["granted_bps"]) for one in page["items"]}
        if not page["next_cursor"]:
            return found
        query["cursor"] = page["next_cursor"]


def restored(installation: Installation, folder: Path, demonstration: str) -> list[dict[str, Any]]:
    """Back up, forget every volume, restore: every request is there as it was, and `demonstration` enforced again.

    Raises:
        ComposeTestError: it cannot be restored, or Vault does not open what it closed.
    """
    with client(installation) as rest:
        before = all_requests(rest)
    backup = installation.backup("take", str(folder))
    say(f"took a backup with {len(before)} requests; everything is thrown away")
    installation.compose("down", "--volumes", limit_s=180)
    started = time.monotonic()
    installation.backup("restore", backup)
    bring_up(installation)
    restore_s = time.monotonic() - started
    # Their certificates went with their volumes; the authority's word and keys came back.
    trust.enrol(installation, NODES)
    for pod in PODS:
        installation.wait_healthy(pod)
    with client(installation) as rest:
        after = all_requests(rest)
        lost = [identity for identity, request in before.items() if after.get(identity) != request]
        say(f"{len(before) - len(lost)} of {len(before)} requests are back after {restore_s:.0f} s")
        laboratory.wait_ready(rest)
        wait_enforced(rest, demonstration)
    return [
        figure("lost_in_restore", len(lost), "requests", "= 0"),
        figure("restore_s", restore_s, "s"),
    ]


def run(installation: Installation, following: str | None, scratch: Path, details: Path) -> list[dict[str, Any]]:
    """Everything on a platform that this brings up; `following` is the version to upgrade to, `details` gets what was
    tried against it.
    """
    up_s = bring_up(installation)
    say(f"everything is up and healthy after {up_s:.0f} s")
    least_rights(installation)
    with client(installation) as rest:
        register(rest, installation)
        put(rest, "/v1/policies/default", {"enforcement": "enforce"})
        # Agents that have an authority hold back what they report until they can sign it.
        trust.enrol(installation, NODES)
        laboratory.wait_ready(rest)
        say("both agents report, every link has a load and a rate")
        request, enforced_ms = demo.ask_for_rate(rest)
        granted = f"{request['granted_bps'] / 1e6:.0f} Mb/s"
        say(f"{granted} are enforced on {request['confirming_nodes']} after {enforced_ms:.0f} ms")
        figures = [figure("up_s", up_s, "s"), figure("request_to_enforced_ms", enforced_ms, "ms", "<= 1000")]
        if following:
            requests, measurements = upgrade(installation, rest, following)
            figures.append(figure("lost_in_upgrade", requests, "requests", "= 0"))
            figures.append(figure("measurements_lost_in_upgrade", measurements, "measurements", "= 0"))
            wait_enforced(rest, request["id"])
            least_rights(installation)
        figures += trusted(installation, rest, details)
        wait_enforced(rest, request["id"])
    figures += restored(installation, scratch, request["id"])
    installation.compose("down", "--volumes", limit_s=180)
    say("everything is thrown away; following docs/install.md")
    started = time.monotonic()
    installation.follow_page()
    return [*figures, figure("install_page_s", time.monotonic() - started, "s")]


def trusted(installation: Installation, rest: httpx.Client, details: Path) -> list[dict[str, Any]]:
    """Take the records of enrolled nodes alone from now on, and try what others write, forge and steal.

    Raises:
        trust.TrustError: what is wrong.
    """
    installation.as_installed()
    for service in (*UPGRADED, *AGENTS, *PODS):
        installation.wait_healthy(service)
    trust.wait_enrolled(installation, NODES)
    laboratory.wait_ready(rest)
    least_rights(installation)
    found = trust.figures(installation, rest, NODES)
    found |= observability.figures(
        installation.prometheus, lambda: installation.compose("logs", "--no-color", "collector"), NODES
    )
    say(", ".join(f"{name} {value:g}" for name, (value, _, _) in found.items()))
    for name, (value, _, goal) in found.items():
        sign, bound = goal.split()
        if not (value >= float(bound) if sign == ">=" else value == float(bound)):
            msg = f"{name} is {value:g}, not {goal}"
            raise ComposeTestError(msg)
    trust.tokens_are_good_once(installation, *NODES)
    say("a token is good once, and its agent says so")
    tried = threatened.figures(installation, details)
    say(", ".join(f"{one['name']} {one['value']:g}" for one in tried))
    return [*(figure(name, *facts) for name, facts in found.items()), *tried]


def wait_enforced(rest: httpx.Client, identity: str) -> None:
    """The demo's request is enforced again after its agents were replaced.

    Raises:
        ComposeTestError: not in time.
    """
    end = time.monotonic() + SETTLE_LIMIT_S
    while True:
        request = rest.get(f"/v1/rate-requests/{identity}").raise_for_status().json()
        if request["enforcement"] == "ENFORCED":
            return
        if time.monotonic() > end:
            msg = f"the demo's request is {request['enforcement']} after the upgrade: {request['reason']}"
            raise ComposeTestError(msg)
        time.sleep(0.5)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--tag", required=True, help="tag of the images")
    parser.add_argument("--previous", help="tag of the version to start with; without it nothing is upgraded")
    arguments = parser.parse_args()
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    try:
        engine = subprocess.run(
            [ENGINE, "up", str(ROOT / "build" / "docker")], capture_output=True, text=True, check=True
        )
        os.environ["DOCKER_HOST"] = engine.stdout.strip()
        installation = Installation(arguments.report.parent.resolve(), arguments.previous or arguments.tag)
        installation.compose("build", limit_s=BUILD_LIMIT_S)
        try:
            make_cgroups()
            with tempfile.TemporaryDirectory(prefix="chart-compose-") as scratch:
                following = arguments.tag if arguments.previous else None
                figures = run(installation, following, Path(scratch), arguments.report.with_name("threats.json"))
        except Exception:
            logs = arguments.report.with_name("services.log")
            logs.write_text(installation.compose("logs", "--no-color", limit_s=120), encoding="utf-8")
            say(f"what the containers said is in {logs}")
            raise
        finally:
            installation.compose("down", "--volumes", "--remove-orphans", limit_s=180)
            remove_cgroups()
    except (
        ComposeTestError,
        trust.TrustError,
        observability.ObservabilityError,
        page.PageError,
        laboratory.LaboratoryError,
        httpx.HTTPError,
        subprocess.SubprocessError,
    ) as error:
        say(f"failed: {error}")
        return 1
    report = {"command": "make compose-test", "figures": figures}
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(f"wrote {arguments.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
