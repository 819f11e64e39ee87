"""The identity of the node that a process beside the agent serves: certificate and key of ``node/<name>``.

Where an agent keeps them on the same machine, its files are used (``CHART_NODE_IDENTITY``, the agent renews). Elsewhere
the process enrols by a one-time token of its own, in a Kubernetes cluster by its service account token, and gets
another certificate of the same node, which it renews.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from pathlib import Path
from typing import Any, Protocol

import httpx
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import Gauge

from chart.common.authority_calls import AuthorityCalls
from chart.common.clock import Clock
from chart.common.files import write_private
from chart.common.retries import for_ever

LOOK_EVERY_S = 1.0
BACK_OFF_S = (1.0, 30.0)

ENDS = Gauge("chart_node_identity_end_timestamp_seconds", "End of the node's certificate; 0: none")

_log = structlog.get_logger("chart.identity")


class NodeSettings(Protocol):
    """Settings of a process that serves a node, as far as its identity goes."""

    node: str
    state_dir: Path
    authority_url: str
    authority_ca: Path | None
    node_identity: Path | None
    enrolment_token_file: Path | None
    service_account_token_file: Path | None


def calls_of(settings: NodeSettings) -> AuthorityCalls | None:
    """How this process calls the authority; None: it has no identity, and no way to one.

    Raises:
        ValueError: an identity without the authority's certificate.
    """
    if settings.node_identity is None and _token_file(settings) is None:
        return None
    if settings.authority_ca is None:
        msg = "CHART_AUTHORITY_CA is not set: without the authority's certificate nobody knows whom this node asks"
        raise ValueError(msg)
    base = settings.node_identity or settings.state_dir / "identity" / "node"
    return AuthorityCalls(settings.authority_url, settings.authority_ca, base)


def _token_file(settings: NodeSettings) -> Path | None:
    return settings.enrolment_token_file or settings.service_account_token_file


class NodeIdentity:
    """Keeps the certificate of a node valid, or watches that the agent does."""

    def __init__(self, settings: NodeSettings, calls: AuthorityCalls, clock: Clock) -> None:
        self._node = settings.node
        self._calls = calls
        self._clock = clock
        # With files of the agent's this process asks for nothing itself.
        self._token_file = _token_file(settings) if settings.node_identity is None else None
        self._shared = settings.node_identity is not None
        self._said = ""

    async def run(self) -> None:
        """Enrol, renew at half life, until cancelled; what fails is tried again."""
        await for_ever(
            self._look, (httpx.HTTPError, OSError, ValueError), lambda *_: None, BACK_OFF_S, sleep=self._clock.sleep
        )

    async def _look(self) -> None:
        while True:
            try:
                await self._keep()
            except (httpx.HTTPError, OSError, ValueError) as error:
                self._say(await self._calls.words(error))
                raise
            await self._clock.sleep(LOOK_EVERY_S)

    async def _keep(self) -> None:
        begin_us, end_us = await asyncio.to_thread(self._times)
        if not self._shared and end_us and await asyncio.to_thread(self._foreign):
            # The authority was built anew, and refuses whom the one before it knew.
            self._say(f"{self._calls.certificate} is of another authority: enrolling again")
            begin_us = end_us = 0
        ENDS.set(end_us / 1e6)
        now_us = self._clock.now_us()
        if self._shared:
            if end_us == 0:
                self._say(f"{self._calls.certificate} is not there: the node's agent has not enrolled yet")
            elif begin_us > now_us or end_us <= now_us:
                self._say(_off(begin_us, end_us, now_us))
            else:
                self._said = ""
        elif end_us <= now_us:
            await self._ask(renewal=False)
        elif 2 * now_us >= begin_us + end_us:
            await self._ask(renewal=True)

    def _times(self) -> tuple[int, int]:
        """When the certificate begins and ends, microseconds since the epoch; 0 and 0: there is none."""
        try:
            found = x509.load_pem_x509_certificate(self._calls.certificate.read_bytes())
        except FileNotFoundError:
            return 0, 0
        return _microseconds(found.not_valid_before_utc), _microseconds(found.not_valid_after_utc)

    def _foreign(self) -> bool:
        """Whether none of those that certify the authority issued the node's certificate."""
        found = x509.load_pem_x509_certificate(self._calls.certificate.read_bytes())
        issuers = x509.load_pem_x509_certificates(self._calls.ca.read_bytes())
        return not any(_issued(found, one) for one in issuers)

    async def _ask(self, *, renewal: bool) -> None:
        key = await asyncio.to_thread(self._next_key)
        body: dict[str, Any] = {"csr": _request(self._node, key)}
        if not renewal:
            assert self._token_file is not None
            token = (await asyncio.to_thread(self._token_file.read_text)).strip()
            body |= {"identity": f"node/{self._node}", "token": token}
        answer = await self._calls.post("/v1/certificates", body, certified=renewal)
        # The key first: with an old certificate and a new key the next look enrols or renews again.
        await asyncio.to_thread(self._next_key_file.replace, self._calls.key)
        await asyncio.to_thread(write_private, self._calls.certificate, str(answer["certificate"]).encode())
        self._said = ""
        _log.info("the certificate of the node is there", node=self._node, renewed=renewal)

    @property
    def _next_key_file(self) -> Path:
        return self._calls.key.with_name(f"{self._calls.key.name}.new")

    def _next_key(self) -> ec.EllipticCurvePrivateKey:
        """The key that is asked with until a certificate of it came: a one-time token whose answer was lost is good for
        the same key only.
        """
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            found = serialization.load_pem_private_key(self._next_key_file.read_bytes(), None)
            if isinstance(found, ec.EllipticCurvePrivateKey):
                return found
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_private(self._next_key_file, pem)
        return key

    def _say(self, words: str) -> None:
        """Once, until something else is wrong."""
        if words != self._said:
            _log.warning("no certificate of the node", node=self._node, reason=words)
        self._said = words


def _off(begin_us: int, end_us: int, now_us: int) -> str:
    if begin_us > now_us:
        return f"it is not valid before {_moment(begin_us)}, and it is {_moment(now_us)} here: a clock is off"
    return f"it expired at {_moment(end_us)}, and it is {_moment(now_us)} here: a clock is off, or its agent is away"


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _request(node: str, key: ec.EllipticCurvePrivateKey) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node[:64])])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def _microseconds(moment: datetime.datetime) -> int:
    return int(moment.timestamp() * 1e6)


def _moment(at_us: int) -> str:
    at = datetime.datetime.fromtimestamp(at_us // 1_000_000, datetime.UTC)
    return at.isoformat().replace("+00:00", "Z")
