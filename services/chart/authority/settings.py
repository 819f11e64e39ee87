"""Settings of the authority, prefix ``CHART_``; those of its own begin with ``CHART_AUTHORITY_``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from chart.common.settings import BaseServiceSettings


class AuthoritySettings(BaseServiceSettings):
    """What the authority may be told on top of what every service may."""

    http_listen: str = "127.0.0.1:0"
    # The administrative domain; it stands in every identity: spiffe://<domain>/node/<name>.
    authority_domain: str = Field(default="chart.local", pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,98}[a-z0-9])?$")
    # host:port[,host:port] of HTTPS with mutual TLS.
    authority_listen: str = "127.0.0.1:18443"
    # Names and addresses that its own certificate is good for, besides those that it listens on.
    authority_names: str = "localhost,127.0.0.1"
    # "embedded" is for one machine; "vault" needs the four settings below.
    authority_key_store: Literal["embedded", "vault"] = "embedded"
    vault_address: str = "http://127.0.0.1:18200"
    vault_role_id: str = ""
    vault_secret_id: SecretStr = SecretStr("")
    # Instead of the setting: a file that holds the secret id, 0600.
    vault_secret_id_file: Path | None = None
    vault_ca_file: Path | None = None
    vault_transit_mount: str = "transit"
    vault_pki_mount: str = "pki"
    vault_timeout_s: float = Field(default=3.0, gt=0)

    # Keys of signals and records: renewed at half of this; the epoch before is accepted until its own life ends.
    authority_key_life_s: float = Field(default=3600.0, ge=2)
    # Between the making of an epoch and its first use: at least one poll of every element.
    authority_key_lead_s: float = Field(default=15.0, ge=0.2)
    authority_certificate_life_s: float = Field(default=24 * 3600.0, ge=10)
    authority_enrolment_life_s: float = Field(default=3600.0, ge=1, le=7 * 86_400)
    authority_authorisation_max_s: float = Field(default=24 * 3600.0, ge=1)
    # What an element does with who asks without an authorisation: nothing, or the free level.
    authority_unauthorised: Literal["drop", "free"] = "free"
    authority_free_available_bps: int = Field(default=10_000_000, ge=0)

    authority_long_poll_s: float = Field(default=25.0, ge=0, le=55)
    # How long removed rows are remembered, so that a poll tells of changes only.
    authority_tombstones_s: float = Field(default=3600.0, ge=1)
    # How long after its end an enrolment is listed, and its token told from one that never was.
    authority_enrolments_kept_s: float = Field(default=30 * 86_400.0, ge=1)
    # Revocations older than this are not believed: requests are refused until the database answers.
    authority_revocation_age_s: float = Field(default=8.0, ge=1)
    authority_body_limit_bytes: int = Field(default=65_536, ge=1024)
    # A connection that has not sent a whole head in this time is closed.
    authority_head_limit_s: float = Field(default=10.0, gt=0)
    authority_connections: int = Field(default=2000, ge=1)
    # Reports of next hops: sustained per second and at once, for each receiver.
    authority_reports_per_s: float = Field(default=1.0, gt=0)
    authority_reports_burst: int = Field(default=5, ge=1)

    # Identities that may do what operators do with their own certificate, without a token.
    authority_operators: tuple[str, ...] = ("user/operator",)
    # Certificates that a development authority keeps ready below <state>/authority/identities.
    authority_local_identities: tuple[str, ...] = ("service/gateway", "service/records", "user/operator")

    # In a Kubernetes cluster: its API server (https://kubernetes.default.svc), which reviews the service account tokens
    # that pods enrol with; empty: one-time tokens only.
    authority_kubernetes_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    authority_kubernetes_ca_file: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
    authority_kubernetes_token_file: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    authority_kubernetes_audience: str = Field(default="chart-authority", min_length=1)
    # Who may be whom: {"NAMESPACE/SERVICE-ACCOUNT": ["node"]}, where "node" is the node that the pod runs on, or
    # identities as they are written: ["service/records", "service/gateway"].
    authority_kubernetes_accounts: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    # "NAMESPACE/NAME" of the config map that gets the authority's certificate (key ca.pem); empty: none.
    authority_kubernetes_config_map: str = Field(default="", pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$")

    # Tokens that the gateway forwards: the settings of the gateway itself.
    token_issuer: str = "urn:chart:dev-issuer"  # noqa: S105 - a name, not a secret
    token_audience: str = "chart"  # noqa: S105
    token_jwks_url: str = ""
    token_algorithms: tuple[str, ...] = ("EdDSA", "RS256", "ES256")
    token_authorised_parties: tuple[str, ...] = ()
    token_leeway_s: int = Field(default=5, ge=0, le=120)
    token_jwks_cache_s: float = Field(default=300.0, gt=0)
    gateway_port: int = 18080

    @property
    def jwks_url(self) -> str:
        """Where the token issuer's keys are: of development the gateway's own."""
        if self.token_jwks_url or self.environment == "production":
            return self.token_jwks_url
        return f"http://127.0.0.1:{self.gateway_port}/dev-issuer/jwks"

    @property
    def home(self) -> Path:
        """Folder of keys and certificates of this machine."""
        return self.state_dir / "authority"
