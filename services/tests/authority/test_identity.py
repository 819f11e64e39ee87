"""Who a certificate says that its holder is, and what is no certificate request."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from chart.authority.identity import Identity, IdentityError, check_request, of_short, of_uri, prove
from support.authority import OtherAuthority, csr, new_key, sign_certificate

DOMAIN = "chart.local"
HOUR = datetime.timedelta(hours=1)


def certificate(authority: OtherAuthority, uri: str) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    made = sign_certificate(authority.key, authority.certificate.subject, subject, new_key(), uri, HOUR)
    return made.public_bytes(serialization.Encoding.DER)


@pytest.mark.parametrize("text", ["node/alpha", "user/a.b@c", "service/gateway"])
def test_identities_are_written_and_read(text: str) -> None:
    identity = of_short(text, DOMAIN)
    assert of_uri(identity.uri) == identity
    assert identity.short == text


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://chart.local/node/Alpha", "spiffe://chart.local/node/a/b", "spiffe://chart.local/robot/a",
        "https://chart.local/node/a", "spiffe:///node/a", "spiffe://chart.local/node/", "spiffe://CHART/node/a",
        "spiffe://chart.local/node/a%2f", "spiffe://chart.local/user/-",
    ],
)  # fmt: skip
def test_what_is_no_identity_is_refused(uri: str) -> None:
    with pytest.raises(IdentityError):
        of_uri(uri)


def test_a_certificate_counts_when_the_authority_of_its_domain_issued_it() -> None:
    ours, theirs = OtherAuthority(), OtherAuthority()
    known = {DOMAIN: ours.certificate, "b.example": theirs.certificate}
    assert prove(certificate(ours, f"spiffe://{DOMAIN}/node/alpha"), known).identity == Identity(
        DOMAIN, "node", "alpha"
    )
    # A trusted neighbour that issues certificates of our domain is not believed.
    with pytest.raises(IdentityError, match="its authority did not issue it"):
        prove(certificate(theirs, f"spiffe://{DOMAIN}/node/alpha"), known)
    with pytest.raises(IdentityError, match="not known here"):
        prove(certificate(ours, "spiffe://c.example/node/alpha"), known)
    with pytest.raises(IdentityError):
        prove(b"junk", known)


def test_requests_must_be_signed_by_a_strong_key() -> None:
    check_request(csr(new_key()))
    check_request(csr(rsa.generate_private_key(65537, 2048)))
    with pytest.raises(IdentityError, match="P-256"):
        check_request(csr(ec.generate_private_key(ec.SECP224R1())))
    with pytest.raises(IdentityError, match="PEM"):
        check_request("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
    # The same request with another key's public part: the signature no longer fits.
    der = bytearray(serialization_der(csr(new_key())))
    der[-3] ^= 1
    broken = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM).decode()
    with pytest.raises(IdentityError, match="signature"):
        check_request(broken)


def serialization_der(pem: str) -> bytes:
    return x509.load_pem_x509_csr(pem.encode()).public_bytes(serialization.Encoding.DER)
