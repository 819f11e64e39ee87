"""Receives what CHART tells an application about its rates, and believes only what is signed.

    python receive_notices.py --port 8090 &
    chart request create ... --callback http://127.0.0.1:8090/

In production CHART calls only https addresses: put it behind whatever ends TLS.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

from chart_client import Client

OLDEST_S = 300
LONGEST_BYTES = 1_000_000


def genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether CHART sent this in the last five minutes (Standard Webhooks)."""
    identity, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not moment.isdecimal() or abs(time.time() - int(moment)) > OLDEST_S:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = identity.encode() + b"." + moment.encode() + b"." + body
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(expected.encode(), one.encode()) for one in given)


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to a genuine notice, 401 to anything else."""

    timeout = 5
    secret = ""
    seen: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        """One notice. It may come twice with the same id."""
        length = min(int(self.headers.get("content-length") or 0), LONGEST_BYTES)
        body = self.rfile.read(length)
        if not genuine(self.secret, self.headers, body):
            self.send_error(401, "not signed by CHART")
            return
        identity = self.headers["webhook-id"]
        if identity not in self.seen:
            self.seen.add(identity)
            notice = json.loads(body)
            print(json.dumps(notice), flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing: what was received is printed."""


def main() -> int:
    """Listen until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8090)
    asked = parser.parse_args()
    with Client() as chart:
        Receiver.secret = chart.callbacks.secret()
    with HTTPServer(("127.0.0.1", asked.port), Receiver) as server:
        print(f"listening on port {server.server_address[1]}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
