"""The recording of a large network and its replay, which the dashboard's measurements run on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chart.common.streams import LocalBroker
from chart.gateway.live import LINK_LOAD, NODE_STATE, PASSING, TOPOLOGY
from chart.v1 import link_load_pb2
from support import recorded_network as recorded


def test_a_made_network_hangs_together_and_is_the_same_each_time() -> None:
    entries = list(recorded.made(30, 100, 0.3, seed=3))
    assert entries == list(recorded.made(30, 100, 0.3, seed=3))
    topology = [entry.key for entry in entries if entry.topic == TOPOLOGY]
    assert len([key for key in topology if ":" not in key]) == 30
    links = [key.split(":to-") for key in topology if ":" in key]
    assert len(links) == 100
    reached, ends = {"n000"}, {(a, b) for a, b in links}
    for _ in range(30):
        reached |= {b for a, b in ends if a in reached}
    assert len(reached) == 30
    # Three reports of every node in 0.3 s, and their time goes on.
    loads = [entry for entry in entries if entry.topic == LINK_LOAD]
    assert len(loads) == 90
    assert [entry.at_us for entry in loads] == sorted(entry.at_us for entry in loads)


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    entries = list(recorded.made(4, 6, 0.2, seed=1))
    assert recorded.write(tmp_path / "a.gz", entries) == len(entries)
    assert recorded.read(tmp_path / "a.gz") == entries
    (tmp_path / "b.gz").write_bytes(b"no gzip")
    assert recorded.main(["replay", str(tmp_path / "b.gz")]) == 1


async def test_the_replay_goes_round_at_the_present_time() -> None:
    entries = list(recorded.made(2, 2, 0.2, seed=1))
    broker = recorded.TapeBroker(entries)
    seen: list[int] = []
    async with broker.subscribe(PASSING) as tape:
        async for record in tape:
            if record.topic != LINK_LOAD:
                continue
            assert isinstance(record.value, link_load_pb2.LinkLoadReport)
            seen.append(record.value.interval_end_us)
            if len(seen) == 6:
                break
    assert seen == sorted(seen)
    assert len(set(seen)) == 6
    assert abs(seen[-1] / 1e6 - time.time()) < 5
    await broker.first()
    nodes = await broker.compacted(NODE_STATE)
    assert sorted(nodes.keys()) == ["n000", "n001"]
    await broker.close()


async def test_a_replay_that_cannot_keep_up_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = list(recorded.made(2, 2, 0.2, seed=1))
    said: list[str] = []
    now_s = time.time()
    # However long the machine takes to begin.
    monkeypatch.setattr(time, "time", lambda: now_s)
    async with recorded.Tape(LocalBroker(), entries, said.append) as tape:
        await anext(tape)
        assert said == []
        monkeypatch.setattr(time, "time", lambda: now_s + 3)
        for _ in entries:
            await anext(tape)
    # Once a second at most.
    assert len(said) == 1
    assert said[0].startswith("replay: 2.") or said[0].startswith("replay: 3.")


@pytest.mark.parametrize("words", [["make"], ["replay"], []])
def test_what_is_missing_is_said(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        recorded.main(words)
