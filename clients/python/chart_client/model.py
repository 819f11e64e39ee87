"""What all answers of the gateway have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="ignore", frozen=True)
