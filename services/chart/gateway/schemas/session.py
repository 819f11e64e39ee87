"""Tokens and the dashboard's session."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from chart.gateway.schemas.common import Input, Output

Role = Literal["viewer", "application", "operator", "admin"]
Subject = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@:/-]*$")]


class TokenBody(Input):
    """Ask the development issuer for a token."""

    subject: Subject = Field(examples=["my-application"])
    roles: list[Role] = Field(min_length=1, max_length=4, examples=[["application"]])


class Token(Output):
    """A bearer token."""

    access_token: str
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105  the scheme's name, not a secret
    expires_in: int = Field(description="Seconds.")


class LoginBody(Input):
    """Sign in to the dashboard of a development platform."""

    role: Role


class SignIn(Output):
    """How to sign in here."""

    login_url: str | None = Field(description="Where to send the browser; null: no provider is configured.")
    development: bool = Field(description="Whether POST /auth/dev-login gives a session.")


class Session(Output):
    """Who is signed in."""

    subject: str
    roles: list[Role]
    expires_at: int = Field(description="Seconds since the epoch.")
