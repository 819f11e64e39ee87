"""Rules inside a service that has rooms (docs/admission.md): no I/O in decisions, SQL in the store alone.

Who may import whom, and no circles: contracts of `make lint-imports` (pyproject.toml).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "chart"
SERVICES = sorted(path.name for path in SOURCES.iterdir() if (path / "main.py").exists())


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


# What a decision may use of chart.common: plain functions and the words of a refusal.
PURE = {"leases", "overlay_routes", "ownership", "rpc_errors", "units"}
# Packages and modules that do I/O, read a clock or wait.
IMPURE = {
    "asyncio", "confluent_kafka", "grpc", "httpx", "prometheus_client", "psycopg", "psycopg_pool", "random", "socket",
    "sqlalchemy", "structlog", "threading", "time", "urllib.request",
}  # fmt: skip
STATEMENT = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|SET TRANSACTION|WHERE|LOCK)\s")


def modules() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.py")):
        if "v1" not in path.relative_to(SOURCES).parts:
            yield path


def rooms() -> Iterator[tuple[str, str, Path]]:
    """Service, room ("" for its top level) and path of every module of a service that has rooms."""
    for service in SERVICES:
        if (SOURCES / service / "decisions").is_dir():
            for path in sorted((SOURCES / service).rglob("*.py")):
                parts = path.relative_to(SOURCES / service).parts
                yield service, parts[0] if len(parts) > 1 else "", path


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
