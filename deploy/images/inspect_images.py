"""Looks at images after their build: size, user, labels, what is in them; writes bills of materials and a report.

Bills of materials are made by syft (SPDX JSON), one per image. Exit status 1 when an image is not what it must be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

# The one image that starts as root: chart-agent loads BPF programs and keeps three capabilities.
ROOT_IMAGES = {"chart-agents"}
# Of those that many machines have to fetch.
GOALS = {"chart-services": "< 350", "chart-sensor-pod": "< 200", "chart-agents": "< 90"}
LABELS = ("title", "description", "version", "revision")
# Compilers and package managers of languages belong into build stages.
UNWANTED = ("gcc", "clang-19", "make", "npm", "pip")


def docker(*arguments: str) -> str:
    """What docker prints."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True, timeout=300).stdout


def faults(name: str, description: dict[str, object], packages: set[str]) -> list[str]:
    """What is wrong with an image."""
    configuration = description["Config"]
    assert isinstance(configuration, dict)
    user = str(configuration.get("User") or "")
    labels = configuration.get("Labels") or {}
    found = []
    if name not in ROOT_IMAGES and user.split(":")[0] in ("", "0", "root"):
        found.append("runs as root")
    found += [
        f"has no label {label}" for label in LABELS if not labels.get(f"org.opencontainers.image.{label}", "").strip()
    ]
    found += [f"contains {package}" for package in UNWANTED if package in packages]
    return found


def bill_of_materials(syft: Path, image: str, out: Path) -> set[str]:
    """Write the SPDX document of an image; returns the names of its packages."""
    archive = out / "image.tar"
    try:
        docker("save", "-o", str(archive), image)
        path = out / f"{image.replace(':', '-')}.spdx.json"
        with path.open("w", encoding="utf-8") as file:
            subprocess.run(
                [str(syft), f"docker-archive:{archive}", "-q", "-o", "spdx-json"], check=True, stdout=file, timeout=600
            )
    finally:
        archive.unlink(missing_ok=True)
    return {package["name"] for package in json.loads(path.read_text(encoding="utf-8"))["packages"]}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", nargs="+")
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the bills of materials")
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--syft", type=Path, required=True)
    arguments = parser.parse_args()
    figures, wrong = [], 0
    for name in arguments.images:
        image = f"{name}:{arguments.version}"
        description = json.loads(docker("image", "inspect", image))[0]
        packages = bill_of_materials(arguments.syft, image, arguments.out)
        size_mb = description["Size"] / 1e6
        figures.append(
            {
                "name": f"size_mb/image={name}",
                "value": round(size_mb, 1),
                "unit": "MB",
                "goal": GOALS.get(name),
                "peer": None,
            }
        )
        found = faults(name, description, packages)
        wrong += bool(found)
        sys.stderr.write(
            f"images: {image}: {size_mb:.0f} MB, {len(packages)} packages{''.join('; ' + f for f in found)}\n"
        )
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    report = {"command": "make images", "figures": figures}
    arguments.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
