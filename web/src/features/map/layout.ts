/** Where the nodes stand on the map. Pure. */
import type { Link, NetworkNode } from "../../api/types";

/**
 * Positions that stay the same from one visit to the next: those that operators gave; without them nodes in the order of
 * a walk along the links from the node with the fewest, so that a chain is drawn as a line.
 */
export function layoutPositions(
  nodes: NetworkNode[],
  links: Link[],
): Record<string, { x: number; y: number }> {
  const positions: Record<string, { x: number; y: number }> = {};
  const open = nodes.filter(({ id, map_position }) => {
    if (map_position) positions[id] = { x: map_position.x * 1100, y: map_position.y * 420 };
    return !map_position;
  });
  if (open.length === 0) return positions;
  const neighbours = new Map<string, string[]>(nodes.map((node) => [node.id, []]));
  for (const link of links) neighbours.get(link.from_node)?.push(link.to_node);
  const byDegree = [...nodes].sort(
    (a, b) =>
      (neighbours.get(a.id)?.length ?? 0) - (neighbours.get(b.id)?.length ?? 0) || a.id.localeCompare(b.id),
  );
  const depth = new Map<string, number>();
  const rows = new Map<number, string[]>();
  for (const start of byDegree) {
    if (depth.has(start.id)) continue;
    const queue: [string, number][] = [[start.id, 0]];
    depth.set(start.id, 0);
    for (let head = queue.shift(); head; head = queue.shift()) {
      const [id, level] = head;
      rows.set(level, [...(rows.get(level) ?? []), id]);
      for (const next of [...(neighbours.get(id) ?? [])].sort()) {
        if (depth.has(next)) continue;
        depth.set(next, level + 1);
        queue.push([next, level + 1]);
      }
    }
  }
  for (const { id } of open) {
    const level = depth.get(id) ?? 0;
    const row = rows.get(level) ?? [];
    positions[id] = { x: level * 320, y: (row.indexOf(id) - (row.length - 1) / 2) * 180 };
  }
  return positions;
}
