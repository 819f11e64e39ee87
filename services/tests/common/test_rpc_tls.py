"""gRPC over mutual TLS: who may call, whom a caller believes, and certificates that are renewed while it runs."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from grpc_health.v1 import health_pb2, health_pb2_grpc

from chart.common import rpc
from chart.common.rpc_tls import RpcFiles, node_credentials
from chart.common.settings import BaseServiceSettings
from support.authority import OtherAuthority, key_pem, new_key

DOMAIN = "chart.local"


def issue(authority: OtherAuthority, base: Path, identity: str, domain: str = DOMAIN) -> RpcFiles:
    """Files as the authority gives them: a node serves, too."""
    kind, name = identity.split("/")
    key, now = new_key(), datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"spiffe://{domain}/{identity}")]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if kind == "node":
        names.append(x509.DNSName(f"{name}.node.{domain}"))
        usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    ca = base.with_name("ca.pem")
    ca.write_text(authority.pem)
    files = RpcFiles.of(base, ca)
    files.key.write_bytes(key_pem(key))
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files


@asynccontextmanager
async def pod(files: RpcFiles) -> AsyncIterator[str]:
    """A server of node alpha that the gateway may call; its address."""
    settings = BaseServiceSettings(grpc_listen="127.0.0.1:0")
    async with rpc.serve([], settings, rpc.Guard(files, ("service/gateway",))) as server:
        yield f"127.0.0.1:{server.port}"


async def code_of(target: str, files: RpcFiles, node: str = "alpha") -> grpc.StatusCode:
    """What a call ends with."""
    channel = rpc.channel(target, deadline_s=3, node=node_credentials(files, node))
    try:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close(None)
    return grpc.StatusCode.OK


@pytest.fixture
def authority() -> OtherAuthority:
    return OtherAuthority()


async def test_the_gateway_alone_may_call(authority: OtherAuthority, tmp_path: Path) -> None:
    async with pod(issue(authority, tmp_path / "node", "node/alpha")) as target:
        assert await code_of(target, issue(authority, tmp_path / "gateway", "service/gateway")) is grpc.StatusCode.OK
        for number, identity in enumerate(("node/bravo", "service/records", "node/gateway", "user/gateway")):
            files = issue(authority, tmp_path / f"other{number}", identity)
            assert await code_of(target, files) is grpc.StatusCode.PERMISSION_DENIED, identity
        # Of a neighbouring domain, and of an authority that nobody here believes.
        files = issue(authority, tmp_path / "neighbour", "service/gateway", "example.net")
        assert await code_of(target, files) is not grpc.StatusCode.OK
        (tmp_path / "far").mkdir()
        files = issue(OtherAuthority(), tmp_path / "far" / "gateway", "service/gateway")
        assert await code_of(target, files) is grpc.StatusCode.UNAVAILABLE
        # Without TLS.
        channel = rpc.channel(target, deadline_s=1)
        with pytest.raises(grpc.aio.AioRpcError):
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        await channel.close(None)


async def test_a_caller_believes_the_node_that_it_means(authority: OtherAuthority, tmp_path: Path) -> None:
    gateway = issue(authority, tmp_path / "gateway", "service/gateway")
    async with pod(issue(authority, tmp_path / "node", "node/alpha")) as target:
        assert await code_of(target, gateway, "alpha") is grpc.StatusCode.OK
        assert await code_of(target, gateway, "bravo") is grpc.StatusCode.UNAVAILABLE
        assert await code_of(target, gateway, "alph") is grpc.StatusCode.UNAVAILABLE


async def test_certificates_come_and_are_renewed_without_a_restart(authority: OtherAuthority, tmp_path: Path) -> None:
    gateway = issue(authority, tmp_path / "gateway", "service/gateway")
    node = RpcFiles.of(tmp_path / "node", tmp_path / "ca.pem")
    async with pod(node) as target:
        # Not enrolled yet: nobody believes it.
        assert await code_of(target, gateway) is grpc.StatusCode.UNAVAILABLE
        issue(authority, tmp_path / "node", "node/alpha")
        assert await code_of(target, gateway) is grpc.StatusCode.OK
        # Key and certificate are two files: between them the one before stays in use.
        node.key.write_bytes(key_pem(new_key()))
        assert await code_of(target, gateway) is grpc.StatusCode.OK
        # Under a new authority.
        other = OtherAuthority()
        gateway = issue(other, tmp_path / "gateway", "service/gateway")
        issue(other, tmp_path / "node", "node/alpha")
        assert await code_of(target, gateway) is grpc.StatusCode.OK
