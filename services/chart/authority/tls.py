"""HTTPS with mutual TLS: the server's context, and the peer's certificate where the application sees it.

uvicorn keeps the TLS layer to itself; a subclass of its protocol puts the verified certificate into the ASGI scope, as
the TLS extension of ASGI names it, and closes connections that do not send a whole head in time.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PEER_CERTIFICATE = "chart.peer_certificate"
# X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for: `trust.check_times` compares with the clock.
NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
# Of a head that is still growing: a token, a few addresses and names need far less.
HEAD_OCTETS_MAX = 65_536


def server_context() -> ssl.SSLContext:
    """TLS 1.2 and later; a client certificate is optional here, because enrolment has none, and checked by the
    application for every other route. One that is sent must be of an authority that is trusted, or the handshake
    fails; whether it is over, or not begun, the application says in words.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= NO_CHECK_TIME
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def new_key() -> ec.EllipticCurvePrivateKey:
    """A key for a certificate of ours."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key as PEM; for files 0600 only."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load(context: ssl.SSLContext, certificate_pem: str, key: ec.EllipticCurvePrivateKey) -> None:
    """Use this certificate for handshakes from now on. OpenSSL reads files only: one that nobody else can read, gone
    when this returns.
    """
    with tempfile.NamedTemporaryFile(mode="wb", suffix=".pem") as file:  # 0600
        file.write(certificate_pem.encode() + key_pem(key))
        file.flush()
        context.load_cert_chain(file.name)


class PeerProtocol(HttpToolsProtocol):
    """HTTP over TLS with the peer's certificate in the ASGI scope; a head must arrive within `head_limit_s` seconds."""

    head_limit_s = 10.0
    _head_octets = 0
    _peer: bytes | None = None
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who is there; the handshake is over by now."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._peer = tls.getpeercert(binary_form=True) if tls is not None else None
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """What came, unless a head grows without end: the parser itself has no limit."""
        super().data_received(data)
        if self._head_timer is not None:
            self._head_octets += len(data)
            if self._head_octets > HEAD_OCTETS_MAX:
                self._too_much()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins: its scope carries the certificate."""
        super().on_message_begin()
        scope: Any = self.scope
        scope[PEER_CERTIFICATE] = self._peer
        if self._head_timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._head_came()
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_limit_s, self._too_much)

    def _head_came(self) -> None:
        self._head_octets = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_much(self) -> None:
        """Also too slow: nothing is said to who does not speak HTTP in time and in measure."""
        self._head_came()
        if not self.transport.is_closing():
            self.transport.close()


def protocol_class(head_limit_s: float) -> type[PeerProtocol]:
    """The protocol with its limit."""
    return type("LimitedPeerProtocol", (PeerProtocol,), {"head_limit_s": head_limit_s})
