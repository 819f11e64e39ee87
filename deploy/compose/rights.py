"""Which rights the processes of the platform of docker-compose.yml have, as the kernel tells it."""

from __future__ import annotations

from installation import AGENTS, PODS, UPGRADED, ComposeTestError, Installation, docker

from chart_lab.platform.process_rights import Rights

# Those of others, as published or stood in for.
OTHERS = ("kafka", "database", "keycloak", "vault", "prometheus", "collector")
# The second is what Docker before 23 gets (deploy/compose/compose).
AGENT_CAPABILITIES = [["BPF", "NET_ADMIN", "PERFMON"], ["NET_ADMIN", "SYS_ADMIN"]]


def least_rights(installation: Installation) -> None:
    """No process of any container is root but those of the agents, and those have just the capabilities that they were
    given, one of AGENT_CAPABILITIES.

    Raises:
        ComposeTestError: one has more, by its container's settings or as the kernel tells it.
    """
    for service in (*UPGRADED, *AGENTS, *PODS):
        found = installation.inspect(service)
        host = found["HostConfig"]
        added = sorted({name.removeprefix("CAP_") for name in host["CapAdd"] or ()})
        allowed = AGENT_CAPABILITIES if service in AGENTS else [[]]
        closed = host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["Privileged"]
        if added not in allowed or not closed:
            msg = f"{service} has capabilities {added}, read-only root {host['ReadonlyRootfs']}"
            raise ComposeTestError(msg)
    for service in (*UPGRADED, *AGENTS, *PODS, *OTHERS):
        found = installation.inspect(service)
        held = {name.removeprefix("CAP_") for name in found["HostConfig"]["CapAdd"] or ()}
        running = [rights for pid in pids(found["Id"]) if (rights := Rights.of(pid))]
        if not running:
            msg = f"{service} has no process"
            raise ComposeTestError(msg)
        for rights in running:
            wrong = rights.beyond(held) if service in AGENTS else rights.beyond_a_user()
            if wrong:
                msg = f"a process of {service} {wrong}"
                raise ComposeTestError(msg)


def pids(container: str) -> list[int]:
    """The processes of a container, by their ids on this machine."""
    return [int(line) for line in docker("top", container, "-eo", "pid").splitlines()[1:]]
