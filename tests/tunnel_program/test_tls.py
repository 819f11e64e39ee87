"""Mutual TLS between the ends, and what each says about a certificate that is wrong."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from support.waiting import until
from tunnel_program.certificates import Authority
from tunnel_program.ends import PORT, End, command

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    loaded = topology.load("two-node")
    with Lab(loaded, f"t{secrets.token_hex(3)}", state_dir=tmp_path_factory.mktemp("labs")) as up:
        yield up


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"), "authority")


@pytest.fixture
def world(lab: Lab, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(lab, tmp_path, stack)


class World:
    """Starts ends that stop with the test."""

    def __init__(self, lab: Lab, directory: Path, stack: ExitStack) -> None:
        self.lab, self.directory, self.stack = lab, directory, stack
        self.address = lab.address("bravo")

    def destination(self, *options: str) -> End:
        return self._end("destination", "bravo", "--listen", f"{self.address}:{PORT}", *options)

    def origin(self, *options: str) -> End:
        return self._end("origin", "alpha", "--destination", f"{self.address}:{PORT}", "--connections", "3", *options)

    def _end(self, role: str, node: str, *options: str) -> End:
        return self.stack.enter_context(End(role, self.directory, options, self.lab, node))


def error_of(end: End, *parts: str) -> None:
    """Waits for a last error that has all these parts."""
    until(lambda: all(part in end.get()["last_error"] for part in parts), f"{parts} as the error of the {end.role}")


def test_both_ends_show_good_certificates(world: World, authority: Authority) -> None:
    destination = world.destination(*authority.issue("bravo", world.address), "--tls-name", "alpha.test")
    origin = world.origin(*authority.issue("alpha", "alpha.test"))
    until(lambda: origin.established() == 3, "three connections")
    assert origin.get()["tls"] is True
    until(lambda: origin.get()["report"], "a report through TLS")
    assert destination.get()["counters"]["connections_refused"] == 0


def test_a_certificate_of_another_address_until_it_is_replaced(world: World, authority: Authority) -> None:
    world.destination(*authority.issue("bravo", "192.0.2.77"))
    origin = world.origin(*authority.issue("alpha"))
    error_of(origin, "certificate is refused: IP address mismatch", "/CN=bravo", "tried again")
    # The same files, anew: taken for the next attempt.
    authority.issue("bravo", world.address)
    until(lambda: origin.established() == 3, "three connections")
    assert origin.get()["last_error"] == ""


def test_an_origin_without_the_name_is_refused(world: World, authority: Authority) -> None:
    destination = world.destination(*authority.issue("bravo", world.address), "--tls-name", "alpha.test")
    origin = world.origin(*authority.issue("mallory", "mallory.test"))
    error_of(destination, "certificate is refused: hostname mismatch", "/CN=mallory")
    error_of(origin, "the other end refuses our certificate")
    assert origin.established() == 0


def test_an_origin_of_another_authority_is_refused(world: World, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    files = stranger.issue("alpha")
    destination = world.destination(*authority.issue("bravo", world.address))
    origin = world.origin(*files[:5], str(authority.path))
    error_of(destination, "unable to get local issuer certificate", "/CN=alpha")
    error_of(origin, "the other end refuses our certificate", "unknown CA")


def test_one_end_without_tls_is_told(world: World, authority: Authority) -> None:
    destination = world.destination(*authority.issue("bravo", world.address))
    origin = world.origin()
    error_of(destination, "does not speak TLS")
    error_of(origin, "tried again")
    assert origin.established() == 0


def test_a_destination_without_tls_is_told(world: World, authority: Authority) -> None:
    destination = world.destination()
    origin = world.origin(*authority.issue("alpha"))
    error_of(destination, "not a tunnel's frame")
    error_of(origin, "tried again")
    assert origin.established() == 0


def start(lab: Lab, *options: str) -> tuple[int, str]:
    """Exit status and words of an origin that does not start."""
    line = command("origin", "--destination", "192.0.2.9:7400", "--control", "/run/chart-test-tls.sock", *options)
    told = lab.exec("alpha", line, check=False)
    return told.returncode, told.stderr


def test_faults_of_files_are_named_at_the_start(lab: Lab, authority: Authority) -> None:
    expired = authority.issue("old", days=(-10, -1))
    status, told = start(lab, *expired)
    assert status == 1
    assert "old-certificate.pem has expired on" in told
    one, other = authority.issue("one"), authority.issue("other")
    assert "other-key.pem does not belong to certificate" in start(lab, *one[:3], other[3], *one[4:])[1]
    assert "certificate /nowhere.pem: No such file or directory" in start(lab, one[0], "/nowhere.pem", *one[2:])[1]
    assert start(lab, *one[:2])[0] == 2
