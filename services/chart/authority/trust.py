"""Whom the authority believes: its own certificates, those of neighbouring domains, and nothing that was revoked.

Revocation is checked on every request against what the tables said a moment ago (`Changes` reads them again on every
notification and every second). When the tables cannot be read for longer than the limit, nobody is believed.
"""

from __future__ import annotations

import hashlib
import ssl
from collections import OrderedDict
from dataclasses import dataclass

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chart.authority import repository
from chart.authority.identity import IdentityError, Proof, moment, prove
from chart.common.clock import Clock
from chart.common.database import Pool
from chart.common.problems import ProblemError

MAX_PROOFS = 20_000

_log = structlog.get_logger("chart.authority")


def not_authenticated(detail: str, *suggestions: str, kind: str | None = None) -> ProblemError:
    """401: no certificate, or one that proves nothing here."""
    usual = "Present a certificate of this domain's authority; POST /v1/certificates issues one for a token."
    return ProblemError(401, "Not authenticated", detail, suggestions=suggestions or [usual], kind=kind)


def check_times(proof: Proof, now_us: int) -> None:
    """Compare a certificate with the clock: the handshake leaves that to the application, which has words for it.

    Raises:
        ProblemError: 401, over or not begun.
    """
    whose = f"The certificate of {proof.identity.short}"
    if proof.not_after_us <= now_us:
        raise not_authenticated(
            f"{whose} expired at {moment(proof.not_after_us)}, and it is {moment(now_us)} here.",
            "Enrol again with a new one-time token; an operator makes one with chart node enrol.",
            "Or set the clocks right, if one of them is off.",
            kind="certificate-expired",
        )
    if proof.not_before_us > now_us:
        raise not_authenticated(
            f"{whose} is not valid before {moment(proof.not_before_us)}, and it is {moment(now_us)} here.",
            "A clock is off, here or at the authority that issued it: set them right (chrony or ntpd).",
            kind="certificate-not-yet-valid",
        )


def is_revoked(proof: Proof) -> ProblemError:
    """403: believed once, not any more."""
    return ProblemError(
        403, "Certificate revoked", f"The certificate {proof.serial} of {proof.identity.short} is revoked.",
        suggestions=["An operator can make a new one-time token for POST /v1/certificates."],
    )  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """A neighbouring domain; ``pairs`` (sender, receiver) may share keys across the border."""

    domain: str
    url: str
    pairs: frozenset[tuple[str, str]]


class Trust:
    """Verifies certificates: issuer, validity and revocation, by tables at most `max_age_s` seconds old."""

    def __init__(
        self, pool: Pool, clock: Clock, context: ssl.SSLContext, domain: str, own: x509.Certificate, max_age_s: float
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._context = context
        self._domain = domain
        self._own = own
        self._max_age_s = max_age_s
        self._authorities = {domain: own}
        self._revoked = repository.Revocations(frozenset(), frozenset())
        self._read_at = float("-inf")
        self._proofs: OrderedDict[bytes, Proof] = OrderedDict()
        self._loaded: set[bytes] = set()
        self.peers: dict[str, Peer] = {}
        # Names and sender ids of enrolled nodes.
        self.elements: dict[str, int] = {}
        self._believe(own)

    def _believe(self, authority: x509.Certificate) -> None:
        """Let handshakes accept certificates of this authority; taking one back is left to `check`."""
        pem = authority.public_bytes(serialization.Encoding.PEM)
        if pem not in self._loaded:
            self._context.load_verify_locations(cadata=pem.decode())
            self._loaded.add(pem)

    async def refresh(self) -> None:
        """Read revocations, peers and elements."""
        async with self._pool.connection() as connection:
            revoked = await repository.revocations(connection, self._clock.now_us())
            rows = await repository.peers(connection)
            self.elements = await repository.active_elements(connection)
        authorities = {self._domain: self._own}
        for row in rows:
            authorities[row["domain"]] = x509.load_pem_x509_certificate(row["ca_pem"].encode())
            self._believe(authorities[row["domain"]])
        if authorities != self._authorities:
            self._proofs.clear()
        self._authorities = authorities
        self.peers = {
            row["domain"]: Peer(row["domain"], row["url"], frozenset((a, b) for a, b in row["pairs"])) for row in rows
        }
        self._revoked = revoked
        self._read_at = self._clock.monotonic()

    def check(self, der: bytes | None) -> Proof:
        """Who a peer is.

        Raises:
            ProblemError: 401 no certificate, or one that is over or not begun, 403 revoked, 503 when revocations are
                not known.
        """
        if der is None:
            raise not_authenticated("This needs a client certificate.")
        digest = hashlib.sha256(der).digest()
        proof = self._proofs.get(digest)
        if proof is None:
            try:
                proof = prove(der, self._authorities)
            except IdentityError as error:
                raise not_authenticated(f"{str(error)[:1].upper()}{str(error)[1:]}.") from None
            self._proofs[digest] = proof
            if len(self._proofs) > MAX_PROOFS:
                self._proofs.popitem(last=False)
        if self._clock.monotonic() - self._read_at > self._max_age_s:
            raise ProblemError(
                503, "Revocations unknown", "The database does not answer, so nobody can be believed right now.",
                suggestions=["Try another replica, or again in 2 s."],
            )  # fmt: skip
        check_times(proof, self._clock.now_us())
        self._check_revocation(proof)
        return proof

    def _check_revocation(self, proof: Proof) -> None:
        revoked = proof.serial in self._revoked.serials or proof.identity.short in self._revoked.identities
        if revoked and proof.identity.domain == self._domain:
            _log.warning("a revoked certificate was presented", identity=proof.identity.short, serial=proof.serial)
            raise is_revoked(proof)
