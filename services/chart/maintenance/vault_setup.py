"""Opens and sets up the Vault of docker-compose.yml: `python -m chart.maintenance.vault_setup`, which may run again.

Initialises a new Vault with one unseal key, unseals it, and makes what the authority needs. Unseal key and root token
stay in CHART_STATE_DIR/vault.json, which only this job has; the authority's AppRole goes to CHART_VAULT_APPROLE_DIR. An
installation of more than one machine has a Vault of its own, with an unsealing that holds its keys elsewhere.

It also gives the broker and every service its certificates, each in a folder of its own below CHART_IDENTITIES_DIR,
for they have to be there before the authority is (broker_identities.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import hvac
import requests
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hvac.exceptions import VaultError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from chart.common.files import write_private
from chart.common.names import common_name
from chart.maintenance import broker_identities
from chart.maintenance.broker_identities import ADMINISTRATOR, BROKER, SERVICES, Request
from chart.maintenance.vault import (
    MACHINE_ROLE,
    VaultKeys,
    VaultUnavailableError,
    administrator,
    configure,
    initialise,
)

KEYS_FILE = "vault.json"
READY_LIMIT_S = 30.0
READY_AGAIN_S = 0.2


def read_keys(path: Path) -> VaultKeys:
    """The keys of an earlier run.

    Raises:
        VaultUnavailableError: they are gone; without them this Vault stays closed.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return VaultKeys(found["unseal"], found["root_token"])
    except (OSError, ValueError, KeyError) as error:
        msg = f"this Vault was initialised before and its keys cannot be read from {path}: {error!r}; restore that file"
        raise VaultUnavailableError(msg) from error


def set_up(vault: hvac.Client, state: Path, approle: Path, domain: str) -> bool:
    """Initialise if new, unseal if sealed, configure. Returns whether the Vault was new.

    Raises:
        VaultUnavailableError: its keys are gone.
        VaultError: Vault refused.
        RequestException: Vault does not answer.
    """
    keys_file = state / KEYS_FILE
    status = vault.sys.read_seal_status()
    if status["initialized"]:
        keys = read_keys(keys_file)
        vault.token = keys.root_token
    else:
        keys = initialise(vault)
        write_private(keys_file, json.dumps({"unseal": keys.unseal, "root_token": keys.root_token}).encode())
    if status["sealed"]:
        vault.sys.submit_unseal_key(keys.unseal)
    # Between unsealed and at work there is a moment in which Vault refuses.
    ready = Retrying(
        retry=retry_if_exception_type((VaultError, requests.RequestException)),
        wait=wait_fixed(READY_AGAIN_S),
        stop=stop_after_delay(READY_LIMIT_S),
        reraise=True,
    )
    ready(vault.sys.list_mounted_secrets_engines)
    role_id, secret_id = configure(vault, domain)
    write_private(approle / "secret-id", secret_id.encode())
    write_private(approle / "role-id", role_id.encode())
    return not status["initialized"]


def give_identities(
    vault: hvac.Client, folder: Path, domain: str, *, seen_in: Path, broker_names: tuple[str, ...], pki: str = "pki"
) -> list[str]:
    """Make the certificates that are due; whose they are.

    Raises:
        VaultError: Vault refused.
        RequestException: it does not answer.
        OSError: the files cannot be written.
    """
    authority = vault.secrets.pki.read_certificate("ca", mount_point=pki)["data"]["certificate"]

    def sign(request: Request, uri: str, names: tuple[str, ...]) -> str:
        name = uri.rpartition("/")[2]
        addresses = [one for one in names if broker_identities.is_address(one)]
        extra = {
            "exclude_cn_from_sans": True,
            "user_ids": name,
            "uri_sans": uri,
            "alt_names": ",".join(one for one in names if one not in addresses),
            "ip_sans": ",".join(addresses),
            "ttl": f"{round(broker_identities.LIFE.total_seconds())}s",
        }
        pem = request.public_bytes(serialization.Encoding.PEM).decode()
        answer = vault.secrets.pki.sign_certificate(
            MACHINE_ROLE, pem, common_name(name), extra_params=extra, mount_point=pki
        )
        return str(answer["data"]["certificate"]).strip() + "\n"

    made = broker_identities.keep(
        folder,
        (BROKER, ADMINISTRATOR, *SERVICES),
        sign,
        authority=x509.load_pem_x509_certificate(authority.encode()),
        domain=domain,
        broker_names=broker_names,
        seen_in=seen_in,
        records=SERVICES,
    )
    # The broker runs as another user; nobody but this job and the broker has its folder.
    for name in (broker_identities.BROKER_FILE, broker_identities.AUTHORITY_FILE):
        (folder / BROKER / name).chmod(0o644)
    return made


def main() -> int:
    """Exit status: 0 done, 1 with what is wrong."""
    vault = administrator(os.environ.get("CHART_VAULT_ADDRESS", "http://127.0.0.1:8200"))
    domain = os.environ.get("CHART_AUTHORITY_DOMAIN", "chart.local")
    identities = os.environ.get("CHART_IDENTITIES_DIR", "")
    made: list[str] = []
    try:
        new = set_up(
            vault,
            Path(os.environ.get("CHART_STATE_DIR", "/var/lib/chart")),
            Path(os.environ.get("CHART_VAULT_APPROLE_DIR", "/run/chart")),
            domain,
        )
        if identities:
            names = os.environ.get("CHART_BROKER_NAMES", "localhost,127.0.0.1")
            made = give_identities(
                vault,
                Path(identities),
                domain,
                seen_in=Path(os.environ.get("CHART_IDENTITIES_SEEN_IN", "/etc/chart/identity")),
                broker_names=tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip())),
            )
    except (VaultUnavailableError, VaultError, OSError) as error:  # OSError: of files, and of requests
        sys.stderr.write(f"vault-setup: {error}\n")
        return 1
    finally:
        vault.adapter.close()
    sys.stderr.write(f"vault-setup: Vault is {'initialised, ' if new else ''}open and set up\n")
    if made:
        sys.stderr.write(f"vault-setup: made certificates of {', '.join(made)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
