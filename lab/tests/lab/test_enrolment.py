"""How a lab's agents are told of the authority, and what their enrolment looks like; without a lab."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from chart_lab import enrolment, registration, supervise, topology
from chart_lab.errors import LabError
from chart_lab.network import Lab

AUTHORITY = "https://10.254.0.1:18443"
TOLD = {
    "enrolled": True, "revoked": False, "element": 3, "next_hops": 7, "authorisations": 4, "pairs": 2, "keys": 2,
    "records_signed": True, "reports_sent": 0, "reports_healed": 0, "error": "",
}  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab that is not up, of a platform whose state is in a folder of the test."""
    monkeypatch.setenv("CHART_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(supervise, "program", lambda name: Path("/build") / name)
    return Lab(topology.load("demo"), state_dir=tmp_path / "lab", management=True)


def options(command: Iterable[str]) -> dict[str, str]:
    return {word: value for word, value in itertools.pairwise(command) if word.startswith("--")}


def test_agents_of_an_enrolled_lab_know_the_authority(lab: Lab, tmp_path: Path) -> None:
    lab.set_platform("http://127.0.0.1:18080", AUTHORITY)
    known = options(supervise.agent(lab, "bravo").command)
    assert known["--authority"] == AUTHORITY
    assert known["--authority-ca"] == str(tmp_path / "authority" / "ca.pem")
    assert known["--enrolment-token-file"] == str(lab.node_directory("bravo") / "enrolment-token")
    assert Lab.load(lab.id, state_dir=tmp_path / "lab").authority == AUTHORITY


def test_agents_of_a_lab_that_is_not_enrolled_ask_nobody(lab: Lab) -> None:
    lab.set_platform("http://127.0.0.1:18080", "")
    assert not [word for word in supervise.agent(lab, "bravo").command if word.startswith(("--authority", "--enrol"))]


def test_the_platform_says_where_nodes_reach_the_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    assert enrolment.authority_url() == AUTHORITY
    monkeypatch.setenv("CHART_SERVICE_PORT_BASE", "20000")
    assert enrolment.authority_url() == "https://10.254.0.1:20343"


class Authority:
    """An authority that notes what is asked, and refuses where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refused: dict[str, int] | None = None) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.refused = refused or {}
        transport = httpx.MockTransport(self.answer)
        monkeypatch.setattr(enrolment, "operator_client", lambda url: httpx.Client(base_url=url, transport=transport))

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.method, request.url.path, request.read()))
        status = self.refused.get(request.url.path)
        return httpx.Response(status or 201, json={"token": f"token {len(self.asked)}"})


def test_every_node_gets_a_token_that_nobody_else_may_read(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(monkeypatch)
    lab.set_platform("http://127.0.0.1:18080", AUTHORITY)
    enrolment.enrol(lab, registration.authorisation_policy(lab.topology))
    paths = [f"{method} {path}" for method, path, _ in authority.asked]
    assert paths == ["PUT /v1/authorisation-policies/chart-lab", *["POST /v1/enrolments"] * 4]
    files = [enrolment.token_file(lab, node.name) for node in lab.topology.nodes]
    assert len({file.read_text() for file in files}) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_refused_enrolment_is_told_in_the_authoritys_words(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    Authority(monkeypatch, {"/v1/enrolments": 403})
    lab.set_platform("http://127.0.0.1:18080", AUTHORITY)
    with pytest.raises(LabError, match="refused /v1/enrolments: 403"):
        enrolment.enrol(lab, registration.authorisation_policy(lab.topology))


@pytest.mark.parametrize(("status", "raises"), [(204, False), (404, False), (503, True)])
def test_a_lab_that_goes_takes_the_identities_of_its_nodes_along(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, status: int, raises: bool
) -> None:
    authority = Authority(monkeypatch, {"/v1/revocations": status})
    lab.set_platform("http://127.0.0.1:18080", AUTHORITY)
    if raises:
        with pytest.raises(LabError, match="refused to revoke alpha"):
            enrolment.revoke(lab)
    else:
        enrolment.revoke(lab)
        assert len(authority.asked) == 4


def test_what_an_agent_says_of_its_enrolment_in_words() -> None:
    assert enrolment.of_status({"authority": TOLD}).in_words == "enrolled, element 3, 2 keys"
    assert enrolment.of_status({}).in_words == "not enrolled (its agent runs without an authority)"
    revoked = enrolment.of_status({"authority": {**TOLD, "revoked": True}})
    assert revoked.in_words == "its certificate is revoked"


def test_without_the_operators_certificate_the_way_out_is_named(lab: Lab) -> None:
    with pytest.raises(LabError, match="make up"):
        enrolment.operator_client(AUTHORITY)


def test_pods_of_an_enrolled_lab_use_their_agents_certificate(lab: Lab, tmp_path: Path) -> None:
    assert enrolment.pod_environment(lab, "bravo") == {}
    lab.set_platform("http://127.0.0.1:18080", AUTHORITY)
    told = supervise.pod(lab, "bravo", tmp_path / "sensor.key").environment
    known = options(supervise.agent(lab, "bravo").command)
    assert told["CHART_NODE_IDENTITY"] == f"{known['--state-dir']}/node"
    assert told["CHART_AUTHORITY_CA"] == known["--authority-ca"]
    assert told["CHART_AUTHORITY_URL"] == AUTHORITY
