"""What annotations and RateRequests ask for, and in which words they are wrong."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.rate_controller.asks import POD, InvalidError, Key, asked, of_spec, rate_bps, selects


def pod(name: str = "sender-1", *, addresses: tuple[str, ...] = ("10.1.0.5",), **more: Any) -> dict[str, Any]:
    about = {"namespace": "batch", "name": name, "uid": f"uid-{name}", "labels": {"app": "sender"}}
    return {
        "metadata": {**about, **more.pop("metadata", {})},
        "spec": {"hostNetwork": False, **more.pop("spec", {})},
        "status": {"phase": "Running", "podIPs": [{"ip": one} for one in addresses], **more},
    }


def request(**spec: Any) -> dict[str, Any]:
    whole = {"podSelector": {"matchLabels": {"app": "sender"}}, "destination": "delta", "rate": "40M", **spec}
    return {"metadata": {"namespace": "batch", "name": "copy", "uid": "uid-copy"}, "spec": whole}


def marks(**known: str) -> dict[str, Any]:
    return {"annotations": {f"chart.io/{name.replace('_', '-')}": text for name, text in known.items()}}


def test_annotations_and_a_resource_ask_alike() -> None:
    marked = pod(metadata=marks(egress_rate="40M", destination="delta", destination_port="5201", protocol="tcp"))
    by_pod, none = asked([marked], [])
    by_resource, neither = asked([pod()], [request(destinationPort=5201, protocol="tcp")])
    assert none == neither == []
    (one,), (other,) = by_pod.values(), by_resource.values()
    assert one.key == Key(POD, "uid-sender-1")
    assert other.key == Key("uid-copy", "uid-sender-1")
    bodies = [ask.body("here") for ask in (one, other)]
    for body in bodies:
        del body["description"], body["tags"]["kubernetes.from"]
    assert bodies[0] == bodies[1]
    assert bodies[0]["guaranteed_bps"] == 40_000_000
    assert (bodies[0]["source"], bodies[0]["destination"]) == ("10.1.0.5", "delta")


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"egress_rate": "fast", "destination": "delta"}, "chart.io/egress-rate: 'fast' is not a rate"),
        ({"egress_rate": "0", "destination": "delta"}, "is not between 1 bit/s"),
        ({"egress_rate": "40M"}, "the annotation chart.io/destination is missing; state the id of a node"),
        ({"egress_rate": "40M", "destination": "delta", "priority": "high"}, "state a number from 0 to 255"),
        ({"egress_rate": "40M", "destination": "delta", "destination_port": "70000"}, "from 1 to 65535"),
        ({"egress_rate": "40M", "destination": "delta", "service": "best"}, "state one of guaranteed, variable"),
        ({"egress_rate": "40M", "destination": "delta", "protocol": "sctp"}, "state one of tcp, udp"),
    ],
)
def test_a_wrong_annotation_is_named_and_stops_nobody_else(known: dict[str, str], words: str) -> None:
    good = pod("good", metadata=marks(egress_rate="1M", destination="delta"))
    asks, faults = asked([pod("wrong", metadata=marks(**known)), good], [])
    assert [ask.pod for ask in asks.values()] == ["good"]
    (fault,) = faults
    assert fault.pod == "wrong"
    assert words in fault.words


def test_a_field_of_a_resource_is_named_as_there() -> None:
    _, (fault,) = asked([pod()], [request(maximumRate="x")])
    assert fault.words.startswith("spec.maximumRate: 'x' is not a rate")


def test_pods_that_do_not_send_ask_for_nothing() -> None:
    without_address = pod("a", addresses=())
    done = pod("b", phase="Succeeded")
    leaving = pod("c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    elsewhere = pod("d", metadata={"namespace": "shop"})
    other = pod("e", metadata={"labels": {"app": "web"}})
    assert asked([without_address, done, leaving, elsewhere, other], [request()]) == ({}, [])


def test_a_pod_in_its_node_s_network_is_refused() -> None:
    _, (fault,) = asked([pod(spec={"hostNetwork": True})], [request()])
    assert "uses its node's network" in fault.words


def test_a_resource_that_is_deleted_asks_for_nothing() -> None:
    gone = request()
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert asked([pod()], [gone]) == ({}, [])


def test_the_address_is_of_the_destination_s_version() -> None:
    both = pod(addresses=("10.1.0.5", "2001:db8::5"))
    for destination, address in (("2001:db8:4::/48", "2001:db8::5"), ("10.4.0.1", "10.1.0.5"), ("delta", "10.1.0.5")):
        ask = of_spec(request(destination=destination)["spec"], both, Key("x", "y"), "copy")
        assert ask is not None
        assert ask.address == address


def test_a_bound_guarantees_nothing() -> None:
    ask = of_spec(request(service="maximum")["spec"], pod(), Key("x", "y"), "copy")
    assert ask is not None
    assert (ask.guaranteed_bps, ask.maximum_bps) == (0, 40_000_000)


def test_selectors_are_those_of_kubernetes() -> None:
    labels = {"app": "web", "tier": "front"}

    def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    assert selects({}, labels)
    assert selects({"matchLabels": {"app": "web"}}, labels)
    assert not selects({"matchLabels": {"app": "web", "zone": "a"}}, labels)
    assert selects(expression("app", "In", "web", "db"), labels)
    assert not selects(expression("app", "NotIn", "web"), labels)
    assert selects(expression("zone", "NotIn", "a"), labels)
    assert selects(expression("tier", "Exists"), labels)
    assert selects(expression("zone", "DoesNotExist"), labels)
    assert not selects(expression("tier", "DoesNotExist"), labels)


@given(st.text(max_size=60))
def test_any_text_is_a_rate_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidError):
        assert 0 < rate_bps(text, "rate") <= 10**15
