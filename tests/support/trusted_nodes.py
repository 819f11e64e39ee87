"""Nodes of the demo lab that the local platform's authority trusts, for the page that shows keys and certificates:
enrolled with one-time tokens that an operator makes, asking for the keys of their neighbours as agents do.

    python -m support.trusted_nodes --platform [--revoke NODE]
"""

from __future__ import annotations

import argparse
import itertools
import ssl
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from chart_lab.platform.settings import PlatformSettings
from support.authority import csr, new_key, store

CHAIN = ("alpha", "bravo", "charlie", "delta")


def _client(settings: PlatformSettings, files: tuple[str, str] | None) -> httpx.Client:
    """A client of the authority with the certificate of these files, or none."""
    context = ssl.create_default_context(cafile=str(settings.state_dir / "authority" / "ca.pem"))
    if files is not None:
        context.load_cert_chain(*files)
    return httpx.Client(base_url=settings.authority_url, verify=context, timeout=20, trust_env=False)


def _good(answer: httpx.Response) -> httpx.Response:
    if answer.is_error:
        msg = f"{answer.request.method} {answer.request.url.path} got {answer.status_code}: {answer.text}"
        raise RuntimeError(msg)
    return answer


def _operator(settings: PlatformSettings) -> httpx.Client:
    base = settings.state_dir / "authority" / "identities" / "user-operator"
    return _client(settings, (f"{base}.pem", f"{base}.key"))


def trust(settings: PlatformSettings, nodes: Sequence[str], folder: Path) -> int:
    """Enrol the nodes, and have each two neighbours get their keys; returns how many keys there are."""
    files = {}
    with _operator(settings) as operator, _client(settings, None) as newcomer:
        for node in nodes:
            token = _good(operator.post("/v1/enrolments", json={"identity": f"node/{node}"})).json()["token"]
            key = new_key()
            issued = _good(newcomer.post("/v1/certificates", json={"csr": csr(key), "token": token}))
            files[node] = store(folder, node, key, issued.json()["certificate"])
    keys = 0
    for sender, receiver in [*itertools.pairwise(nodes), *itertools.pairwise(reversed(nodes))]:
        with _client(settings, files[sender]) as element:
            keys += bool(_good(element.get(f"/v1/keys/{sender}/{receiver}")).json()["epochs"])
    return keys


def main(words: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="support.trusted_nodes", description=__doc__)
    parser.add_argument("--platform", action="store_true", required=True, help="yes, at the local platform's authority")
    parser.add_argument("--revoke", metavar="NODE", help="only take this node's certificate back")
    chosen = parser.parse_args(words)
    settings = PlatformSettings()
    if chosen.revoke:
        with _operator(settings) as operator:
            _good(operator.post("/v1/revocations", json={"identity": f"node/{chosen.revoke}"}))
        return 0
    with tempfile.TemporaryDirectory(prefix="chart-trusted-") as folder:
        print(f"{trust(settings, CHAIN, Path(folder))} keys of {len(CHAIN)} nodes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
