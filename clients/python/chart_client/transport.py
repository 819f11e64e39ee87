"""HTTP as the client needs it: tokens, problem documents as errors, repeated tries of what may be repeated."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx

from chart_client import errors
from chart_client.models import Problem

DEFAULT_SERVER = "http://127.0.0.1:18080"
TRIES = 4
FIRST_PAUSE_S = 0.2
# Never wait longer than this between two tries, whatever the server says.
LONGEST_PAUSE_S = 5.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def is_loopback(server: str) -> bool:
    """Whether a server's address is on this machine."""
    return urlsplit(server).hostname in _LOOPBACK


class Transport:
    """Requests to one gateway."""

    def __init__(
        self,
        server: str,
        token: str | Callable[[], str] | None,
        *,
        timeout_s: float,
        transport: httpx.BaseTransport | None,
        sleep: Callable[[float], None] = time.sleep,
        tries: int = TRIES,
    ) -> None:
        self._tries = tries
        self.server = server.rstrip("/")
        self._token = token
        self._sleep = sleep
        self.timeout_s = timeout_s
        self._http = httpx.Client(base_url=self.server, timeout=timeout_s, transport=transport)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def headers(self) -> dict[str, str]:
        """The authorisation of every request."""
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request; repeated when the gateway is away for a moment.

        Everything that this client sends may be repeated: it is idempotent by its method or carries a key. A POST gets
        one of its own when `headers` has none.

        Raises:
            UnreachableError: no answer.
            ProblemError: the answer is a problem document.
        """
        params = {name: value for name, value in (query or {}).items() if value is not None}
        keyed = {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        for remaining in reversed(range(self._tries)):
            try:
                response = self._http.request(
                    method, path, json=body, params=params, headers={**self.headers(), **keyed, **(headers or {})}
                )
            except httpx.TransportError as error:
                if remaining == 0:
                    msg = f"no response from the gateway at {self.server}: {error or type(error).__name__}"
                    raise errors.UnreachableError(msg) from error
                self._sleep(self._pause_s(remaining, None))
                continue
            if _later(response) and remaining:
                self._sleep(self._pause_s(remaining, response.headers.get("retry-after")))
                continue
            if response.is_success or response.status_code == httpx.codes.NOT_MODIFIED:
                return response
            raise errors.of(problem_of(response))
        raise AssertionError

    def look(self, path: str) -> httpx.Response:
        """One GET without a second try, whatever the status.

        Raises:
            UnreachableError: no answer.
        """
        try:
            return self._http.get(path)
        except httpx.TransportError as error:
            msg = f"no response from the gateway at {self.server}: {error or type(error).__name__}"
            raise errors.UnreachableError(msg) from error

    def _pause_s(self, remaining: int, retry_after: str | None) -> float:
        if retry_after is not None and retry_after.isdecimal():
            return min(float(retry_after), LONGEST_PAUSE_S)
        doubled: float = FIRST_PAUSE_S * 2 ** (self._tries - 1 - remaining)
        # Many clients that lost the gateway at once must not come back at once.
        return min(doubled, LONGEST_PAUSE_S) * (0.5 + random.random() / 2)  # noqa: S311 - spread, not a secret

    def stream(self, path: str, *, query: Mapping[str, Any], headers: Mapping[str, str], read_timeout_s: float) -> Any:
        """A response to read as it comes; a context manager."""
        params = {name: value for name, value in query.items() if value is not None}
        timeout = httpx.Timeout(10.0, read=read_timeout_s)
        return self._http.stream("GET", path, params=params, headers={**self.headers(), **headers}, timeout=timeout)

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _later(response: httpx.Response) -> bool:
    """Whether the answer is to come again: too many requests, a service is away, the first try is still under way."""
    return response.status_code in (429, 503) or (response.status_code == 409 and "retry-after" in response.headers)


def problem_of(response: httpx.Response) -> Problem:
    """The problem document of an answer; one is made up when a proxy answered instead of the gateway."""
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and "title" in document:
        return Problem.model_validate({**document, "status": response.status_code})
    return Problem(
        title=response.reason_phrase, status=response.status_code, detail=f"HTTP status {response.status_code}"
    )


def development_token(
    server: str,
    *,
    subject: str = "chart-cli",
    roles: tuple[str, ...] = ("operator",),
    timeout_s: float = 5.0,
    tries: int = TRIES,
) -> str:
    """A token of a development platform's own issuer.

    Raises:
        UnreachableError: no answer.
        ProblemError: it has no such issuer (production).
    """
    with Transport(server, None, timeout_s=timeout_s, transport=None, tries=tries) as transport:
        answer = transport.request("POST", "/dev-issuer/token", body={"subject": subject, "roles": list(roles)})
        token: str = answer.json()["access_token"]
        return token
