/** A path of links as people say it: the nodes it passes. Pure. */
import type { Link } from "../../api/types";

/** "alpha → bravo → delta"; a link that is not known (any more) is named by its id. */
export function pathLabel(path: string[], links: Link[]): string {
  const names: string[] = [];
  for (const id of path) {
    const link = links.find((candidate) => candidate.id === id);
    const [from, to] = link ? [link.from_node, link.to_node] : [id.split(":")[0] ?? id, id];
    if (names.at(-1) !== from) names.push(from);
    names.push(to);
  }
  return names.join(" → ");
}
