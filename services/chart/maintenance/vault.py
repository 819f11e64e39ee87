"""What the authority needs in a Vault: `configure` makes the mounts, the keys, the PKI with its roles, and the AppRole
with the least policy that the authority can work with.
"""

from __future__ import annotations

from dataclasses import dataclass

import hvac
import requests

WRAPPING_KEY = "chart-keys"
RECEIPT_KEY = "chart-receipts"
ROLE = "chart-authority"
# Signs certificates of a machine's services before the authority runs.
MACHINE_ROLE = "chart-machine"
POLICY = """
path "{transit}/datakey/plaintext/chart-keys" {{ capabilities = ["update"] }}
path "{transit}/decrypt/chart-keys" {{ capabilities = ["update"] }}
path "{transit}/keys/chart-keys" {{ capabilities = ["read"] }}
path "{transit}/keys/chart-receipts" {{ capabilities = ["read"] }}
path "{transit}/sign/chart-receipts" {{ capabilities = ["update"] }}
path "{pki}/sign/chart-node" {{ capabilities = ["update"] }}
path "{pki}/sign/chart-service" {{ capabilities = ["update"] }}
path "{pki}/sign/chart-user" {{ capabilities = ["update"] }}
path "{pki}/sign/chart-server" {{ capabilities = ["update"] }}
path "{pki}/cert/ca" {{ capabilities = ["read"] }}
"""


TIMEOUT_S = 30.0


class VaultUnavailableError(RuntimeError):
    """Vault cannot be run or set up here; the message says what to do."""


@dataclass(frozen=True)
class VaultKeys:
    """What starts and opens a Vault; of a trial on one machine only."""

    unseal: str
    root_token: str


def administrator(address: str, token: str = "") -> hvac.Client:
    """A client that acts with an administrator's token; close its ``adapter``."""
    session = requests.Session()
    session.trust_env = False
    return hvac.Client(url=address.rstrip("/"), token=token, timeout=TIMEOUT_S, session=session)


def initialise(vault: hvac.Client) -> VaultKeys:
    """Initialise with one unseal key, for a trial; then act with the root token."""
    answer = vault.sys.initialize(secret_shares=1, secret_threshold=1)
    keys = VaultKeys(answer["keys_base64"][0], answer["root_token"])
    vault.token = keys.root_token
    return keys


def configure(
    vault: hvac.Client, domain: str, *, transit: str = "transit", pki: str = "pki", life: str = "20m"
) -> tuple[str, str]:
    """Set up what the authority needs; what is there stays. Returns role id and a new secret id of its AppRole.

    ``life`` is that of the authority's token, which it renews at half.

    Raises:
        VaultError: Vault refused; the reason is in the message.
        RequestException: it does not answer.
    """
    mounts = vault.sys.list_mounted_secrets_engines()["data"]
    for path, kind in ((transit, "transit"), (pki, "pki")):
        if f"{path}/" not in mounts:
            vault.sys.enable_secrets_engine(kind, path, config={"max_lease_ttl": "87600h"})
    vault.secrets.transit.create_key(WRAPPING_KEY, key_type="aes256-gcm96", derived=True, mount_point=transit)
    vault.secrets.transit.create_key(RECEIPT_KEY, key_type="ed25519", mount_point=transit)
    _configure_certificates(vault, domain, pki)
    vault.sys.create_or_update_acl_policy(ROLE, POLICY.format(transit=transit, pki=pki))
    if "approle/" not in vault.sys.list_auth_methods()["data"]:
        vault.sys.enable_auth_method("approle")
        # A secret id cannot be guessed and a role id is known: a lockout would only let others shut the authority out.
        vault.write_data("sys/auth/approle/tune", data={"user_lockout_config": {"lockout_disable": True}})
    approle = vault.auth.approle
    lives = {"token_ttl": life, "token_max_ttl": "24h"}
    approle.create_or_update_approle(ROLE, token_policies=[ROLE], secret_id_num_uses=0, **lives)
    role_id = approle.read_role_id(ROLE)["data"]["role_id"]
    secret_id = approle.generate_secret_id(ROLE)["data"]["secret_id"]
    return str(role_id), str(secret_id)


def _configure_certificates(vault: hvac.Client, domain: str, mount: str) -> None:
    """The root, made once, and a role for each kind of holder: it sets the kind in the subject (OU), which a request
    cannot.
    """
    issuers = vault.read(f"{mount}/config/issuers") or {}
    if not issuers.get("data", {}).get("default"):
        extra = {"ttl": "87600h", "key_type": "ec", "key_bits": 256, "max_path_length": 0, "exclude_cn_from_sans": True}
        vault.secrets.pki.generate_root(
            "internal", f"CHART authority of {domain}"[:64], extra_params=extra, mount_point=mount
        )
    role = {
        "allowed_user_ids": ["*"],
        "allow_any_name": True,
        "enforce_hostnames": False,
        "use_csr_common_name": False,
        "use_csr_sans": False,
        "require_cn": False,
        "client_flag": True,
        "code_signing_flag": False,
        "email_protection_flag": False,
        "key_type": "any",
        "not_before_duration": "5m",
        "no_store": True,
    }
    for name, kind, server, longest in (
        ("chart-node", "node", True, "720h"),
        ("chart-service", "service", False, "720h"),
        ("chart-user", "user", False, "720h"),
        ("chart-server", "service", True, "720h"),
        # Not in the authority's policy: of who sets up the machine.
        (MACHINE_ROLE, "service", True, "8784h"),
    ):
        holder = {"ou": [kind], "allowed_uri_sans": [f"spiffe://{domain}/{kind}/*"]}
        flags = {"server_flag": server, "allow_ip_sans": server, "max_ttl": longest}
        vault.secrets.pki.create_or_update_role(name, extra_params={**role, **holder, **flags}, mount_point=mount)
