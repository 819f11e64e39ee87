"""Certificate and key of a service: files that somebody else keeps, or, in a Kubernetes cluster, had from the authority
with the pod's service account token and renewed in time.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import httpx
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from chart.common.files import write_private
from chart.common.replicas import Replicas
from chart.common.settings import BaseServiceSettings

TIMEOUT_S = 5.0
# A renewal that failed is tried again after this, while the certificate is still good.
RETRY_S = 30.0

_log = structlog.get_logger("chart.identity")


class ServiceIdentity:
    """Files of one identity, ``service/gateway``, and of the authority's certificate."""

    def __init__(self, settings: BaseServiceSettings, identity: str, base: Path | None = None) -> None:
        """``base``: where the files are, without their endings; default: where a development authority puts them."""
        self._identity = identity
        self._token_file = settings.service_account_token_file
        self._replicas = Replicas(settings.authority_url)
        self.ca = settings.authority_ca or settings.state_dir / "authority" / "ca.pem"
        base = base or settings.state_dir / "authority" / "identities" / identity.replace("/", "-")
        self.certificate, self.key = Path(f"{base}.pem"), Path(f"{base}.key")
        self._lock = asyncio.Lock()
        self._look_at = float("-inf")

    async def ready(self) -> None:
        """Return when the files are as good as they get; a certificate that is half over is renewed.

        Raises:
            OSError: no token, or the files cannot be written.
            httpx.HTTPError: there is no good certificate, and the authority gives none; its reason is in the log.
        """
        if self._token_file is None or time.monotonic() < self._look_at:
            return
        async with self._lock:
            if time.monotonic() < self._look_at:
                return
            begin_s, end_s = await asyncio.to_thread(self._times)
            if time.time() > (begin_s + end_s) / 2:
                try:
                    await self._enrol(self._token_file)
                except (httpx.HTTPError, OSError):
                    if time.time() >= end_s:
                        raise
            self._look_at = time.monotonic() + RETRY_S

    def _times(self) -> tuple[float, float]:
        """Begin and end of the certificate, seconds since the epoch; 0, 0 without a good one."""
        try:
            found = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        except (OSError, ValueError):
            return 0, 0
        return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()

    async def _enrol(self, token_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._identity[:64])])
        request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
        body = {
            "csr": request.public_bytes(serialization.Encoding.PEM).decode(),
            # Read again each time: the kubelet renews it.
            "token": (await asyncio.to_thread(token_file.read_text)).strip(),
            "identity": self._identity,
        }
        context = ssl.create_default_context(cafile=str(self.ca))
        async with httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, trust_env=False) as client:

            async def post(url: str) -> httpx.Response:
                return (await client.post(f"{url}/v1/certificates", json=body)).raise_for_status()

            try:
                issued = (await self._replicas.ask(post)).json()["certificate"]
            except httpx.HTTPError as error:
                _log.warning("no certificate from the authority", identity=self._identity, reason=_words(error))
                raise
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        # The key first: whoever sees the new certificate finds its key.
        await asyncio.to_thread(write_private, self.key, pem)
        await asyncio.to_thread(write_private, self.certificate, issued.encode())
        _log.info("a certificate from the authority is there", identity=self._identity)


def _words(error: httpx.HTTPError) -> str:
    """The authority's own sentence, when it gave one."""
    if isinstance(error, httpx.HTTPStatusError):
        try:
            return str(error.response.json()["detail"])[:300]
        except (ValueError, KeyError, TypeError):
            return str(error.response.status_code)
    return str(error) or type(error).__name__
