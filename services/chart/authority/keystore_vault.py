"""HashiCorp Vault as the key store: Transit makes and wraps keys and signs receipts, PKI issues certificates.

The authority logs in by AppRole and renews its token at half life; when the token is lost it logs in again. What Vault
needs once (mounts, keys, role, policy) is set up by `chart.maintenance.vault`. The wrapping key of Transit is derived:
its context binds a wrapped key to its purpose.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import time
from typing import Any

import httpx
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chart.authority.keystore import (
    KEY_OCTETS,
    GeneratedKey,
    IssuedCertificate,
    KeyStoreError,
    KeyStoreUnavailable,
    Signature,
)
from chart.authority.keystore_embedded import jwk
from chart.authority.settings import AuthoritySettings

WRAPPING_KEY = "chart-keys"
RECEIPT_KEY = "chart-receipts"
PKI_ROLE = "chart"
KEYS_CACHED_S = 60.0
RETRIES = 2
# Logins that fail are counted by Vault, which locks a role out after a few: the same secret is not tried again sooner.
REFUSED_AGAIN_S = 300.0
NOT_LET_IN = "Vault does not let the authority in: the role id or the secret id of its AppRole is not good"

_log = structlog.get_logger("chart.authority.keystore")


class VaultKeyStore:
    """Key store in HashiCorp Vault: Transit wraps keys and signs receipts, PKI issues certificates."""

    name = "vault"

    def __init__(self, settings: AuthoritySettings) -> None:
        if not settings.vault_role_id or not (settings.vault_secret_id_file or settings.vault_secret_id):
            msg = "Vault needs CHART_VAULT_ROLE_ID and CHART_VAULT_SECRET_ID or CHART_VAULT_SECRET_ID_FILE (AppRole)"
            raise ValueError(msg)
        self._settings = settings
        verify: Any = str(settings.vault_ca_file) if settings.vault_ca_file else True
        self._client = httpx.AsyncClient(
            base_url=f"{settings.vault_address.rstrip('/')}/v1/",
            timeout=settings.vault_timeout_s,
            verify=verify,
            follow_redirects=False,
            trust_env=False,
        )
        self._token = ""
        self._renewing: asyncio.Task[None] | None = None
        self._login_lock = asyncio.Lock()
        self._refused: str | None = None
        self._refused_at = float("-inf")
        self._authority: x509.Certificate | None = None
        self._public: tuple[float, dict[str, Any]] | None = None

    async def open(self) -> None:
        """Connect to the store and create what is missing. Raises KeyStoreUnavailable."""
        await self._login()
        await self.authority()
        await self.receipt_keys()

    async def close(self) -> None:
        """Forget what is in memory and close connections. The token is given back."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._token:
            with contextlib.suppress(KeyStoreError, httpx.HTTPError):
                await self._send("POST", "auth/token/revoke-self", None)
        self._token = ""
        await self._client.aclose()

    async def check(self) -> None:
        """Return when the store works now. Raises KeyStoreUnavailable."""
        await self._ask("GET", f"{self._settings.vault_transit_mount}/keys/{WRAPPING_KEY}")

    async def generate(self, context: str) -> GeneratedKey:
        """A new 256-bit key for this purpose, plain and wrapped."""
        path = f"{self._settings.vault_transit_mount}/datakey/plaintext/{WRAPPING_KEY}"
        data = await self._ask("POST", path, {"context": _base64(context.encode()), "bits": 8 * KEY_OCTETS})
        return GeneratedKey(base64.b64decode(data["plaintext"]), data["ciphertext"])

    async def unwrap(self, context: str, wrapped: str) -> bytes:
        """The plain key. Raises KeyStoreError when it was wrapped for another purpose or elsewhere."""
        path = f"{self._settings.vault_transit_mount}/decrypt/{WRAPPING_KEY}"
        if not wrapped.startswith("vault:"):
            msg = f"a wrapped key of {context} was not wrapped by Vault"
            raise KeyStoreError(msg)
        data = await self._ask("POST", path, {"context": _base64(context.encode()), "ciphertext": wrapped})
        return base64.b64decode(data["plaintext"])

    async def issue(
        self, request: x509.CertificateSigningRequest, uri: str, *, life_s: float, names: tuple[str, ...] = ()
    ) -> IssuedCertificate:
        """A certificate for the request's key with `uri`, DNS names and addresses, valid for `life_s` seconds. Names of
        the request itself are not used: the role forbids it.
        """
        addresses, hosts = _kinds(names)
        body = {
            "csr": request.public_bytes(serialization.Encoding.PEM).decode(),
            "common_name": uri.rsplit("/", 1)[-1][:64],
            "exclude_cn_from_sans": True,
            "uri_sans": uri,
            "alt_names": ",".join(hosts),
            "ip_sans": ",".join(addresses),
            "not_after": (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=life_s)).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
        }
        role = f"{PKI_ROLE}-server" if names else PKI_ROLE
        data = await self._ask("POST", f"{self._settings.vault_pki_mount}/sign/{role}", body)
        return IssuedCertificate(data["certificate"].strip() + "\n", data["issuing_ca"].strip() + "\n")

    async def authority(self) -> x509.Certificate:
        """The certificate that issued all others."""
        if self._authority is None:
            data = await self._ask("GET", f"{self._settings.vault_pki_mount}/cert/ca")
            self._authority = x509.load_pem_x509_certificate(data["certificate"].encode())
        return self._authority

    async def sign_receipt(self, message: bytes) -> Signature:
        """An Ed25519 signature (64 octets) under the receipts' key."""
        path = f"{self._settings.vault_transit_mount}/sign/{RECEIPT_KEY}"
        data = await self._ask("POST", path, {"input": _base64(message)})
        _, version, value = data["signature"].split(":")
        return Signature(f"{RECEIPT_KEY}-{version}", base64.b64decode(value))

    async def receipt_keys(self) -> dict[str, Any]:
        """The public keys of receipts, past ones too, as a JWKS document. Held for a minute, and longer while Vault is
        away.
        """
        if self._public is not None and time.monotonic() - self._public[0] < KEYS_CACHED_S:
            return self._public[1]
        try:
            data = await self._ask("GET", f"{self._settings.vault_transit_mount}/keys/{RECEIPT_KEY}")
        except KeyStoreUnavailable:
            if self._public is None:
                raise
            return self._public[1]
        versions = sorted(data["keys"].items(), key=lambda one: int(one[0]))
        keys = [jwk(base64.b64decode(key["public_key"]), f"{RECEIPT_KEY}-v{number}") for number, key in versions]
        self._public = (time.monotonic(), {"keys": keys})
        return self._public[1]

    async def _login(self) -> None:
        settings = self._settings
        secret = settings.vault_secret_id.get_secret_value()
        if settings.vault_secret_id_file is not None:
            try:
                secret = settings.vault_secret_id_file.read_text().strip()
            except OSError as error:
                msg = f"the secret id of Vault's AppRole cannot be read: {error}"
                raise KeyStoreUnavailable(msg) from error
        if secret == self._refused and time.monotonic() - self._refused_at < REFUSED_AGAIN_S:
            raise KeyStoreUnavailable(NOT_LET_IN)
        try:
            answer = await self._send(
                "POST", "auth/approle/login", {"role_id": settings.vault_role_id, "secret_id": secret}, token=""
            )
        except KeyStoreUnavailable:
            raise
        except KeyStoreError as error:
            # It passes when an operator gives a new secret id; what is held goes on until then.
            self._refused, self._refused_at = secret, time.monotonic()
            raise KeyStoreUnavailable(NOT_LET_IN) from error
        self._token = answer["auth"]["client_token"]
        lease_s = float(answer["auth"]["lease_duration"])
        _log.info("logged in to Vault", lease_s=lease_s)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(lease_s))

    async def _renew(self, lease_s: float) -> None:
        """Renew the token at half of its life; a token that cannot be renewed is replaced by a new login."""
        while True:
            await asyncio.sleep(max(0.5, lease_s / 2))
            try:
                answer = await self._send("POST", "auth/token/renew-self", {})
                lease_s = float(answer["auth"]["lease_duration"])
            except KeyStoreError as error:
                _log.warning("the token of Vault was not renewed, logging in again", reason=str(error))
                with contextlib.suppress(KeyStoreError):
                    await self._login()
                lease_s = min(lease_s, 4.0)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The data of an answer; a lost token is replaced once."""
        for attempt in range(RETRIES):
            token = self._token
            try:
                answer = await self._send(method, path, body)
            except _TokenLost as lost:
                if attempt + 1 == RETRIES:
                    msg = "Vault does not accept the authority's token, nor a new login's"
                    raise KeyStoreUnavailable(msg) from lost
                async with self._login_lock:
                    if self._token == token:
                        await self._login()
                continue
            data: dict[str, Any] = answer["data"]
            return data
        raise AssertionError

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None, *, token: str | None = None
    ) -> dict[str, Any]:
        headers = {"X-Vault-Request": "true"}
        if token is None and self._token:
            headers["X-Vault-Token"] = self._token
        try:
            response = await self._client.request(method, path, json=body, headers=headers)
            answer = response.json() if response.content else {}
        except (httpx.HTTPError, ValueError) as error:
            msg = f"Vault cannot be reached at {self._settings.vault_address} ({type(error).__name__})"
            raise KeyStoreUnavailable(msg) from error
        if response.is_success:
            return dict(answer)
        reasons = "; ".join(str(one) for one in answer.get("errors", [])) or f"status {response.status_code}"
        if response.status_code == 503 and "sealed" in reasons.lower():
            msg = "Vault is sealed: an operator must unseal it"
            raise KeyStoreUnavailable(msg)
        if response.status_code in (429, 473, 500, 502, 503, 504):
            msg = f"Vault cannot answer now: {reasons}"
            raise KeyStoreUnavailable(msg)
        if response.status_code == 403:
            raise _TokenLost(reasons)
        msg = f"Vault refused {path.rsplit('/', 1)[0]}: {reasons}"
        raise KeyStoreError(msg)


class _TokenLost(KeyStoreError):  # noqa: N818 - caught here
    """403: the token ended, was revoked, or lacks the policy."""


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _kinds(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Addresses and host names apart."""
    addresses, hosts = [], []
    for name in names:
        try:
            addresses.append(str(ipaddress.ip_address(name)))
        except ValueError:
            hosts.append(name)
    return addresses, hosts
