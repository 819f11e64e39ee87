"""What only Vault can do to the authority: be sealed, hang, take back its token."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import hvac
import psycopg
import pytest
from cryptography import x509

from chart.maintenance import broker_identities
from chart.maintenance.vault import ROLE, VaultUnavailableError, administrator
from chart.maintenance.vault_setup import KEYS_FILE, give_identities, set_up
from support.authority import csr, empty, new_key, running, settings_of
from support.postgres import PostgresServer
from support.vault import VaultServer, launch_or_skip
from support.waiting import eventually

pytestmark = pytest.mark.contract


async def test_sealed_or_hanging_held_keys_go_on_and_new_ones_are_refused_with_the_reason(
    postgres: PostgresServer, tmp_path: Path, vault: VaultServer
) -> None:
    empty(postgres)
    settings = settings_of(
        postgres.role_url("authority"), tmp_path / "state", **vault.settings(), authority_key_life_s=20,
        authority_key_lead_s=1, vault_timeout_s=1,
    )  # fmt: skip
    async with running(settings, tmp_path) as place:
        alpha = await place.node("alpha")
        await place.node("bravo")
        await place.node("charlie")
        held = (await alpha.get("/v1/keys/alpha/bravo")).json()["epochs"]
        made = await place.operator.post("/v1/enrolments", json={"identity": "node/delta"})
        vault.seal()
        try:
            # Past half of its life the key cannot be renewed, and is handed out until it ends.
            await eventually(lambda: time.time() * 1e6 > held[0]["expires_at_us"] - 8_000_000, 15)
            assert (await alpha.get("/v1/keys/alpha/bravo")).json()["epochs"] == held
            new = await alpha.get("/v1/keys/alpha/charlie")
            assert (new.status_code, new.json()["type"]) == (503, "urn:chart:problem:key-store-unavailable")
            assert "sealed" in new.json()["detail"]
            body = {"csr": csr(new_key()), "token": made.json()["token"]}
            refused = await place.client().post("/v1/certificates", json=body)
            assert refused.status_code == 503
            await eventually(lambda: time.time() * 1e6 > held[0]["expires_at_us"] + 100_000, 15)
            assert (await alpha.get("/v1/keys/alpha/bravo")).status_code == 503
        finally:
            vault.unseal()

        async def works() -> bool:
            return (await alpha.get("/v1/keys/alpha/charlie")).status_code == 200

        await eventually(works, 15)
        # The token was not used up by the refusal.
        assert (await place.client().post("/v1/certificates", json=body)).status_code == 201
        vault.pause()
        try:
            hanging = await alpha.get("/v1/keys/bravo/alpha")
            assert hanging.status_code == 503
            assert "cannot be reached" in hanging.json()["detail"]
        finally:
            vault.resume()
        await eventually(works, 15)


async def test_the_token_is_renewed_and_replaced_when_it_is_lost(
    postgres: PostgresServer, tmp_path: Path, vault: VaultServer
) -> None:
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state", **vault.settings())
    async with running(settings, tmp_path) as place:
        alpha = await place.node("alpha")
        for name in ("bravo", "charlie", "delta"):
            await place.node(name)
        assert (await alpha.get("/v1/keys/alpha/bravo")).status_code == 200
        # Longer than a token lives in this test (4 s).
        began = time.monotonic()
        await eventually(lambda: time.monotonic() > began + 6)
        assert (await alpha.get("/v1/keys/alpha/charlie")).status_code == 200
        vault.administrator.sys.revoke_force("auth/approle")
        assert (await alpha.get("/v1/keys/alpha/delta")).status_code == 200


async def test_vault_logs_no_secret_and_the_database_holds_its_ciphertext(
    postgres: PostgresServer, tmp_path: Path, vault: VaultServer
) -> None:
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state", **vault.settings())
    async with running(settings, tmp_path) as place:
        alpha = await place.node("alpha")
        await place.node("bravo")
        (epoch,) = (await alpha.get("/v1/keys/alpha/bravo")).json()["epochs"]
    with psycopg.connect(settings.database_url) as connection:
        rows = connection.execute("SELECT wrapped FROM key_epoch").fetchall()
    assert all(row[0].startswith("vault:v1:") for row in rows)
    assert epoch["key"] not in vault.log.read_text()


async def test_without_a_good_secret_id_held_keys_go_on_until_there_is_a_new_one(
    postgres: PostgresServer, tmp_path: Path, vault: VaultServer
) -> None:
    empty(postgres)
    approle = vault.administrator.auth.approle

    def secret_id() -> str:
        return str(approle.generate_secret_id(ROLE)["data"]["secret_id"])

    file = tmp_path / "secret-id"
    file.write_text(secret_id())
    told = {**vault.settings(), "vault_secret_id": "", "vault_secret_id_file": file}
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state", **told, authority_key_life_s=20)
    async with running(settings, tmp_path) as place:
        alpha = await place.node("alpha")
        for name in ("bravo", "charlie"):
            await place.node(name)
        held = (await alpha.get("/v1/keys/alpha/bravo")).json()["epochs"]
        approle.destroy_secret_id(ROLE, file.read_text())
        vault.administrator.sys.revoke_force("auth/approle")
        new = await alpha.get("/v1/keys/alpha/charlie")
        assert (new.status_code, new.json()["type"]) == (503, "urn:chart:problem:key-store-unavailable")
        assert "the secret id of its AppRole is not good" in new.json()["detail"]
        # Past half of its life the key cannot be renewed, and is handed out until it ends.
        await eventually(lambda: time.time() * 1e6 > held[0]["expires_at_us"] - 9_000_000, 15)
        assert (await alpha.get("/v1/keys/alpha/bravo")).json()["epochs"] == held
        file.write_text(secret_id())
        assert (await alpha.get("/v1/keys/alpha/charlie")).status_code == 200


def test_the_job_of_compose_sets_up_a_new_vault_opens_a_sealed_one_and_says_what_is_missing(tmp_path: Path) -> None:
    state, approle = tmp_path / "state", tmp_path / "approle"
    for folder in (state, approle):
        folder.mkdir()
    server = launch_or_skip(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)

        def client() -> hvac.Client:
            made = administrator(server.address)
            stack.callback(made.adapter.close)
            return made

        first = client()
        assert set_up(first, state, approle, "chart.local")
        role_id = (approle / "role-id").read_text()
        assert [path.stat().st_mode & 0o777 for path in (state / KEYS_FILE, approle / "secret-id")] == [0o600, 0o600]

        first.sys.seal()
        assert not set_up(client(), state, approle, "chart.local")
        assert (approle / "role-id").read_text() == role_id
        login = client().auth.approle.login(role_id, (approle / "secret-id").read_text())
        assert ROLE in login["auth"]["token_policies"]

        names = ("kafka", "127.0.0.1")
        for made in (["kafka", "topics", *broker_identities.SERVICES], []):
            found = give_identities(
                first, tmp_path / "identities", "chart.local", seen_in=Path("/etc/chart"), broker_names=names
            )
            assert found == made
        check_identities(tmp_path / "identities", names)

        (state / KEYS_FILE).unlink()
        with pytest.raises(VaultUnavailableError, match=r"vault\.json.*restore that file"):
            set_up(client(), state, approle, "chart.local")


def check_identities(folder: Path, names: tuple[str, ...]) -> None:
    """Each is whom its folder names, by Vault's word; the broker's is good for its names."""
    issuer = x509.load_pem_x509_certificate((folder / "gateway" / broker_identities.AUTHORITY_FILE).read_bytes())
    for name, file, holder in (
        ("kafka", broker_identities.CERTIFICATE, "kafka"),
        ("gateway", broker_identities.CERTIFICATE, "gateway"),
        ("gateway", broker_identities.RECORDS_CERTIFICATE, "records"),
    ):
        found = x509.load_pem_x509_certificate((folder / name / file).read_bytes())
        found.verify_directly_issued_by(issuer)
        assert {one.rfc4514_string() for one in found.subject.rdns} == {f"UID={holder}", f"CN={holder}", "OU=service"}
        alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert alternatives.get_values_for_type(x509.UniformResourceIdentifier) == [
            f"spiffe://chart.local/service/{holder}"
        ]
        told = [*alternatives.get_values_for_type(x509.DNSName)]
        told += map(str, alternatives.get_values_for_type(x509.IPAddress))
        assert set(told) == (set(names) if name == "kafka" else set())
    assert (folder / "kafka" / broker_identities.BROKER_FILE).stat().st_mode & 0o777 == 0o644
    assert (folder / "gateway" / broker_identities.KEY).stat().st_mode & 0o777 == 0o600
