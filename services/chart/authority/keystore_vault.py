"""HashiCorp Vault as the key store: Transit makes and wraps keys and signs receipts, PKI issues certificates.

Vault is spoken to by its client library hvac, which waits for every answer: calls run in a few threads of the store's
own, so that a Vault that hangs holds these and nothing else of the authority.

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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import hvac
import requests
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hvac import exceptions as refusals

from chart.authority.identity import of_uri
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
from chart.common.names import common_name

WRAPPING_KEY = "chart-keys"
RECEIPT_KEY = "chart-receipts"
PKI_ROLE = "chart"
KEYS_CACHED_S = 60.0
CALLS_AT_ONCE = 16
# States that pass: 429, 500, 502, 503, and those that hvac has no name for (473: a standby, 504).
PASSING = (
    refusals.RateLimitExceeded,
    refusals.InternalServerError,
    refusals.BadGateway,
    refusals.VaultDown,
    refusals.UnexpectedError,
)
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
        self._session = requests.Session()
        self._session.trust_env = False
        if settings.vault_ca_file:
            # Of the session: hvac prefers that to what its client is told.
            self._session.verify = str(settings.vault_ca_file)
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=CALLS_AT_ONCE))
        self._session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=CALLS_AT_ONCE))
        self._vault = self._client()
        self._threads = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="vault")
        self._renewing: asyncio.Task[None] | None = None
        self._login_lock = asyncio.Lock()
        self._refused: str | None = None
        self._refused_at = float("-inf")
        self._authority: x509.Certificate | None = None
        self._public: tuple[float, dict[str, Any]] | None = None

    def _client(self) -> hvac.Client:
        """A client without a token, over the connections of all."""
        settings = self._settings
        return hvac.Client(
            url=settings.vault_address.rstrip("/"),
            token="",
            timeout=settings.vault_timeout_s,
            allow_redirects=False,
            session=self._session,
        )

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
        if self._vault.token:
            with contextlib.suppress(KeyStoreError):
                await self._send(self._vault.auth.token.revoke_self)
        self._vault.token = ""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._session.close()

    async def check(self) -> None:
        """Return when the store works now. Raises KeyStoreUnavailable."""
        await self._read_key(WRAPPING_KEY)

    async def generate(self, context: str) -> GeneratedKey:
        """A new 256-bit key for this purpose, plain and wrapped."""
        data = await self._ask(
            lambda: self._vault.secrets.transit.generate_data_key(
                WRAPPING_KEY,
                "plaintext",
                context=_base64(context.encode()),
                bits=8 * KEY_OCTETS,
                mount_point=self._settings.vault_transit_mount,
            )
        )
        return GeneratedKey(base64.b64decode(data["plaintext"]), data["ciphertext"])

    async def unwrap(self, context: str, wrapped: str) -> bytes:
        """The plain key. Raises KeyStoreError when it was wrapped for another purpose or elsewhere."""
        if not wrapped.startswith("vault:"):
            msg = f"a wrapped key of {context} was not wrapped by Vault"
            raise KeyStoreError(msg)
        data = await self._ask(
            lambda: self._vault.secrets.transit.decrypt_data(
                WRAPPING_KEY,
                ciphertext=wrapped,
                context=_base64(context.encode()),
                mount_point=self._settings.vault_transit_mount,
            )
        )
        return base64.b64decode(data["plaintext"])

    async def issue(
        self, request: x509.CertificateSigningRequest, uri: str, *, life_s: float, names: tuple[str, ...] = ()
    ) -> IssuedCertificate:
        """A certificate for the request's key with `uri`, DNS names and addresses, valid for `life_s` seconds. Names of
        the request itself are not used: the role forbids it.
        """
        addresses, hosts = _kinds(names)
        identity = of_uri(uri)
        # Nodes are servers too (their sensor pods); of services only those that are given names.
        role = f"{PKI_ROLE}-{'server' if names and identity.kind == 'service' else identity.kind}"
        extra = {
            "exclude_cn_from_sans": True,
            # The rest of identity.subject: the role adds the kind, so that nobody but the issuer says it.
            "user_ids": identity.name,
            "uri_sans": uri,
            "alt_names": ",".join(hosts),
            "ip_sans": ",".join(addresses),
            "not_after": (datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=life_s)).strftime(
                "%Y-%m-%dT%H:%M:%SZ"
            ),
        }
        data = await self._ask(
            lambda: self._vault.secrets.pki.sign_certificate(
                role,
                request.public_bytes(serialization.Encoding.PEM).decode(),
                common_name(identity.name),
                extra_params=extra,
                mount_point=self._settings.vault_pki_mount,
            )
        )
        return IssuedCertificate(data["certificate"].strip() + "\n", data["issuing_ca"].strip() + "\n")

    async def authority(self) -> x509.Certificate:
        """The certificate that issued all others."""
        if self._authority is None:
            data = await self._ask(
                lambda: self._vault.secrets.pki.read_certificate("ca", mount_point=self._settings.vault_pki_mount)
            )
            self._authority = x509.load_pem_x509_certificate(data["certificate"].encode())
        return self._authority

    async def sign_receipt(self, message: bytes) -> Signature:
        """An Ed25519 signature (64 octets) under the receipts' key."""
        data = await self._ask(
            lambda: self._vault.secrets.transit.sign_data(
                RECEIPT_KEY, hash_input=_base64(message), mount_point=self._settings.vault_transit_mount
            )
        )
        _, version, value = data["signature"].split(":")
        return Signature(f"{RECEIPT_KEY}-{version}", base64.b64decode(value))

    async def receipt_keys(self) -> dict[str, Any]:
        """The public keys of receipts, past ones too, as a JWKS document. Held for a minute, and longer while Vault is
        away.
        """
        if self._public is not None and time.monotonic() - self._public[0] < KEYS_CACHED_S:
            return self._public[1]
        try:
            data = await self._read_key(RECEIPT_KEY)
        except KeyStoreUnavailable:
            if self._public is None:
                raise
            return self._public[1]
        versions = sorted(data["keys"].items(), key=lambda one: int(one[0]))
        keys = [jwk(base64.b64decode(key["public_key"]), f"{RECEIPT_KEY}-v{number}") for number, key in versions]
        self._public = (time.monotonic(), {"keys": keys})
        return self._public[1]

    async def _read_key(self, name: str) -> dict[str, Any]:
        return await self._ask(
            lambda: self._vault.secrets.transit.read_key(name, mount_point=self._settings.vault_transit_mount)
        )

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
            # Without the token that was lost, which other calls still hold.
            approle = self._client().auth.approle
            answer = await self._send(lambda: approle.login(settings.vault_role_id, secret, use_token=False))
        except KeyStoreUnavailable:
            raise
        except KeyStoreError as error:
            # It passes when an operator gives a new secret id; what is held goes on until then.
            self._refused, self._refused_at = secret, time.monotonic()
            raise KeyStoreUnavailable(NOT_LET_IN) from error
        self._vault.token = answer["auth"]["client_token"]
        lease_s = float(answer["auth"]["lease_duration"])
        _log.info("logged in to Vault", lease_s=lease_s)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._renew(lease_s))

    async def _renew(self, lease_s: float) -> None:
        """Renew the token at half of its life; a token that cannot be renewed is replaced by a new login."""
        while True:
            await asyncio.sleep(max(0.5, lease_s / 2))
            try:
                answer = await self._send(self._vault.auth.token.renew_self)
                lease_s = float(answer["auth"]["lease_duration"])
            except KeyStoreError as error:
                _log.warning("the token of Vault was not renewed, logging in again", reason=str(error))
                with contextlib.suppress(KeyStoreError):
                    await self._login()
                lease_s = min(lease_s, 4.0)

    async def _ask(self, call: Callable[[], Any]) -> dict[str, Any]:
        """The data of an answer; a lost token is replaced once."""
        token = self._vault.token
        try:
            answer = await self._send(call)
        except _TokenLost:
            async with self._login_lock:
                if self._vault.token == token:
                    await self._login()
            try:
                answer = await self._send(call)
            except _TokenLost as lost:
                msg = "Vault does not accept the authority's token, nor a new login's"
                raise KeyStoreUnavailable(msg) from lost
        data: dict[str, Any] = answer["data"]
        return data

    async def _send(self, call: Callable[[], Any]) -> dict[str, Any]:
        """The answer of a call that runs in a thread; empty when Vault has nothing to say."""
        try:
            # The thread ends by the call's own timeouts, to connect and to be answered; as long it may take to get one.
            async with asyncio.timeout(3 * self._settings.vault_timeout_s):
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except refusals.VaultError as error:
            raise _refusal(error) from error
        except (requests.RequestException, TimeoutError) as error:
            msg = f"Vault cannot be reached at {self._settings.vault_address} ({type(error).__name__})"
            raise KeyStoreUnavailable(msg) from error
        if isinstance(answer, dict):
            return answer
        if answer.status_code == 204:
            return {}
        msg = f"{self._settings.vault_address} does not answer as Vault does: status {answer.status_code}"
        raise KeyStoreUnavailable(msg)


def _refusal(error: refusals.VaultError) -> KeyStoreError:
    """What Vault says, as what it means to the authority."""
    reasons = "; ".join(str(one) for one in error.errors or ()) or type(error).__name__
    if isinstance(error, refusals.VaultDown) and "sealed" in reasons.lower():
        return KeyStoreUnavailable("Vault is sealed: an operator must unseal it")
    if isinstance(error, PASSING):
        return KeyStoreUnavailable(f"Vault cannot answer now: {reasons}")
    if isinstance(error, refusals.Forbidden):
        return _TokenLost(reasons)
    path = urlsplit(str(error.url)).path.removeprefix("/v1/")
    return KeyStoreError(f"Vault refused {path.rsplit('/', 1)[0]}: {reasons}")


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
