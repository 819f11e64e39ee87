"""Rules of the whole source: what may import what, and how metrics are named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "chart"
SERVICES = (
    "registry",
    "reservations",
    "allocator",
    "archiver",
    "gateway",
    "sensor_pod",
    "inference",
    "authority",
    "tunnels",
)
METRIC_KINDS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
# The unit, or what is counted; "total" for counters. Base units, as Prometheus wants them, and bit/s for rates.
METRIC_NAME = re.compile(r"chart_[a-z]+(?:_[a-z0-9]+)+")
COUNTER_END = "_total"
UNIT_ENDS = ("_seconds", "_bytes", "_bps", "_bits_per_second", "_ratio", "_info", "_timestamp_seconds", "_percent")
ABBREVIATED = re.compile(r"_(ms|us|ns|secs?|kb|mb|kbps|mbps)(_total)?$")


def modules() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.py")):
        if "v1" not in path.relative_to(SOURCES).parts:
            yield path


def imports(path: Path) -> Iterator[str]:
    package = ".".join(("chart", *path.relative_to(SOURCES).parts[:-1]))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def folder_of(module: str) -> str | None:
    """The part of chart that a module belongs to; None outside of it."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "chart" else None


def test_production_does_not_import_the_lab() -> None:
    wrong = [
        f"{path.relative_to(SOURCES)} imports {module}"
        for path in modules()
        for module in imports(path)
        if module.partition(".")[0] in ("chart_lab", "support")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("service", [*SERVICES, "common", "maintenance"])
def test_a_service_imports_only_common_generated_code_and_itself(service: str) -> None:
    allowed = {"common", "v1", service}
    wrong = [
        f"{path.relative_to(SOURCES)} imports {module}"
        for path in modules()
        if path.relative_to(SOURCES).parts[0] == service
        for module in imports(path)
        if (folder := folder_of(module)) is not None and folder not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def metrics() -> Iterator[tuple[Path, str, str]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if kind in METRIC_KINDS and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield path, kind, name.value


def test_metrics_are_named_by_service_noun_and_unit() -> None:
    found = list(metrics())
    assert found
    wrong = []
    for path, kind, name in found:
        where = f"{path.relative_to(SOURCES)}: {kind} {name}"
        if not METRIC_NAME.fullmatch(name):
            wrong.append(f"{where}: must be chart_<service>_<noun>_<unit>")
        if (kind == "Counter") != name.endswith(COUNTER_END):
            wrong.append(f"{where}: counters, and only they, end in {COUNTER_END}")
        if kind in ("Histogram", "Summary") and not name.endswith(UNIT_ENDS):
            wrong.append(f"{where}: must end in a unit, one of {', '.join(UNIT_ENDS)}")
        if ABBREVIATED.search(name):
            wrong.append(f"{where}: use base units (seconds, bytes) or bps")
    assert not wrong, "\n".join(wrong)


def test_metrics_are_made_once() -> None:
    names = [name for _, _, name in metrics()]
    assert sorted(names) == sorted(set(names))


# Rooms of a service that outgrew one file per role: what each may import of the service itself, beside its own modules.
ROOMS = {"decisions": set[str](), "store": {"decisions"}, "edges": {"decisions", "store"}}
# What a decision may use of chart.common: plain functions and the words of a refusal.
PURE = {"leases", "rpc_errors", "units"}
# Packages and modules that do I/O, read a clock or wait.
IMPURE = {
    "asyncio", "confluent_kafka", "grpc", "httpx", "prometheus_client", "psycopg", "psycopg_pool", "random", "socket",
    "sqlalchemy", "structlog", "threading", "time", "urllib.request",
}  # fmt: skip
STATEMENT = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|SET TRANSACTION|WHERE|LOCK)\s")


def rooms() -> Iterator[tuple[str, str, Path]]:
    """Service, room ("" for its top level) and path of every module of a service that has rooms."""
    for service in SERVICES:
        if (SOURCES / service / "decisions").is_dir():
            for path in sorted((SOURCES / service).rglob("*.py")):
                parts = path.relative_to(SOURCES / service).parts
                yield service, parts[0] if len(parts) > 1 else "", path


def modules_of(service: str) -> dict[str, set[str]]:
    """Modules of a service with those of the same service that they import, wherever in the file it is."""
    known = {
        ".".join(("chart", *path.relative_to(SOURCES).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in (SOURCES / service).rglob("*.py")
    }
    return {name: known.keys() & set(imports(path)) - {name} for name, path in known.items()}


def test_rooms_import_only_what_stands_below_them() -> None:
    wrong = []
    for service, room, path in rooms():
        inside = f"chart.{service}."
        for module in imports(path):
            if not module.startswith(inside) or room not in ROOMS:
                continue
            target = module.removeprefix(inside).split(".")[0]
            if target != room and target not in ROOMS[room]:
                wrong.append(f"{path.relative_to(SOURCES)} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_decisions_have_no_io_and_no_clock() -> None:
    found = [(path, module) for _, room, path in rooms() if room == "decisions" for module in imports(path)]
    assert found
    wrong = [
        f"{path.relative_to(SOURCES)} imports {module}"
        for path, module in found
        if module.split(".")[0] in IMPURE
        or (module.startswith("chart.common.") and module.split(".")[2] not in PURE)
        or module.endswith("_pb2_grpc")
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_store_speaks_sql() -> None:
    speaking: dict[str, list[str]] = {}
    for _, room, path in rooms():
        nodes = list(ast.walk(ast.parse(path.read_text())))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        executes = any(isinstance(call, ast.Attribute) and call.attr.startswith("execute") for call in calls)
        if executes or any(STATEMENT.match(text) for text in texts) or "sqlalchemy" in set(imports(path)):
            speaking.setdefault(room, []).append(str(path.relative_to(SOURCES)))
    assert speaking.pop("store")
    assert not speaking


@pytest.mark.parametrize("service", sorted({service for service, _, _ in rooms()}))
def test_modules_of_a_service_do_not_import_each_other_in_a_circle(service: str) -> None:
    left = modules_of(service)
    while free := [name for name, needs in left.items() if not needs & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"in a circle, or above one: {sorted(left)}"


def test_nothing_is_imported_late_or_for_types_only() -> None:
    wrong = []
    for _, _, path in rooms():
        tree = ast.parse(path.read_text())
        late = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset]
        wrong += [f"{path.relative_to(SOURCES)}:{node.lineno}" for node in late]
    assert not wrong, "\n".join(wrong)


def test_a_name_is_imported_from_where_it_is_made() -> None:
    """No module of a service with rooms passes on what another one defines."""
    wrong = []
    made: dict[str, set[str]] = {}
    for _, _, path in rooms():
        name = ".".join(("chart", *path.relative_to(SOURCES).with_suffix("").parts))
        found: set[str] = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        made[name] = found
    for path in modules():
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.ImportFrom) and one.module in made:
                wrong += [
                    f"{path.relative_to(SOURCES)} imports {alias.name} from {one.module}"
                    for alias in one.names
                    if alias.name not in made[one.module]
                ]
    assert not wrong, "\n".join(wrong)
