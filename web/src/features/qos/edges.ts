/** Edges of nodes as rows of one table, and the node that a changed row makes. */
import type { NetworkNode, NodeBody, NodeEdge } from "../../api/types";

export interface EdgeRow extends NodeEdge {
  node: string;
}

export function edgeRows(nodes: NetworkNode[]): EdgeRow[] {
  return nodes.flatMap(({ id, edges }) => edges.map((edge) => ({ node: id, ...edge })));
}

/** The node with other edges, all else as it is. */
export function withEdges(node: NetworkNode, edges: NodeEdge[]): NodeBody {
  const { description, addresses, sensor_pod_target, tags, map_position } = node;
  return { description, addresses, sensor_pod_target, tags, map_position, edges };
}

/** The node with this edge, in place of one at the same interface. */
export function withEdge(node: NetworkNode, edge: NodeEdge): NodeBody {
  return withEdges(node, [...others(node, edge.interface), edge]);
}

export function withoutEdge(node: NetworkNode, name: string): NodeBody {
  return withEdges(node, others(node, name));
}

function others(node: NetworkNode, name: string): NodeEdge[] {
  return node.edges.filter((one) => one.interface !== name);
}
