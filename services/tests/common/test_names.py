"""Names of nodes and of certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common import names

LABEL = st.from_regex(rf"\A{names.LABEL}\Z")
FQDN = ".".join(["node-" + "a" * 50] * 3 + ["lab", "example", "net"])


@given(st.lists(LABEL, min_size=1, max_size=4))
def test_labels_with_dots_between_are_a_name(labels: list[str]) -> None:
    name = ".".join(labels)
    ends_well = len(labels) == 1 or labels[-1][0].isalpha()
    assert names.is_node(name) == (ends_well and len(name) <= names.NODE_LENGTH_MAX)


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "-a", "a-", "a.-b", "A", "10.1.0.2", "a b", "a\n", "a/b", "a:b"]
)
def test_others_are_not(name: str) -> None:
    assert not names.is_node(name)


def test_common_names_have_room_in_a_certificate_and_differ() -> None:
    assert names.common_name("alpha") == "alpha"
    assert names.common_name("a" * 64) == "a" * 64
    ends = {names.common_name(f"{FQDN}{number}") for number in range(100)}
    assert len(ends) == 100
    assert {len(one) for one in ends} == {names.COMMON_NAME_MAX}
