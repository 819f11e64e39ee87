"""What docs/applications.md tells applications to do with a notice's signature, done to one as it goes out."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chart.reservations.decisions import notices

DOCUMENT = Path(__file__).parents[3] / "docs" / "applications.md"
SECRET = bytes(range(32))
BODY = '{"type": "rate-request.preempted"}'


@pytest.fixture(scope="module")
def genuine() -> Callable[[str, dict[str, str], bytes], bool]:
    """The function of the document, as it stands there."""
    (snippet,) = [one for one in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "hmac" in one]
    names: dict[str, Any] = {}
    exec(snippet, names)
    found: Callable[[str, dict[str, str], bytes], bool] = names["genuine"]
    return found


def headers(timestamp_s: int, *secrets: bytes) -> dict[str, str]:
    """As a delivery has them; during the day after a change of secrets it is signed with both."""
    return notices.headers(list(secrets), "n1", timestamp_s, BODY)


def test_a_notice_is_believed_and_nothing_else(genuine: Callable[[str, dict[str, str], bytes], bool]) -> None:
    secret = notices.secret_text(SECRET)
    now_s, body = int(time.time()), BODY.encode()
    good = headers(now_s, SECRET)
    assert genuine(secret, good, body)
    assert genuine(secret, headers(now_s, b"a newer secret", SECRET), body)
    assert not genuine(secret, good, body.replace(b"preempted", b"restored_"))
    assert not genuine(secret, {**good, "webhook-id": "n2"}, body)
    assert not genuine(secret, {**good, "webhook-timestamp": str(now_s - 1)}, body)
    assert not genuine(secret, headers(now_s, b"somebody else's"), body)
    # An old one that somebody kept and sends again.
    assert not genuine(secret, headers(now_s - 301, SECRET), body)
