"""What the authority needs in a Vault: `configure` makes the mounts, the keys, the PKI with its roles, and the AppRole
with the least policy that the authority can work with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

WRAPPING_KEY = "chart-keys"
RECEIPT_KEY = "chart-receipts"
ROLE = "chart-authority"
POLICY = """
path "{transit}/datakey/plaintext/chart-keys" {{ capabilities = ["update"] }}
path "{transit}/decrypt/chart-keys" {{ capabilities = ["update"] }}
path "{transit}/keys/chart-keys" {{ capabilities = ["read"] }}
path "{transit}/keys/chart-receipts" {{ capabilities = ["read"] }}
path "{transit}/sign/chart-receipts" {{ capabilities = ["update"] }}
path "{pki}/sign/chart" {{ capabilities = ["update"] }}
path "{pki}/sign/chart-server" {{ capabilities = ["update"] }}
path "{pki}/cert/ca" {{ capabilities = ["read"] }}
"""


class VaultUnavailableError(RuntimeError):
    """Vault cannot be run or set up here; the message says what to do."""


@dataclass(frozen=True)
class VaultKeys:
    """What starts and opens a Vault; of a trial on one machine only."""

    unseal: str
    root_token: str


class Administrator:
    """Vault's HTTP interface with an administrator's token."""

    def __init__(self, address: str, token: str = "") -> None:
        self._client = httpx.Client(base_url=f"{address.rstrip('/')}/v1/", timeout=30, trust_env=False)
        self._client.headers["X-Vault-Request"] = "true"
        self.use(token)

    def use(self, token: str) -> None:
        """Act with this token."""
        if token:
            self._client.headers["X-Vault-Token"] = token

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of a call.

        Raises:
            VaultUnavailableError: it failed; Vault's words are in the message.
        """
        try:
            response = self._client.request(method, path, json=body)
        except httpx.HTTPError as error:
            msg = f"Vault does not answer at {self._client.base_url}: {error}"
            raise VaultUnavailableError(msg) from error
        if response.is_error:
            msg = f"Vault refused {method} {path}: {response.text.strip()}"
            raise VaultUnavailableError(msg)
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def initialise(self) -> VaultKeys:
        """Initialise with one unseal key, for a trial; then use the root token."""
        answer = self.ask("PUT", "sys/init", {"secret_shares": 1, "secret_threshold": 1})
        keys = VaultKeys(answer["keys_base64"][0], answer["root_token"])
        self.use(keys.root_token)
        return keys

    def unseal(self, keys: VaultKeys) -> None:
        """Open a sealed Vault."""
        self.ask("PUT", "sys/unseal", {"key": keys.unseal})

    def seal(self) -> None:
        """Seal it."""
        self.ask("PUT", "sys/seal", {})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def configure(
    vault: Administrator, domain: str, *, transit: str = "transit", pki: str = "pki", life: str = "20m"
) -> tuple[str, str]:
    """Set up what the authority needs; what is there stays. Returns role id and a new secret id of its AppRole.

    ``life`` is that of the authority's token, which it renews at half.
    """
    mounts = vault.ask("GET", "sys/mounts")["data"]
    for path, kind in ((transit, "transit"), (pki, "pki")):
        if f"{path}/" not in mounts:
            vault.ask("POST", f"sys/mounts/{path}", {"type": kind, "config": {"max_lease_ttl": "87600h"}})
    vault.ask("POST", f"{transit}/keys/{WRAPPING_KEY}", {"type": "aes256-gcm96", "derived": True})
    vault.ask("POST", f"{transit}/keys/{RECEIPT_KEY}", {"type": "ed25519"})
    if not vault.ask("GET", f"{pki}/config/issuers").get("data", {}).get("default"):
        name = f"CHART authority of {domain}"[:64]
        body = {"common_name": name, "ttl": "87600h", "key_type": "ec", "key_bits": 256, "max_path_length": 0,
                "exclude_cn_from_sans": True}  # fmt: skip
        vault.ask("POST", f"{pki}/root/generate/internal", body)
    role = {
        "allowed_uri_sans": [f"spiffe://{domain}/*"],
        "allow_any_name": True,
        "enforce_hostnames": False,
        "use_csr_common_name": False,
        "use_csr_sans": False,
        "require_cn": False,
        "client_flag": True,
        "code_signing_flag": False,
        "email_protection_flag": False,
        "key_type": "any",
        "max_ttl": "720h",
        "not_before_duration": "5m",
        "no_store": True,
    }
    vault.ask("POST", f"{pki}/roles/chart", {**role, "server_flag": False, "allow_ip_sans": False})
    vault.ask("POST", f"{pki}/roles/chart-server", {**role, "server_flag": True, "allow_ip_sans": True})
    vault.ask("PUT", f"sys/policies/acl/{ROLE}", {"policy": POLICY.format(transit=transit, pki=pki)})
    if "approle/" not in vault.ask("GET", "sys/auth")["data"]:
        vault.ask("POST", "sys/auth/approle", {"type": "approle"})
        # A secret id cannot be guessed and a role id is known: a lockout would only let others shut the authority out.
        vault.ask("POST", "sys/auth/approle/tune", {"user_lockout_config": {"lockout_disable": True}})
    approle = {"token_policies": [ROLE], "token_ttl": life, "token_max_ttl": "24h", "secret_id_num_uses": 0}
    vault.ask("POST", f"auth/approle/role/{ROLE}", approle)
    role_id = vault.ask("GET", f"auth/approle/role/{ROLE}/role-id")["data"]["role_id"]
    secret_id = vault.ask("POST", f"auth/approle/role/{ROLE}/secret-id", {})["data"]["secret_id"]
    return str(role_id), str(secret_id)
