"""What is asked of sensors is refused before a pod would have to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from chart.gateway.schemas.network import SensingConfigurationBody
from chart.gateway.schemas.sensing import RunBody
from chart.sensor_pod.model import InvalidConfigurationError, from_proto
from chart.v1 import sensing_configuration_pb2

BODY: dict[str, Any] = {
    "source_node": "a",
    "destination_node": "b",
    "destination_address": "10.1.0.2",
    "sensor": "ping",
    "period_ms": 500,
}


def pod_takes(name: str) -> bool:
    stated = sensing_configuration_pb2.SensingConfiguration(id="x", parameters={name: "1"}, **BODY)
    try:
        from_proto(stated)
    except InvalidConfigurationError:
        return False
    return True


@pytest.mark.parametrize("name", ["timeout_ms", "count", "timeout-ms", "Count", "1st", "a" * 33, "x y"])
def test_names_of_parameters_are_those_that_a_pod_takes(name: str) -> None:
    run = {key: value for key, value in BODY.items() if key != "period_ms"}
    for body, stated in ((SensingConfigurationBody, BODY), (RunBody, run)):
        words = {**stated, "parameters": {name: "1"}}
        if pod_takes(name):
            assert body.model_validate(words).parameters == {name: "1"}
        else:
            with pytest.raises(ValidationError, match="is no name of a sensor's parameter, such as timeout_ms"):
                body.model_validate(words)
