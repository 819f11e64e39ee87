"""Who comes with a service account token, and in which words one is refused; against a small API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.authority.identity import of_short
from chart.authority.kubernetes import Kubernetes
from chart.authority.service_accounts import account_of, is_one
from chart.authority.settings import AuthoritySettings
from chart.common.problems import ProblemError
from support.kubernetes import FakeApiServer, fake_api_server, token
from support.waiting import eventually

AGENT = "chart/agent"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api_server() as made:
        yield made


@pytest.fixture
def settings(api: FakeApiServer, tmp_path: Path) -> AuthoritySettings:
    given = api.settings(tmp_path, agent=("node",), gateway=("service/gateway", "service/records"))
    return AuthoritySettings(**given)


async def come(settings: AuthoritySettings, presented: str, wanted: str | None) -> str:
    """Whom a token enrols."""
    identity = of_short(wanted, "chart.local") if wanted else None
    found = await account_of(Kubernetes(settings), settings, presented, identity, time.time_ns() // 1000)
    return found.identity.short


async def refused(settings: AuthoritySettings, presented: str, wanted: str | None) -> tuple[int, str | None, str]:
    with pytest.raises(ProblemError) as problem:
        await come(settings, presented, wanted)
    return problem.value.status, problem.value.kind, problem.value.detail


async def test_a_pod_is_the_node_that_it_runs_on(api: FakeApiServer, settings: AuthoritySettings) -> None:
    presented = token(AGENT, pod="agent-x", node="site-1")
    assert await come(settings, presented, "node/site-1") == "node/site-1"
    assert await come(settings, presented, None) == "node/site-1"
    # Before Kubernetes 1.30 the token does not say it, but the cluster knows the pod.
    api.nodes["agent-y"] = "site-2"
    assert await come(settings, token(AGENT, pod="agent-y"), "node/site-2") == "node/site-2"


async def test_a_service_is_who_its_account_may_be(settings: AuthoritySettings) -> None:
    presented = token("chart/gateway", pod="gateway-x", node="site-1")
    for identity in ("service/gateway", "service/records"):
        assert await come(settings, presented, identity) == identity


async def test_each_fault_has_its_words(api: FakeApiServer, settings: AuthoritySettings) -> None:
    good = token(AGENT, pod="agent-x", node="site-1")
    faults = [
        (token(AGENT, pod="x", node="site-1", audience="x"), "node/site-1", "account-audience", "for the audience x"),
        (token(AGENT, pod="x", node="site-1", life_s=-60), "node/site-1", "account-token-expired", "expired at 20"),
        (good[:-1] + "x", "node/site-1", "account-unknown", "token is invalid"),
        (good, "node/site-2", "token-of-another", "on the node site-1, and node/site-2 came"),
        (good, "service/gateway", "account-not-allowed", "may not be service/gateway"),
        (token("chart/web", pod="x", node="site-1"), "node/site-1", "account-not-allowed", "chart/web enrols nobody"),
        (token(AGENT), "node/site-1", "account-node-missing", "bound to no pod"),
        (token(AGENT, pod="gone"), "node/site-1", "account-node-missing", "chart/gone of this token runs on no node"),
        (token(AGENT, pod="x", node="Bad_Name"), "node/site-1", "account-not-allowed", "not a name of a node"),
    ]  # fmt: skip
    for presented, wanted, kind, word in faults:
        status, told, detail = await refused(settings, presented, wanted)
        assert (status, told) == (403, kind), detail
        assert word in detail
        # An agent shows this many characters.
        assert len(detail) <= 190
    api.forbidden = True
    status, _, detail = await refused(settings, good, "node/site-1")
    assert status == 503
    assert "tokenreviews is forbidden" in detail
    api.forbidden, api.away = False, True
    assert (await refused(settings, good, "node/site-1"))[0] == 503


async def test_without_a_cluster_no_such_token_is_taken(settings: AuthoritySettings) -> None:
    with pytest.raises(ProblemError, match="no cluster is configured"):
        await account_of(None, settings, token(AGENT), None, 0)
    assert is_one(token(AGENT))
    assert not is_one("u" * 43)


async def test_the_certificate_is_published_and_again_when_it_is_lost(
    api: FakeApiServer, settings: AuthoritySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chart.authority.kubernetes.PUBLISH_EVERY_S", 0.02)
    monkeypatch.setattr("chart.authority.kubernetes.PUBLISH_RETRY_S", 0.02)
    api.away = True
    task = asyncio.create_task(Kubernetes(settings).keep_published("chart/ca", "PEM"))
    try:
        for _ in range(2):
            api.away = False
            await eventually(lambda: api.published == {"ca.pem": "PEM"}, 10)
            api.published.clear()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
