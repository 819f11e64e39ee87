"""`make version-skew`: which commit, which programs, and the figures; without a platform."""

from __future__ import annotations

from pathlib import Path

import pytest
import version_skew as skew
from version_skew import SkewError


def test_the_previous_version_is_one_whole_commit() -> None:
    assert len(skew.previous_commit(skew.PREVIOUS.read_text())) == 40
    for text in ("# nothing\n", "4cb5010\n", f"{'a' * 40}\n{'b' * 40}\n"):
        with pytest.raises(SkewError, match="one commit of 40"):
            skew.previous_commit(text)


def test_a_commit_that_a_shallow_clone_lacks_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SkewError, match="git fetch --unshallow"):
        skew.unpack("0" * 40, tmp_path / "tree")


def test_a_failed_build_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(SkewError, match="no such thing"):
        skew.run(["sh", "-c", "echo no such thing >&2; exit 3"], tmp_path)


def test_the_agent_alone_is_of_another_version(tmp_path: Path) -> None:
    programs = tmp_path / "build"
    for name in ("dataplane/chart-agent", "dataplane/chart-tunnel", "lab/bulk"):
        (programs / name).parent.mkdir(parents=True, exist_ok=True)
        (programs / name).write_text(name)
    made = skew.with_agent_link(tmp_path / "this", programs)
    assert (made / "lab" / "bulk").read_text() == "lab/bulk"
    (made / skew.AGENT).unlink()
    assert (programs / skew.AGENT).exists()
    assert (made / "dataplane" / "chart-tunnel").read_text() == "dataplane/chart-tunnel"


def test_every_check_counts_once_and_failures_are_named() -> None:
    good, bad = {"check": "in_band", "good": True, "detail": ""}, {"check": "upgrade", "good": False, "detail": "late"}
    figures = {one["name"]: one["value"] for one in skew.figures_of({"this": [good, bad], "previous": [good]})}
    assert figures["skew_tried"] == 3
    assert figures["skew_failures"] == 1
    assert figures["skew/platform=this/check=upgrade"] == 0.0
    assert figures["skew/platform=previous/check=in_band"] == 1.0
