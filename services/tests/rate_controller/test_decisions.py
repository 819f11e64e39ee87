"""What is done at the gateway and what is told of it."""

from __future__ import annotations

from typing import Any

from chart.rate_controller.asks import Ask, Fault, Key
from chart.rate_controller.decisions import Existing, Outcome, Refusal, outcomes, plan, settled, status

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
KEY = Key("uid-copy", "uid-1")


def ask(key: Key = KEY, **more: Any) -> Ask:
    fields: dict[str, Any] = {
        "namespace": "batch", "pod": f"pod-{key.pod}", "address": "10.1.0.5", "destination": "delta", "protocol": None,
        "destination_port": None, "service": "variable", "guaranteed_bps": 40_000_000, "minimum_bps": None,
        "maximum_bps": None, "priority": 0, "delay_priority": 0, "name": "copy",
    }  # fmt: skip
    return Ask(key=key, **{**fields, **more})


def existing(one: Ask, identity: str = "01A", state: str = "ENFORCED") -> Existing:
    return Existing(identity, one.key, one.namespace, state, one.guaranteed_bps, "", one.body("here"))


def test_nothing_is_done_when_all_is_as_asked() -> None:
    made = plan({KEY: ask()}, [existing(ask())], "here")
    assert (made.release, made.change, made.create) == ([], [], [])
    assert made.kept[KEY].id == "01A"


def test_a_new_pod_is_asked_for_and_a_lost_one_given_back() -> None:
    new, old = ask(), ask(Key("uid-copy", "uid-old"))
    made = plan({KEY: new}, [existing(old)], "here")
    assert [one.id for one in made.release] == ["01A"]
    assert made.create == [new]


def test_another_rate_changes_the_request_and_another_destination_replaces_it() -> None:
    before = existing(ask())
    faster = ask(guaranteed_bps=60_000_000)
    made = plan({KEY: faster}, [before], "here")
    assert (made.release, made.change, made.create) == ([], [(before, faster)], [])
    elsewhere = ask(destination="charlie")
    made = plan({KEY: elsewhere}, [before], "here")
    assert (made.release, made.change, made.create) == ([before], [], [elsewhere])


def test_of_two_requests_for_one_pod_the_first_stays() -> None:
    made = plan({KEY: ask()}, [existing(ask(), "01B"), existing(ask(), "01A")], "here")
    assert [one.id for one in made.release] == ["01B"]
    assert made.kept[KEY].id == "01A"


def request(status_before: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"metadata": {"uid": "uid-copy", "generation": 3}, "status": status_before or {}}


def conditions(found: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in found["conditions"]}


def test_the_status_says_what_was_granted_and_why_not() -> None:
    other = Key("uid-copy", "uid-2")
    asks = {KEY: ask(), other: ask(other)}
    refusal = Refusal(asks[other], "link alpha:to-delta has 3 Mbit/s left", 1, 5.0)
    found = outcomes(asks, [], {KEY: existing(asks[KEY])}, {other: refusal})
    told = status(request(), found, NOW)
    assert (told["state"], told["pods"], told["granted"], told["enforced"]) == ("Refused", 2, 1, 1)
    granted = conditions(told)["Granted"]
    assert granted[:2] == ("False", "Refused")
    assert "1 of 2 pods have the rate; pod-uid-2: no rate: link alpha:to-delta has 3 Mbit/s left" in granted[2]
    assert told["requests"][0]["message"] == "40 Mbit/s granted and enforced (request 01A)"
    assert told["observedGeneration"] == 3


def test_what_is_on_its_way_is_neither_refused_nor_enforced() -> None:
    found = outcomes({KEY: ask()}, [], {KEY: existing(ask(), state="PENDING")}, {})
    told = status(request(), found, NOW)
    assert conditions(told)["Granted"][0] == "True"
    assert conditions(told)["Enforced"][:2] == ("False", "Pending")
    assert not settled(found.values())
    assert settled(outcomes({KEY: ask()}, [], {KEY: existing(ask())}, {}).values())


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    good = outcomes({KEY: ask()}, [], {KEY: existing(ask())}, {})
    first = status(request(), good, NOW)
    again = status(request(first), good, LATER)
    assert [one["lastTransitionTime"] for one in again["conditions"]] == [NOW, NOW]
    assert again == first
    lost = outcomes({KEY: ask()}, [], {KEY: existing(ask(), state="PREEMPTED")}, {})
    assert {one["lastTransitionTime"] for one in status(request(first), lost, LATER)["conditions"]} >= {LATER}


def test_a_refused_change_says_what_the_request_keeps() -> None:
    faster = ask(guaranteed_bps=90_000_000)
    found = outcomes({KEY: faster}, [], {KEY: existing(ask())}, {KEY: Refusal(faster, "too much", 1, 5.0)})
    assert found[KEY].sentence() == "the change is refused: too much; its request 01A keeps 40 Mbit/s"


def test_without_pods_and_without_a_gateway_the_status_says_so() -> None:
    assert status(request(), {}, NOW)["state"] == "NoPods"
    told = status(request(), {}, NOW, "the gateway cannot be asked: refused")
    assert conditions(told)["Granted"] == ("Unknown", "GatewayUnreachable", "the gateway cannot be asked: refused")


def test_an_invalid_pod_is_told_of() -> None:
    found = outcomes({}, [Fault(KEY, "batch", "pod-1", "spec.rate: 'x' is not a rate")], {}, {})
    assert found == {KEY: Outcome("pod-1", "INVALID", 0, "spec.rate: 'x' is not a rate")}
    assert found[KEY].sentence() == "no rate: spec.rate: 'x' is not a rate"
