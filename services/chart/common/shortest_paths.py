"""Which links probes to a destination cross: the shortest path over the topology as operators stated it. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from chart.v1 import topology_pb2


class Paths:
    """Shortest paths from one node by delay, then by number of links; worked out at each change. Those to it, with
    ``back``."""

    def __init__(self, source: str, *, back: bool = False) -> None:
        self._source = source
        self._back = back
        self._links: dict[str, topology_pb2.Link] = {}
        self._known: dict[str, tuple[str, ...]] = {}

    def set_links(self, links: Iterable[topology_pb2.Link]) -> None:
        """Take over a topology."""
        self._links = {link.id: link for link in links}
        self._known = self._shortest()

    def links(self, destination: str) -> tuple[str, ...]:
        """Link ids in path order; without a known path one name for the destination, so that it has a budget too."""
        return self._known.get(destination) or (f"{'from' if self._back else 'to'}:{destination}",)

    def _shortest(self) -> dict[str, tuple[str, ...]]:
        outgoing: dict[str, list[topology_pb2.Link]] = {}
        for link in sorted(self._links.values(), key=lambda link: link.id):
            outgoing.setdefault(link.to_node if self._back else link.from_node, []).append(link)
        found: dict[str, tuple[str, ...]] = {}
        queue: list[tuple[int, int, str, tuple[str, ...]]] = [(0, 0, self._source, ())]
        while queue:
            delay_us, hops, node, path = heapq.heappop(queue)
            if node in found:
                continue
            found[node] = path
            for link in outgoing.get(node, ()):
                following = link.from_node if self._back else link.to_node
                if following not in found:
                    links = (link.id, *path) if self._back else (*path, link.id)
                    entry = (delay_us + link.delay_us, hops + 1, following, links)
                    heapq.heappush(queue, entry)
        return found
