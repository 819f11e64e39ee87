"""Asking one of several replicas."""

from __future__ import annotations

import httpx
import pytest

from chart.common.replicas import Replicas

REQUEST = httpx.Request("GET", "https://a/")


class Service:
    """Replicas of which some fail; notes who was asked."""

    def __init__(self, **failures: httpx.HTTPError) -> None:
        self.failures = failures
        self.asked: list[str] = []

    async def send(self, url: str) -> httpx.Response:
        name = url.removeprefix("https://")
        self.asked.append(name)
        if name in self.failures:
            raise self.failures[name]
        return httpx.Response(200, text=name)


def refusal(status: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(status))


GONE = httpx.ConnectError("gone")


async def test_the_next_one_is_asked_and_stays() -> None:
    service, replicas = Service(a=GONE, b=refusal(503)), Replicas("https://a, https://b/,https://c")
    assert (await replicas.ask(service.send)).text == "c"
    assert (await replicas.ask(service.send)).text == "c"
    assert service.asked == ["a", "b", "c", "c"]


async def test_everybody_is_asked_once() -> None:
    service, replicas = Service(a=GONE, b=GONE), Replicas("https://a,https://b")
    with pytest.raises(httpx.ConnectError):
        await replicas.ask(service.send)
    assert service.asked == ["a", "b"]


async def test_a_refusal_is_an_answer() -> None:
    service, replicas = Service(a=refusal(404)), Replicas("https://a,https://b")
    for _ in range(2):
        with pytest.raises(httpx.HTTPStatusError):
            await replicas.ask(service.send)
    assert service.asked == ["a", "a"]


async def test_what_may_have_been_done_is_not_repeated_but_the_next_question_goes_elsewhere() -> None:
    service, replicas = Service(a=httpx.ReadTimeout("late")), Replicas("https://a,https://b")
    with pytest.raises(httpx.ReadTimeout):
        await replicas.ask(service.send, repeatable=lambda error: isinstance(error, httpx.ConnectError))
    assert (await replicas.ask(service.send)).text == "b"
