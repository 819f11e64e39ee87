"""Mutual TLS of gRPC with certificates of the authority: who serves, who calls, and who may.

Files are read again for every connection that is made, so a certificate that is renewed is taken without a restart.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from grpc import aio

_log = structlog.get_logger("chart.rpc")
_SPIFFE = "spiffe://"


@dataclass(frozen=True)
class RpcFiles:
    """Certificate, its key, and the certificate of the authority that both ends believe; PEM."""

    certificate: Path
    key: Path
    ca: Path

    @staticmethod
    def of(base: Path, ca: Path) -> RpcFiles:
        """``base``: certificate and key without their endings .pem and .key."""
        return RpcFiles(base.with_name(f"{base.name}.pem"), base.with_name(f"{base.name}.key"), ca)

    @property
    def changed_ns(self) -> int:
        """When the certificate changed last. Raises OSError: it is not there."""
        return self.certificate.stat().st_mtime_ns

    def domain(self) -> str:
        """The domain that the certificate names.

        Raises:
            OSError, ValueError: there is none.
        """
        found = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
            if uri.startswith(_SPIFFE):
                return uri.removeprefix(_SPIFFE).partition("/")[0]
        msg = f"{self.certificate} names no identity"
        raise ValueError(msg)


# ------------------------------------------------------------ who serves


def server_credentials(files: RpcFiles) -> grpc.ServerCredentials:
    """Demands a certificate of the caller. Before the server's own is there it presents one that nobody believes."""
    seen = -1

    def newest() -> Any:
        nonlocal seen
        try:
            changed_ns = files.changed_ns
            if changed_ns == seen:
                return None
            made = _configuration(files)
        except (OSError, ValueError) as error:
            _log.warning("the certificate of the gRPC server cannot be read", reason=str(error))
            return None
        seen = changed_ns
        return made

    return grpc.dynamic_ssl_server_credentials(_nobody(), newest, require_client_authentication=True)


def _configuration(files: RpcFiles) -> Any:
    key, certificate = files.key.read_bytes(), files.certificate.read_bytes()
    public = x509.load_pem_x509_certificate(certificate).public_key()
    own = serialization.load_pem_private_key(key, password=None).public_key()
    if public != own:
        # Between the two files of a renewal; the next connection finds both.
        msg = f"{files.key} is not the key of {files.certificate}"
        raise ValueError(msg)
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=files.ca.read_bytes())


def _nobody() -> Any:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "not enrolled yet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return grpc.ssl_server_certificate_configuration([(secret, pem)], root_certificates=pem)


class Callers(aio.ServerInterceptor):  # type: ignore[type-arg]
    """Lets those in whose certificates name one of these identities ("service/gateway") of the server's own domain."""

    def __init__(self, allowed: Collection[str], files: RpcFiles) -> None:
        self._allowed = frozenset(allowed)
        self._files = files

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap calls with one request; streams of requests (reflection) are refused."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._refuse)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(handler.unary_stream),
                request_deserializer=handler.request_deserializer,
                response_serializer=handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(handler.unary_unary),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _unary(self, inner: Any) -> Any:
        async def handle(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            await self.check(context)
            return await inner(request, context)

        return handle

    def _streaming(self, inner: Any) -> Any:
        async def handle(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            await self.check(context)
            async for answer in inner(request, context):
                yield answer

        return handle

    @staticmethod
    async def _refuse(_requests: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "streams of requests are not served here")

    async def check(self, context: aio.ServicerContext[Any, Any]) -> None:
        """Return when the caller may call; otherwise the call ends with PERMISSION_DENIED."""
        named = [
            name.decode(errors="replace") for name in context.auth_context().get("x509_subject_alternative_name", ())
        ]
        try:
            own = f"{_SPIFFE}{self._files.domain()}/"
        except (OSError, ValueError):
            own = ""
        callers = [name.removeprefix(own) for name in named if own and name.startswith(own)]
        if len(callers) == 1 and callers[0] in self._allowed:
            return
        who = ", ".join(callers or named) or "nobody"
        _log.warning("a caller was refused", caller=who, peer=context.peer())
        await context.abort(
            grpc.StatusCode.PERMISSION_DENIED, f"{who} may not call this; allowed: {', '.join(sorted(self._allowed))}"
        )


# ------------------------------------------------------------ who calls


@dataclass(frozen=True)
class NodeCredentials:
    """For calls of a node: our certificate, and the name that the node's certificate must carry."""

    credentials: grpc.ChannelCredentials
    server_name: str


def node_credentials(files: RpcFiles, node: str) -> NodeCredentials:
    """Read from the files as they are now.

    Raises:
        OSError, ValueError: there is no certificate to present.
    """
    made = grpc.ssl_channel_credentials(files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes())
    return NodeCredentials(made, f"{node}.node.{files.domain()}")
