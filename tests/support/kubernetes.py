"""A small API server of Kubernetes: reviews of made-up service account tokens, pods, one config map."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

OWN_TOKEN = "token-of-the-authority"
AUDIENCE = "chart-authority"
EXTRA = "authentication.kubernetes.io/"


def token(account: str, *, audience: str = AUDIENCE, pod: str = "", node: str = "", life_s: float = 3600) -> str:
    """A token as the cluster would sign it; the signature is its claims' length, which is what `review` looks at."""
    claims = {
        "sub": f"system:serviceaccount:{account.replace('/', ':')}", "aud": [audience],
        "exp": int(time.time() + life_s), "pod": pod, "node": node, "kubernetes.io": {},
    }  # fmt: skip
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.{len(body)}"


def review(spec: dict[str, Any]) -> dict[str, Any]:
    """The status of a TokenReview, as kube-apiserver answers."""
    _, body, signature = spec["token"].split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    if signature != str(len(body)) or claims["exp"] < time.time():
        return {"user": {}, "error": "[invalid bearer token, token is invalid]"}
    if not set(spec["audiences"]) & set(claims["aud"]):
        return {"user": {}, "error": "[invalid bearer token, token audiences are invalid]"}
    extra = (
        {EXTRA + "pod-name": [claims["pod"]], EXTRA + "pod-uid": [f"uid-of-{claims['pod']}"]} if claims["pod"] else {}
    )
    extra |= {EXTRA + "node-name": [claims["node"]]} if claims["node"] else {}
    user = {"username": claims["sub"], "extra": extra}
    return {"authenticated": True, "user": user, "audiences": spec["audiences"]}


@dataclass
class FakeApiServer:
    """What was asked, and what is known. ``nodes``: where pods of the namespace chart run."""

    url: str = ""
    away: bool = False
    forbidden: bool = False
    nodes: dict[str, str] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)

    def answer(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and document of one call."""
        if self.away:
            return 503, {"message": "etcd is away"}
        if self.forbidden:
            return 403, {"message": 'tokenreviews is forbidden: User "x" cannot create resource "tokenreviews"'}
        if (method, path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"):
            return 201, {"status": review(body["spec"])}
        if method == "PATCH" and path == "/api/v1/namespaces/chart/configmaps/ca":
            self.published |= body["data"]
            return 200, {"data": self.published}
        pod = path.removeprefix("/api/v1/namespaces/chart/pods/")
        if method == "GET" and pod in self.nodes:
            return 200, {"metadata": {"uid": f"uid-of-{pod}"}, "spec": {"nodeName": self.nodes[pod]}}
        return 404, {"message": f"{path} not found"}

    def settings(self, folder: Path, **accounts: tuple[str, ...]) -> dict[str, Any]:
        """Settings of an authority in this cluster; ``accounts``: of the namespace chart."""
        own = folder / "api-token"
        own.write_text(f"{OWN_TOKEN}\n")
        return {
            "authority_kubernetes_url": self.url,
            "authority_kubernetes_token_file": own,
            "authority_kubernetes_accounts": {f"chart/{name}": who for name, who in accounts.items()},
            "authority_kubernetes_config_map": "chart/ca",
        }


@contextmanager
def fake_api_server() -> Iterator[FakeApiServer]:
    """One on a free port of loopback."""
    fake = FakeApiServer()

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
            status, document = fake.answer(self.command, self.path, body)
            if self.headers["Authorization"] != f"Bearer {OWN_TOKEN}":
                status, document = 401, {"message": "Unauthorized"}
            octets = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(octets)))
            self.end_headers()
            self.wfile.write(octets)

        do_GET = do_POST = do_PATCH = do  # noqa: N815 - the names that the server calls

        def log_message(self, *_: object) -> None:
            """Nothing: the tests say what they asked."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
