"""Backup and restore against real servers: after a disaster every reservation and every key is back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from typer.testing import CliRunner

from chart.authority.keystore import KeyStoreError
from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.maintenance import after_restore, backup, cli, postgres_server
from chart.v1 import audit_pb2
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support import stores
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


def enrolled(postgres: PostgresServer) -> None:
    """Two nodes with certificates and a key, and an enrolment that nobody used yet."""
    with psycopg.connect(postgres.url) as connection:
        for table in ("enrolment", "key_epoch", "certificate", "identity"):
            connection.execute(sql.SQL("DELETE FROM authority.{}").format(sql.Identifier(table)))
        connection.execute(
            "INSERT INTO authority.identity (name, element_id) VALUES ('node/alpha', 1), ('node/bravo', 2)"
        )
        connection.execute(
            "INSERT INTO authority.certificate (serial, identity, issued_at_us, not_after_us)"
            " VALUES ('a1', 'node/alpha', 1, 9e15), ('b1', 'node/bravo', 1, 9e15), ('b2', 'node/bravo', 1, 9e15)"
        )
        connection.execute(
            "INSERT INTO authority.key_epoch VALUES ('alpha', 'bravo', 7, 'wrapped', 1, 1, 9e15, 9e15),"
            " ('bravo', '', 3, 'wrapped', 1, 1, 9e15, 9e15)"
        )
        connection.execute(
            "INSERT INTO authority.enrolment (token_hash, identity, created_by, expires_at_us)"
            " VALUES ('\\x01', 'node/charlie', 'operator', 9e15)"
        )


def nothing_comes_back(restored: PostgresServer, released: str) -> None:
    """What was revoked stays so, no number is used again, what was released holds nothing."""
    with psycopg.connect(restored.url) as connection:

        def rows(query: str) -> list[tuple[object, ...]]:
            return connection.execute(query.encode()).fetchall()

        assert rows("SELECT name, active FROM authority.identity ORDER BY 1") == [
            ("node/alpha", False),
            ("node/bravo", True),
        ]
        assert rows("SELECT serial, revoked_because FROM authority.certificate WHERE revoked_at_us > 0 ORDER BY 1") == [
            ("a1", "stolen"),
            ("b2", "stolen"),
        ]
        # The keys of a revoked node end; the next one has a number that nobody has seen since the backup.
        now_us = time.time_ns() // 1000
        assert rows(f"SELECT sender FROM authority.key_epoch WHERE expires_at_us > {now_us}") == [("bravo",)]
        for sender, newest in rows("SELECT sender, max(generation) FROM authority.key_epoch GROUP BY 1"):
            known = {"alpha": 7, "bravo": 3}[str(sender)]
            assert int(str(newest)) - known == after_restore.EPOCH_JUMP
            assert (int(str(newest)) + 1) % 256 not in {number % 256 for number in range(known, known + 100)}
        assert rows("SELECT count(*) FROM authority.enrolment WHERE withdrawn_at_us IS NULL") == [(0,)]
        assert rows(f"SELECT count(*) FROM reservations.commitment WHERE request_id = '{released}'") == [(0,)]
        assert rows("SELECT count(*) FROM reservations.link WHERE stale") == [(2,)]
        least = rows("SELECT min(generation) FROM reservations.rate_request WHERE lifecycle = 3")
        assert int(str(least[0][0])) > after_restore.JUMP


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
        enrolled(postgres)
        made_backup = backup.back_up(postgres.url, tmp_path / "backups", tmp_path / "keys")
        # What comes after the backup is not in it.
        await stub.CreateRateRequest(
            pb.CreateRateRequestRequest(specification=ask(MEGA), owner="alice", idempotency_key="late")
        )
        released = next(identity for identity, one in known.items() if one.lifecycle == rr.LIFECYCLE_ACTIVE)
        await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=released, owner="alice"))
        for subject, serial in (("node/alpha", None), ("node/bravo", "b2")):
            detail = json.dumps({"serial": serial, "reason": "stolen", "ended_keys": 0})
            record = audit_pb2.AuditRecord(
                at_us=time.time_ns() // 1000, action="certificate.revoke", subject=subject, detail_json=detail
            )
            await platform.broker.publish("chart.audit.v1", subject, record)

        async def told() -> list[audit_pb2.AuditRecord]:
            records = await after_restore.read_audit(platform.broker)
            subjects = {one.subject for one in records if one.action == "rate-request.release"}
            return records if released in subjects else []

        await stores.until(told, "the release is in the audit stream")
        records = await told()
        await channel.close(None)
        replica.process.kill()

        outcome = backup.restore(made_backup, empty.url, tmp_path / "restored-keys", records=records)
        assert outcome.rows["reservations.rate_request"] == REQUESTS
        assert outcome.caught_up == {"revoked": 2, "authorisations": 0, "released": 1}
        nothing_comes_back(empty, released)
        after = platform.replica("after", CHART_DATABASE_URL=empty.role_url("reservations"))
        after.start()
        found = await everything(after)
        after.process.stop()
    assert len(known) == REQUESTS
    assert sorted(found) == sorted(known)
    assert found[released].lifecycle == rr.LIFECYCLE_RELEASED
    assert found[released].reason == after_restore.REASON
    for identity, request in known.items():
        if identity == released:
            continue
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
