"""docker-compose.yml says what the rest of the repository says: services, versions, settings, rights."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

from chart.maintenance import broker_identities
from chart.sensor_pod.settings import PodSettings
from chart_lab.platform.kafka import BrokerTls
from chart_lab.platform.process_rights import Rights
from chart_lab.platform.programs import SERVICES
from chart_lab.platform.settings import repository_root

ROOT = repository_root()
FILES = ("docker-compose.yml", "compose.standins.yml", "compose.observability.yml", "compose.test.yml")
STANDINS_OF_LAYERS = {"compose.standins-observability.yml": "compose.observability.yml"}
# Versions that spoke to the broker in plain: only beside the others.
BEFORE = ("compose.plain.yml", "compose.test-plain.yml")
OURS = (*SERVICES, "authority", "gateway", "web", "topics", "migrate", "vault-setup")
AGENTS = ("agent", "node-alpha", "node-delta")
AGENT_CAPABILITIES = ["${CHART_AGENT_BPF:-BPF}", "${CHART_AGENT_PERFMON:-PERFMON}", "NET_ADMIN"]
# Compose sets it itself.
GIVEN = {"COMPOSE_PROJECT_NAME"}


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


def services() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in FILES:
        for service, body in load(name)["services"].items():
            found[service] = {**found.get(service, {}), **body}
    return found


def dotenv() -> dict[str, str]:
    lines = (ROOT / ".env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", [*FILES, *STANDINS_OF_LAYERS])
def test_every_variable_without_a_default_is_in_dotenv_or_a_password_that_is_made(name: str) -> None:
    wanted = set(re.findall(r"(?<!\$)\$\{(\w+)(?::\?[^}]*)?\}", (ROOT / name).read_text(encoding="utf-8")))
    made = set(re.findall(r"CHART_\w+", (ROOT / "deploy/compose/secrets").read_text(encoding="utf-8")))
    assert wanted - set(dotenv()) - made - GIVEN == set()
    assert not made & set(dotenv()), "a password stands in .env"


def test_every_service_runs_with_its_own_database_role_and_a_health_check() -> None:
    found = services()
    assert set(OURS) <= set(found)
    for name in (*SERVICES, "authority", "gateway", "web"):
        assert found[name]["healthcheck"]["test"][0] == "CMD", name
        url = load("docker-compose.yml")["services"][name]["environment"].get("CHART_DATABASE_URL")
        own = f"postgresql://{name}:${{CHART_{name.upper()}_DATABASE_PASSWORD}}@database/chart"
        assert url is None or url == own, name


def test_every_service_is_in_production_and_has_the_files_of_its_own_name_alone() -> None:
    found = load("docker-compose.yml")["services"]
    for name in (*SERVICES, "authority", "gateway", "topics"):
        body = found[name]
        mounted = [volume for volume in body["volumes"] if "identity" in volume or "identities" in volume]
        assert mounted == [f"identity-{name}:/etc/chart/identity:ro"], name
        assert body["environment"]["CHART_ENVIRONMENT"] == "production", name
        assert body["environment"]["CHART_KAFKA_PROPERTIES"] == "/etc/chart/identity/kafka.properties", name
    # The keys of the authority's own machine are the authority's.
    assert [name for name, body in found.items() if "authority:/var/lib/chart" in body.get("volumes", [])] == [
        "authority"
    ]
    assert "development" not in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    given = {f"identity-{name}" for name in (broker_identities.BROKER, broker_identities.ADMINISTRATOR)}
    given |= {f"identity-{name}" for name in broker_identities.SERVICES}
    mounts = {volume.split(":")[0] for volume in found["vault-setup"]["volumes"]}
    assert given <= mounts
    dockerfile = (ROOT / "services/Dockerfile").read_text(encoding="utf-8")
    names = re.search(r"for name in ([a-z ]+); do", dockerfile)
    assert names
    assert {f"identity-{name}" for name in names[1].split()} == given


def test_the_broker_of_compose_asks_for_certificates_as_that_of_the_tests_does() -> None:
    environment = load("docker-compose.yml")["services"]["kafka"]["environment"]
    told = {name.removeprefix("KAFKA_").replace("_", ".").lower(): value for name, value in environment.items()}
    tls = BrokerTls(Path("/etc/chart/identity/broker.pem"), Path("/etc/chart/identity/authority.pem"))
    for line in tls.properties():
        name, _, value = line.partition("=")
        assert told[name].replace("$$", "$") == value, name
    assert "PLAINTEXT" not in str(environment)


@pytest.mark.parametrize("name", BEFORE)
def test_the_layers_of_versions_before_name_services_that_are_there(name: str) -> None:
    assert set(load(name)["services"]) <= set(services())


def test_none_but_agents_has_a_capability_and_none_of_ours_can_write_its_root() -> None:
    found = services()
    for name in (*OURS, *AGENTS):
        body = found[name]
        assert body["cap_drop"] == ["ALL"], name
        assert body["read_only"] is True, name
        assert "no-new-privileges:true" in body["security_opt"], name
        assert body.get("cap_add", []) == (AGENT_CAPABILITIES if name in AGENTS else []), name


def status(user: int, permitted: int, effective: int, bounding: int) -> str:
    """As /proc/PID/status has it."""
    return (
        f"Name:\tx:y\nUmask:\t0022\nUid:\t{user}\t{user}\t{user}\t{user}\nCapInh:\t0000000000000000\n"
        f"CapPrm:\t{permitted:016x}\nCapEff:\t{effective:016x}\nCapBnd:\t{bounding:016x}\n"
    )


def test_a_process_with_more_than_its_rights_is_noticed() -> None:
    three, named = 0xC000001000, {"BPF", "PERFMON", "NET_ADMIN"}
    exact = Rights.parse(status(0, three, three, three))
    assert exact.beyond(named) == ""
    assert exact.beyond(named - {"BPF"}).startswith("has 0xc000001000")
    assert exact.beyond_a_user() == "runs as root"
    for masks in ((three | 1, three, three), (three, three | 1, three), (three, three, three | 1), (three, 0, three)):
        assert Rights.parse(status(0, *masks)).beyond(named), masks
    user = Rights.parse(status(10001, 0, 0, 0))
    assert user.beyond_a_user() == ""
    assert Rights.parse(status(10001, 1, 0, 0)).beyond_a_user() == "has capabilities 0x1"


def test_the_official_images_are_the_versions_that_everything_else_is_tried_with() -> None:
    def version(pom: Path, artifact: str) -> str:
        space = {"m": "http://maven.apache.org/POM/4.0.0"}
        for dependency in ElementTree.parse(pom).getroot().iterfind(".//m:dependency", space):
            if dependency.findtext("m:artifactId", "", space) == artifact:
                return dependency.findtext("m:version", "", space)
        raise AssertionError(f"{pom} has no {artifact}")

    settings = dotenv()
    vault = re.search(r"hashicorp/vault v(\S+)", (ROOT / "deploy/vault/go.mod").read_text(encoding="utf-8"))
    assert vault
    for image, expected in {
        "CHART_KAFKA_IMAGE": version(ROOT / "deploy/kafka/pom.xml", "kafka_2.13"),
        "CHART_KEYCLOAK_IMAGE": version(ROOT / "deploy/keycloak/pom.xml", "keycloak-quarkus-dist"),
        "CHART_VAULT_IMAGE": vault[1],
    }.items():
        assert settings[image].rsplit(":", 1)[1] == expected
    project = (ROOT / "services/pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{settings["CHART_TAG"]}"' in project


@pytest.mark.parametrize(("standins", "layer"), STANDINS_OF_LAYERS.items())
def test_a_layer_has_stand_ins_for_its_services_or_says_that_they_are_left_out(standins: str, layer: str) -> None:
    published = {name for name, body in load(layer)["services"].items() if "image" in body}
    found = load(standins)["services"]
    assert set(found) == published
    for name, body in found.items():
        if "build" in body:
            context = ROOT / body["build"]["context"]
            assert (context / body["build"]["dockerfile"]).resolve().is_file(), name
        else:
            assert body == {"profiles": [name]}, name


def test_the_collector_of_the_stand_in_is_of_the_published_version_and_has_what_its_settings_name() -> None:
    version = dotenv()["CHART_COLLECTOR_IMAGE"].rsplit(":", 1)[1]
    module = (ROOT / "deploy/collector/go.mod").read_text(encoding="utf-8")
    program = (ROOT / "deploy/collector/main.go").read_text(encoding="utf-8")
    assert f"collector/otelcol v{version}\n" in module
    assert f'Version: "{version}"' in program
    settings = yaml.safe_load((ROOT / "deploy/compose/collector.yml").read_text(encoding="utf-8"))
    for kind in ("receiver", "processor", "exporter"):
        for name in settings[f"{kind}s"]:
            assert f"{name}{kind}.NewFactory()" in program, name


def test_the_image_of_agents_has_code_of_the_messages_that_a_build_without_docker_has() -> None:
    def selected(file: str) -> str:
        found = re.search(
            r"grep -L (.*?) (?:\$\(PROTO_FILES\)|proto/chart/v1/\*\.proto)", (ROOT / file).read_text(encoding="utf-8")
        )
        assert found, file
        return found[1]

    assert selected("dataplane/Dockerfile") == selected("mk/proto.mk")


def jobs() -> dict[str, dict[str, Any]]:
    configuration = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text(encoding="utf-8"))
    return {job["job_name"]: job for job in configuration["scrape_configs"]}


def test_prometheus_scrapes_every_service() -> None:
    targets = {one for static in jobs()["chart"]["static_configs"] for one in static["targets"]}
    assert targets == {f"{name}:8080" for name in (*SERVICES, "authority", "gateway")}


def scrape(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CHART_COMPOSE_TARGETS": str(folder)}
    command = [str(ROOT / "deploy/compose/scrape"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=10, check=False)


def test_prometheus_scrapes_agents_and_pods_of_the_nodes_that_it_is_told_of(tmp_path: Path) -> None:
    (mount,) = (
        volume
        for volume in load("compose.observability.yml")["services"]["prometheus"]["volumes"]
        if "CHART_COMPOSE_TARGETS" in volume
    )
    folder = mount.removesuffix(":ro").rpartition(":")[2]
    pod_port = PodSettings.model_fields["http_listen"].default.rpartition(":")[2]
    for job, port in {"chart-agents": "18220", "chart-sensor-pods": pod_port}.items():
        assert jobs()[job]["file_sd_configs"] == [{"files": [f"{folder}/*.yml"]}]
        (relabel,) = jobs()[job]["relabel_configs"]
        assert relabel == {
            **{"source_labels": ["__address__"], "target_label": "__address__"},
            "replacement": f"$1:{port}",
        }
    for name in AGENTS:
        command = services()[name]["command"]
        assert command[command.index("--metrics") + 1].endswith(":18220"), name
    targets = tmp_path / "targets"
    for node, host in {"site-1.example": "172.18.0.1", "alpha": "node-alpha", "six": "[2001:db8::1]"}.items():
        assert scrape(targets, node, host).returncode == 0
        (written,) = yaml.safe_load((targets / f"{node}.yml").read_text(encoding="utf-8"))
        assert written == {"targets": [host], "labels": {"instance": node}}
        assert stat.S_IMODE((targets / f"{node}.yml").stat().st_mode) == 0o644
    assert scrape(targets, "--forget", "alpha").returncode == 0
    assert sorted(path.name for path in targets.iterdir()) == ["site-1.example.yml", "six.yml"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "usage: scrape NODE HOST"),
        (("site-1",), "usage: scrape NODE HOST"),
        (("../out", "host"), "is no name of a node"),
        (("site-1", "host:18220"), "without a port"),
        (("site-1", 'a"b'), "without a port"),
    ],
)
def test_what_cannot_be_scraped_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    refused = scrape(tmp_path / "targets", *arguments)
    assert refused.returncode != 0
    assert words in refused.stderr
    assert not (tmp_path / "targets").exists()


def test_agents_of_a_kernel_share_trinity_by_the_folder_of_the_host() -> None:
    source = (ROOT / "dataplane/agent/grants/trinity_share.h").read_text(encoding="utf-8")
    folder = re.search(r'TRINITY_DIRECTORY "(\S+)"', source)
    assert folder
    for name in AGENTS:
        assert f"{folder[1]}:{folder[1]}" in services()[name]["volumes"], name


@pytest.mark.parametrize(("networks", "address"), [("172.30.0.1 ", "172.30.0.1"), ("", "127.0.0.1")])
def test_metrics_of_this_machine_s_agent_are_where_containers_reach_them(
    tmp_path: Path, networks: str, address: str
) -> None:
    # An engine that knows the platform's network, or not yet.
    engine = tmp_path / "docker"
    asked = '[ "$*" = "network inspect -f {{range .IPAM.Config}}{{.Gateway}} {{end}} chart-asked_default" ]'
    known = f'echo "{networks}"' if networks else "exit 1"
    engine.write_text(
        f'#!/bin/sh\ncase "$*" in *version*) echo 25.0.0;; *network*) {asked} && {known};; esac\n', encoding="utf-8"
    )
    engine.chmod(0o755)
    environment = {
        **{"PATH": f"{tmp_path}:{os.environ['PATH']}", "COMPOSE_PROJECT_NAME": "chart-asked"},
        "CHART_COMPOSE_SECRETS": str(tmp_path / "secrets.env"),
    }
    command = [str(ROOT / "deploy/compose/compose"), "node-address"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=True)
    assert told.stdout == f"{address}\n"


def test_files_that_compose_mounts_are_there() -> None:
    mounted = [volume for body in services().values() for volume in body.get("volumes", []) if volume.startswith("./")]
    assert mounted
    for volume in mounted:
        assert (ROOT / volume.split(":", 1)[0]).exists(), volume
