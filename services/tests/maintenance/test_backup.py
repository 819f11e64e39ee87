"""Backup and restore against real servers: after a disaster every reservation and every key is back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from chart.authority.keystore import KeyStoreError
from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.maintenance import backup, cli, postgres_server
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer
from support.reservations import MEGA, Replica, ask, running

pytestmark = pytest.mark.contract

REQUESTS = 12


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[PostgresServer]:
    """Another server, with the database and nothing in it: where one restores to."""
    server = PostgresServer(tmp_path / "other")
    server.start()
    server.create_database()
    yield server
    server.stop()


async def everything(replica: Replica) -> dict[str, rr.RateRequest]:
    """All of the owner's requests by id, as the service tells them."""
    channel, stub = replica.stub()
    try:
        answer = await stub.ListRateRequests(pb.ListRateRequestsRequest(owner="alice", page_size=1000))
        return {one.id: one for one in answer.rate_requests}
    finally:
        await channel.close(None)


async def test_a_restore_gives_back_every_reservation_and_key(
    kafka_bootstrap: str, postgres: PostgresServer, empty: PostgresServer, tmp_path: Path
) -> None:
    store = EmbeddedKeyStore(tmp_path / "keys", "chart.test")
    await store.open()
    secret = await store.generate("node/alpha")
    await store.close()
    directory = tmp_path / "replicas"
    directory.mkdir()
    async with running(kafka_bootstrap, postgres, directory) as platform:
        replica = platform.replica("before")
        replica.start()
        channel, stub = replica.stub()
        for number in range(REQUESTS):
            made = await stub.CreateRateRequest(
                pb.CreateRateRequestRequest(specification=ask(MEGA), owner="alice", idempotency_key=f"key-{number}")
            )
        await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made.rate_request.id, owner="alice"))
        known = await everything(replica)
        made_backup = backup.back_up(postgres.url, tmp_path / "backups", tmp_path / "keys")
        # What comes after the backup is not in it.
        await stub.CreateRateRequest(
            pb.CreateRateRequestRequest(specification=ask(MEGA), owner="alice", idempotency_key="late")
        )
        await channel.close(None)
        replica.process.kill()

        outcome = backup.restore(made_backup, empty.url, tmp_path / "restored-keys")
        assert outcome.rows["reservations.rate_request"] == REQUESTS
        after = platform.replica("after", CHART_DATABASE_URL=empty.role_url("reservations"))
        after.start()
        found = await everything(after)
        after.process.stop()
    assert len(known) == REQUESTS
    assert sorted(found) == sorted(known)
    for identity, request in known.items():
        one = found[identity]
        assert (one.lifecycle, one.specification, one.granted_bps) == (
            request.lifecycle,
            request.specification,
            request.granted_bps,
        )
    restored = EmbeddedKeyStore(tmp_path / "restored-keys", "chart.test")
    await restored.open()
    assert await restored.unwrap("node/alpha", secret.wrapped) == secret.plain
    await restored.close()
    # A key store of its own, as one would have without the backup, cannot read them.
    other = EmbeddedKeyStore(tmp_path / "other-keys", "chart.test")
    await other.open()
    with pytest.raises(KeyStoreError):
        await other.unwrap("node/alpha", secret.wrapped)
    await other.close()


def test_a_drill_counts_and_a_damaged_backup_is_found(postgres_url: str, tmp_path: Path) -> None:
    made = backup.back_up(postgres_url, tmp_path)
    ran = CliRunner().invoke(cli.app, ["drill", str(made), "--json"])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["rows"] == backup.verified(made)["rows"]
    assert {"registry.node", "reservations.rate_request", "authority.outbox"} <= told["rows"].keys()
    dump = made / backup.DUMP
    content = bytearray(dump.read_bytes())
    content[len(content) // 2] ^= 1
    dump.write_bytes(content)
    with pytest.raises(backup.BackupError, match=r"database\.dump is damaged"):
        backup.drill(made)


def test_rows_that_do_not_come_back_are_noticed(postgres_url: str, tmp_path: Path) -> None:
    made = backup.back_up(postgres_url, tmp_path)
    path = made / backup.MANIFEST
    manifest = json.loads(path.read_text())
    manifest["rows"]["registry.node"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(backup.BackupError, match=r"registry\.node: \d+ of \d+"):
        backup.drill(made)


def test_the_programs_of_a_container_may_be_used_and_get_the_password_unseen(
    postgres_url: str, empty: PostgresServer, tmp_path: Path
) -> None:
    calls = tmp_path / "calls"
    command = tmp_path / "in-container"
    programs = postgres_server.binaries()
    command.write_text(
        f'#!/bin/bash\necho "$* $PGPASSWORD" >>{calls}\nprogram=$2; shift 2; exec {programs}/"$program" "$@"\n'
    )
    command.chmod(0o700)
    with_password = postgres_url.replace("chart@", "chart:secret@")
    made = backup.back_up(with_password, tmp_path / "backups", programs=[str(command), "NAME"])
    outcome = backup.restore(made, empty.url, programs=[str(command), "NAME"])
    assert outcome.rows == backup.verified(made)["rows"]
    dumped, restored = calls.read_text().splitlines()
    assert dumped.startswith("NAME pg_dump ")
    assert dumped.partition("secret") == (dumped.removesuffix("secret"), "secret", "")
    assert restored.startswith("NAME pg_restore ")
    with pytest.raises(backup.BackupError, match="nowhere is not installed"):
        backup.back_up(postgres_url, tmp_path / "none", programs=["nowhere"])


def test_nothing_is_overwritten(postgres_url: str, tmp_path: Path) -> None:
    made = backup.back_up(postgres_url, tmp_path / "backups")
    with pytest.raises(backup.BackupError, match="has the schemas"):
        backup.restore(made, postgres_url)
    with pytest.raises(backup.BackupError, match="has no keys"):
        backup.restore(made, postgres_url, tmp_path / "keys")
    with pytest.raises(backup.BackupError, match="does not answer"):
        backup.back_up("postgresql://chart@127.0.0.1:1/chart", tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM registry.node").fetchone() is not None
