"""The overlay: routes of its nodes, where packets go and why, and what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from chart_client.overlay_models import OverlayEvent, OverlayRoutes, OverlayTrace
from chart_client.resource import Resource, path_of, time_of


class Overlay(Resource):
    """Calls about the overlay; nodes join and leave with `Nodes.put`."""

    def routes(self, node_id: str, *, at: datetime | None = None) -> OverlayRoutes:
        """The path table of a node with what it reports; ``at``: as it was then."""
        answer = self._transport.request("GET", path_of("overlay", "routes", node_id), query={"at": time_of(at)})
        return OverlayRoutes.model_validate(answer.json())

    def trace(self, source: str, destination: str, *, at: datetime | None = None) -> OverlayTrace:
        """Where packets that enter the overlay at a node go; ``destination``: another overlay node, or an address."""
        path = path_of("overlay", "trace", source, destination)
        return OverlayTrace.model_validate(self._transport.request("GET", path, query={"at": time_of(at)}).json())

    def events(
        self,
        *,
        node: str = "",
        link: str = "",
        owner: str = "",
        of: Literal["links", "paths"] | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        limit: int = 1000,
    ) -> list[OverlayEvent]:
        """What happened to links and paths, the newest first; default: to both, in the last day."""
        query = {
            "node": node or None,
            "link": link or None,
            "owner": owner or None,
            "of": of,
            "from": time_of(start),
            "until": time_of(until),
            "limit": limit,
        }
        answer = self._transport.request("GET", path_of("overlay", "events"), query=query).json()
        return [OverlayEvent.model_validate(item) for item in answer["items"]]
