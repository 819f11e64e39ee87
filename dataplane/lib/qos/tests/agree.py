"""Do the C and the Python parsers say the same of broken packets? `agree.py ASK VECTORS [CASES]`.

Cases are the packets of vectors.json with a few octets changed, cut or added (a fixed seed). Exit status 1 and the
packet at the first difference.
"""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

from chart.common import qos

CARRIERS = {"ipv4": 4, "ipv6": 6, "shim": 0}
PARSERS = {4: qos.parse_ipv4, 6: qos.parse_ipv6, 0: qos.parse_shim}
TELLING = (0, 1, 2, 4, 6, 34, 36, 43, 44, 51, 60, 0x3E, 0x9E, 255)  # types and lengths the parsers look for


def answer(carrier: int, octets: bytes, seen: Counter[str]) -> str:
    """What ask.c should print."""
    try:
        parsed = PARSERS[carrier](octets)
    except qos.QosError as error:
        seen[error.reason.name] += 1
        return f"{int(error.reason)} 0 0 0 00000000"
    seen["OK"] += 1
    flow = parsed.flow
    return f"0 {parsed.signal_offset} {parsed.transport_offset} {flow.protocol} {flow.selector.hex()}"


def main() -> int:
    """Compare and print how often each result came up."""
    vectors = json.loads(Path(sys.argv[2]).read_text())
    rng = random.Random(4868)
    seeds = [(CARRIERS[v["carrier"]], bytes.fromhex(v["octets"])) for v in vectors["packets"] + vectors["malformed"]]
    cases = list(seeds)
    for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 20_000):
        carrier, seed = rng.choice(seeds)
        octets = bytearray(seed)
        for _ in range(rng.randint(1, 4) if octets else 0):
            octets[rng.randrange(min(len(octets), 100))] = rng.choice((*TELLING, rng.randrange(256)))
        if rng.random() < 0.2:
            octets = octets[: rng.randrange(len(octets) + 1)]
        if rng.random() < 0.2:
            octets += rng.randbytes(rng.randrange(300))
        cases.append((carrier, bytes(octets)))
    asked = b"".join(struct.pack(">BH", carrier, len(octets)) + octets for carrier, octets in cases)
    answers = subprocess.run([sys.argv[1]], input=asked, capture_output=True, check=True).stdout.decode().splitlines()
    seen: Counter[str] = Counter()
    for (carrier, octets), said in zip(cases, answers, strict=True):
        expected = answer(carrier, octets, seen)
        if said != expected:
            print(f"qos: C and Python differ on carrier {carrier}, {octets.hex()}: {said} and {expected}")
            return 1
    print(f"qos: C and Python agree on {len(cases)} packets: {dict(seen.most_common())}")
    return 0 if seen["OK"] > 100 and len(seen) > 12 else 1


if __name__ == "__main__":
    sys.exit(main())
