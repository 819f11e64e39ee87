"""The drivers of the original programs, on what those print and with programs that print it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.sensors import original
from chart.sensors.host import SENSOR as HOST
from chart.sensors.program import SensorError, parse_request

INSTBW = """1137442312.103541 48.213409
1137442312.598320 47.902211
1137442313.071109 51.004100
"""
PATHRATE_REPORT = """
\tpathrate run from 10.0.0.9 to 10.0.0.1 on Mon Jan 16 20:11:52 2006
--> Average round-trip time: 20.3ms
--> Coefficient of variation: 0.012
-------------------------------------------------
Final capacity estimate :  97 Mbps  to  98 Mbps
-------------------------------------------------
"""
PATHRATE_N = (
    "DATE=20060116201152.104512 HOST=alpha PROG=pathrate LVL=Usage PATHRATE.SNDR=10.0.0.9 "
    "PATHRATE.CAPL=12.3Mbps PATHRATE.CAPH=13.0Mbps\n"
)
SPRUCE_SENDER = "sending...\navailalble bandwidth estimate: 12345 Kbps\n"
SPRUCE_RECEIVER = "Available Bandwidth: 12345 Kbps (12 Mbps)\n"


def test_files_of_pathchirp_are_read() -> None:
    found = original.parse_instbw(INSTBW)
    assert len(found) == 3
    at_s, rate_bps = found[0]
    assert at_s == 1137442312.103541
    assert rate_bps == pytest.approx(48.213409e6)
    # The program is ended while it writes.
    assert len(original.parse_instbw(INSTBW + "11374423")) == 3
    assert original.smoothed(found) == pytest.approx((48.213409 + 47.902211 + 51.0041) / 3 * 1e6)
    with pytest.raises(SensorError, match="line 2"):
        original.parse_instbw("1.5 2.0\nno numbers\n3.0 1.0\n")
    with pytest.raises(SensorError, match="wrote no estimate"):
        original.smoothed([])


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (PATHRATE_REPORT, 97e6, 98e6),
        (PATHRATE_N, 12.3e6, 13e6),
        (PATHRATE_N + PATHRATE_REPORT, 12.3e6, 13e6),
        ("Final capacity estimate :  480 kbps  to  512 kbps", 480e3, 512e3),
        ("Final capacity estimate :  960 kbps  to  1.1 Mbps", 960e3, 1.1e6),
    ],
)
def test_capacities_of_pathrate_are_read(text: str, low: float, high: float) -> None:
    found = original.parse_pathrate(text)
    assert (found.low_bps, found.high_bps) == pytest.approx((low, high))
    assert not found.lower_bound


def test_pathrate_may_say_a_bound_or_nothing() -> None:
    bound = "Phase I was aborted.\nThe following estimate is a lower bound for the path capacity.\n"
    assert original.parse_pathrate(bound + PATHRATE_REPORT).lower_bound
    with pytest.raises(SensorError, match="last words are: Insufficient number"):
        original.parse_pathrate("hello\nInsufficient number of packet dispersion estimates.\n")


@pytest.mark.parametrize("text", [SPRUCE_SENDER, SPRUCE_RECEIVER])
def test_both_spellings_of_spruce_are_read(text: str) -> None:
    assert original.parse_spruce(text) == 12_345_000
    with pytest.raises(SensorError, match="connection refused"):
        original.parse_spruce("connection refused\n")


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(programs: Path, folder: Path, name: str, *arguments: str) -> tuple[int, dict[str, object]]:
    command = [str(programs / name), "--programs", str(folder), "--destination", "10.0.0.9", "--json", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return told.returncode, json.loads(told.stdout)


def test_the_programs_get_their_arguments_and_their_words_are_read(programs: Path, tmp_path: Path) -> None:
    program(tmp_path, "pathchirp_rcv", f'[ "$*" = "-S 10.0.0.9 -t 8 -a 0.3" ] && printf %s "{INSTBW}" > 10_10_1.instbw')
    program(tmp_path, "pathrate_rcv", f'[ "$1 $2 $3" = "-s 10.0.0.9 -Q" ] && printf %s "{PATHRATE_N}" > "$5"')
    program(tmp_path, "spruce_snd", f'[ "$*" = "-h 10.0.0.9 -c 20000k -n 10" ] && printf %s "{SPRUCE_SENDER}" >&2')
    status, record = run(programs, tmp_path, "pathchirp-original", "--duration-s", "8")
    assert status == 0
    assert record["estimates"] == 3
    assert record["metrics"][0]["metric"] == "reverse_available_bandwidth_bps"  # type: ignore[index]
    status, record = run(programs, tmp_path, "pathrate-original", "--quick")
    assert status == 0
    assert record["metrics"] == [{"metric": "reverse_capacity_bps", "value": pytest.approx(12.65e6), "unit": "bps"}]
    status, record = run(programs, tmp_path, "spruce-original", "--capacity-bps", "2e7", "--pairs", "10")
    assert status == 0
    assert record["metrics"] == [{"metric": "available_bandwidth_bps", "value": 12_345_000, "unit": "bps"}]


def test_a_program_that_is_missing_silent_or_stuck_is_told(programs: Path, tmp_path: Path) -> None:
    status, record = run(programs, tmp_path, "pathrate-original")
    assert status == 2
    assert "pathrate_rcv is not in" in record["error"]["message"]  # type: ignore[index]
    program(tmp_path, "pathrate_rcv", "sleep 60")
    status, record = run(programs, tmp_path, "pathrate-original", "--limit-s", "10", "--declare")
    assert (status, record["duration_ms"]) == (0, 10_000)
    program(tmp_path, "pathchirp_rcv", "echo cannot connect >&2; exit 1")
    status, record = run(programs, tmp_path, "pathchirp-original")
    assert status == 3
    assert "cannot connect" in record["error"]["message"]  # type: ignore[index]


@given(
    st.one_of(st.text(), st.text(alphabet="0123456789. \n"), st.from_regex(r"PATHRATE\.CAP[LH]=[0-9.]{1,9}[kMG]bps"))
)
def test_any_words_are_read_or_refused(text: str) -> None:
    for parse in (original.parse_instbw, original.parse_pathrate, original.parse_spruce):
        with contextlib.suppress(SensorError):
            parse(text)


@given(
    st.one_of(
        st.binary(),
        st.text().map(str.encode),
        st.dictionaries(st.text(), st.integers()).map(json.dumps).map(str.encode),
    )
)
def test_any_request_is_read_or_refused(line: bytes) -> None:
    with contextlib.suppress(SensorError):
        parse_request(HOST, line, HOST.defaults())
