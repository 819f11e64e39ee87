"""What the key store makes of Vault's answers, given by a server of this process; a real Vault has its own tests."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509
from pydantic import SecretStr

from chart.authority.keystore import KeyStoreError, KeyStoreUnavailable
from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.authority.keystore_vault import CALLS_AT_ONCE, VaultKeyStore
from chart.authority.settings import AuthoritySettings
from support.authority import csr, new_key
from support.authority import store as files

LOGIN = "/v1/auth/approle/login"
DATAKEY = "/v1/transit/datakey/plaintext/chart-keys"


@dataclass
class Answers:
    """Answers of a path, the last one again and again; what was asked, with the token."""

    of: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    logins: int = 0

    def next(self, path: str, token: str) -> tuple[int, Any]:
        self.asked.append((path, token))
        if path == LOGIN and path not in self.of:
            self.logins += 1
            return 200, {"auth": {"client_token": f"token-{self.logins}", "lease_duration": 3600}}
        queue = self.of.get(path, [(200, {"data": {}})])
        return queue.pop(0) if len(queue) > 1 else queue[0]


@pytest.fixture
def answers() -> Answers:
    return Answers()


@contextmanager
def serving(answers: Answers, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The server's address: HTTPS with a context."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = answers.next(self.path, self.headers.get("X-Vault-Token", ""))
            if body == "hang":
                answers.go_on.wait(10)
            octets = b"" if status == 204 else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(octets)))
            self.end_headers()
            self.wfile.write(octets)

        do_GET = do_POST  # noqa: N815 - the name is the library's

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on standard error."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Nothing on standard error: clients that hang up are meant."""

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_address[1]}"
        finally:
            answers.go_on.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def address(answers: Answers) -> Iterator[str]:
    with serving(answers) as found:
        yield found


@pytest_asyncio.fixture
async def store(address: str, answers: Answers) -> AsyncIterator[VaultKeyStore]:
    """Logged in."""
    made = VaultKeyStore(
        AuthoritySettings(
            vault_address=address, vault_role_id="role", vault_secret_id=SecretStr("secret"), vault_timeout_s=0.3
        )
    )
    await made._login()
    yield made
    await made.close()


def plain(octets: bytes) -> tuple[int, Any]:
    return 200, {"data": {"plaintext": base64.b64encode(octets).decode(), "ciphertext": "vault:v1:x"}}


REFUSED = (403, {"errors": ["permission denied"]})


async def test_a_lost_token_is_replaced_by_a_new_login_which_does_not_carry_it(
    store: VaultKeyStore, answers: Answers
) -> None:
    answers.of[DATAKEY] = [REFUSED, plain(b"k" * 32)]
    assert (await store.generate("pair")).plain == b"k" * 32
    assert answers.asked == [(LOGIN, ""), (DATAKEY, "token-1"), (LOGIN, ""), (DATAKEY, "token-2")]


async def test_calls_that_lose_the_token_together_log_in_once(store: VaultKeyStore, answers: Answers) -> None:
    answers.of[DATAKEY] = [*[REFUSED] * 8, plain(b"k" * 32)]
    made = await asyncio.gather(*(store.generate("pair") for _ in range(8)))
    assert [one.plain for one in made] == [b"k" * 32] * 8
    assert answers.logins == 2


async def test_a_refusal_after_a_new_login_is_told(store: VaultKeyStore, answers: Answers) -> None:
    answers.of[DATAKEY] = [REFUSED]
    with pytest.raises(KeyStoreUnavailable, match="nor a new login's"):
        await store.generate("pair")
    assert answers.logins == 2


async def test_a_secret_id_that_was_refused_is_not_tried_again_soon(store: VaultKeyStore, answers: Answers) -> None:
    answers.of[DATAKEY] = [REFUSED]
    answers.of[LOGIN] = [(400, {"errors": ["invalid role or secret ID"]})]
    for _ in range(3):
        with pytest.raises(KeyStoreUnavailable, match="secret id of its AppRole is not good"):
            await store.generate("pair")
    assert [path for path, _ in answers.asked].count(LOGIN) == 2


@pytest.mark.parametrize(
    ("status", "errors", "passes", "words"),
    [
        (503, ["Vault is sealed"], True, "an operator must unseal it"),
        (503, ["no leader"], True, "cannot answer now: no leader"),
        (429, [], True, "RateLimitExceeded"),
        (473, [], True, "cannot answer now"),
        (500, ["one", "two"], True, "one; two"),
        (502, [], True, "cannot answer now"),
        (504, [], True, "cannot answer now"),
        (400, ["ciphertext is too short"], False, "refused transit/datakey/plaintext: ciphertext is too short"),
        (404, [], False, "refused transit/datakey/plaintext"),
        (307, [], True, "status 307"),
    ],
)
async def test_each_refusal_is_told_as_what_it_means(
    store: VaultKeyStore, answers: Answers, status: int, errors: list[str], passes: bool, words: str
) -> None:
    answers.of[DATAKEY] = [(status, {"errors": errors})]
    with pytest.raises(KeyStoreError, match=words) as caught:
        await store.generate("pair")
    assert isinstance(caught.value, KeyStoreUnavailable) is passes


async def test_a_vault_that_hangs_is_given_up_by_every_call_also_by_those_without_a_thread(
    store: VaultKeyStore, answers: Answers
) -> None:
    answers.of[DATAKEY] = [(200, "hang")]
    calls = (store.generate("pair") for _ in range(8 * CALLS_AT_ONCE))
    begun = asyncio.get_running_loop().time()
    told = await asyncio.gather(*calls, return_exceptions=True)
    # Three times the timeout of 0.3 s; one thread after the other would take 2.4 s.
    assert asyncio.get_running_loop().time() - begun < 2.0
    assert all(isinstance(one, KeyStoreUnavailable) and "cannot be reached" in str(one) for one in told)


async def test_closing_gives_the_token_back(address: str, answers: Answers) -> None:
    settings = AuthoritySettings(vault_address=address, vault_role_id="role", vault_secret_id=SecretStr("secret"))
    store = VaultKeyStore(settings)
    await store._login()
    answers.of["/v1/auth/token/revoke-self"] = [(204, None)]
    await store.close()
    assert answers.asked[-1] == ("/v1/auth/token/revoke-self", "token-1")


async def test_vault_is_known_by_the_ca_file_and_by_nothing_else(answers: Answers, tmp_path: Path) -> None:
    authority = EmbeddedKeyStore(tmp_path / "store", "chart.local")
    await authority.open()
    key = new_key()
    request = x509.load_pem_x509_csr(csr(key).encode())
    issued = await authority.issue(request, "spiffe://chart.local/service/vault", life_s=600, names=("127.0.0.1",))
    (tmp_path / "ca.pem").write_text(issued.authority_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files(tmp_path, "vault", key, issued.pem))
    with serving(answers, context) as address:
        told: dict[str, Any] = {
            "vault_address": address,
            "vault_role_id": "role",
            "vault_secret_id": SecretStr("secret"),
        }
        good = VaultKeyStore(AuthoritySettings(**told, vault_ca_file=tmp_path / "ca.pem"))
        await good._login()
        await good.close()
        without = VaultKeyStore(AuthoritySettings(**told))
        with pytest.raises(KeyStoreUnavailable, match="SSLError"):
            await without._login()
        await without.close()
    await authority.close()
