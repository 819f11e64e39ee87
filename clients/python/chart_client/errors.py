"""What can go wrong when talking to CHART."""

from __future__ import annotations

from chart_client.models import Problem


class ChartError(Exception):
    """Base of every error of this client."""


class UnreachableError(ChartError):
    """The gateway did not answer."""


class ProblemError(ChartError):
    """The gateway refused; `problem` says why and what would be accepted."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.detail or problem.title)

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.problem.status


class RefusedError(ProblemError):
    """The request cannot be granted (409, 422); `problem` says what would be accepted."""


class NotAllowedError(ProblemError):
    """No token, or one without the role (401, 403)."""


class NotFoundError(ProblemError):
    """The resource does not exist (404)."""


class UnavailableError(ProblemError):
    """Temporarily refused (429, 503): try again later."""


class NotEnforcedError(ChartError):
    """A granted rate was not enforced in time, or cannot be."""


def of(problem: Problem) -> ProblemError:
    """The error for a problem document."""
    kinds: dict[int, type[ProblemError]] = {
        401: NotAllowedError,
        403: NotAllowedError,
        404: NotFoundError,
        409: RefusedError,
        422: RefusedError,
        429: UnavailableError,
        503: UnavailableError,
    }
    return kinds.get(problem.status, ProblemError)(problem)
