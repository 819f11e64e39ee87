"""Settings of the gateway, prefix ``CHART_``."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr

from chart.common.kubernetes import ACCOUNT_FILES
from chart.common.places import repository_root
from chart.common.rpc_tls import RpcFiles
from chart.common.settings import BaseServiceSettings


class GatewaySettings(BaseServiceSettings):
    """What the gateway may be told on top of what every service may."""

    http_listen: str = "127.0.0.1:18080"
    web_dir: Path = Field(default_factory=lambda: repository_root() / "web" / "dist")

    # Whose tokens are taken. An empty JWKS address means: only the development issuer's.
    token_issuer: str = "urn:chart:dev-issuer"  # noqa: S105 - a name, not a secret
    token_audience: str = "chart"  # noqa: S105
    token_jwks_url: str = ""
    # Signature algorithms that are accepted, of a login's ID token too; never "none" nor a shared-secret one.
    token_algorithms: tuple[str, ...] = ("EdDSA", "RS256", "ES256")
    # Clients (claim azp) whose tokens are taken; empty: any that the issuer gave our audience to.
    token_authorised_parties: tuple[str, ...] = ()
    token_leeway_s: int = Field(default=5, ge=0, le=120)
    token_jwks_cache_s: float = Field(default=300.0, gt=0)
    # Where the provider says whether a token was revoked (RFC 7662), asked as oidc_client_id; empty: nowhere.
    token_introspection_url: str = ""
    # Our certificate for the authority (without endings); default: the one that a development authority keeps ready.
    authority_identity: Path | None = None
    # Whether sensor pods are called over mutual TLS with our certificate; default: where records of nodes are required
    # to be authentic, because their pods have certificates there.
    sensor_pod_tls: bool | None = None
    # Where nodes reach the authority's replicas, as new ones are told; empty: where the gateway does.
    authority_public_url: str = ""
    # In a Kubernetes cluster: its API server (https://kubernetes.default.svc), which reviews service account tokens of
    # this audience; empty: tokens of the issuer only. Controllers, "NAMESPACE/SERVICE-ACCOUNT", ask for any namespace.
    kubernetes_url: str = Field(default="", pattern=r"^(https?://\S+)?$")
    kubernetes_ca_file: Path = ACCOUNT_FILES / "ca.crt"
    kubernetes_token_file: Path = ACCOUNT_FILES / "token"
    kubernetes_audience: str = Field(default="chart-gateway", min_length=1)
    kubernetes_controllers: tuple[str, ...] = ()
    # Browser login with an OpenID provider (its metadata is at <token_issuer>/.well-known); empty: none is offered.
    oidc_client_id: str = ""
    oidc_client_secret: SecretStr = SecretStr("")
    # Address under which browsers reach the gateway.
    public_url: str = "http://127.0.0.1:18080"
    dev_token_lifetime_s: int = Field(default=8 * 3600, ge=1, le=86_400)

    # Proxies in front whose X-Forwarded-For and X-Forwarded-Proto are taken: addresses, networks, host names.
    trusted_forwarders: tuple[str, ...] = ()
    body_limit_bytes: int = Field(default=1_000_000, ge=1024)
    # Per subject (or address without a token): sustained requests per second, and how many at once.
    rate_limit_per_s: float = Field(default=500.0, gt=0)
    rate_limit_burst: int = Field(default=1000, ge=1)
    backend_deadline_s: float = Field(default=5.0, gt=0)

    node_stale_s: float = Field(default=30.0, gt=0)
    load_stale_s: float = Field(default=2.0, gt=0)
    measurement_stale_s: float = Field(default=120.0, gt=0)

    events_ring: int = Field(default=20_000, ge=1)
    # More than the links of a large network: each of them says something at the same moment.
    events_client_queue: int = Field(default=5_000, ge=1)
    events_ping_s: float = Field(default=15.0, gt=0)
    events_clients: int = Field(default=500, ge=1)
    events_clients_per_subject: int = Field(default=20, ge=1)
    # How often an open stream's token is looked at again.
    events_check_s: float = Field(default=3.0, gt=0)
    # link-load events of one link are at least this far apart.
    events_load_interval_s: float = Field(default=0.2, ge=0)

    @property
    def pods_over_tls(self) -> bool:
        """Whether sensor pods are called over mutual TLS."""
        if self.sensor_pod_tls is not None:
            return self.sensor_pod_tls
        return self.record_authentication == "require"

    @property
    def pod_files(self) -> RpcFiles:
        """What the gateway presents to sensor pods, and believes them by."""
        home = self.state_dir / "authority"
        base = self.authority_identity or home / "identities" / "service-gateway"
        return RpcFiles.of(base, self.authority_ca or home / "ca.pem")

    @property
    def development(self) -> bool:
        """Whether the development issuer runs: on one machine, unless tokens come from a provider."""
        return self.environment == "development" and not self.token_jwks_url
