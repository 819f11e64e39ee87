/**
 * The links of a large network: thousands of lines on one canvas under the graph, drawn anew many times a second. The
 * graph library draws each edge by itself, which takes longer than a frame from some hundred of them on.
 */

export interface Segment {
  id: string;
  /** In the map's own coordinates. */
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

export interface View {
  zoom: number;
  pan: { x: number; y: number };
}

export interface Stroke {
  color: string;
  width: number;
  dashed: boolean;
}

interface Point {
  x: number;
  y: number;
}

/** Half the distance between the two directions of a link, on the screen. */
const APART = 2;
/** How near to a line a pointer must be, on the screen. */
const REACH = 8;

/** Where each link lies: the two directions beside each other. Pure. */
export function segmentsOf(
  links: { id: string; from_node: string; to_node: string }[],
  positions: Record<string, Point>,
): Segment[] {
  return links.flatMap(({ id, from_node, to_node }) => {
    const [from, to] = [positions[from_node], positions[to_node]];
    return from && to ? [{ id, x1: from.x, y1: from.y, x2: to.x, y2: to.y }] : [];
  });
}

/** Ends of a segment on the screen, moved to its own side. */
function onScreen(one: Segment, { zoom, pan }: View): [number, number, number, number] {
  const [x1, y1] = [one.x1 * zoom + pan.x, one.y1 * zoom + pan.y];
  const [x2, y2] = [one.x2 * zoom + pan.x, one.y2 * zoom + pan.y];
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [dx, dy] = [(-(y2 - y1) / length) * APART, ((x2 - x1) / length) * APART];
  return [x1 + dx, y1 + dy, x2 + dx, y2 + dy];
}

/** The link under a point of the screen; null when none is near. Pure. */
export function linkAt(segments: Segment[], view: View, point: Point): string | null {
  let [found, least]: [string | null, number] = [null, REACH];
  for (const one of segments) {
    const [x1, y1, x2, y2] = onScreen(one, view);
    const [dx, dy] = [x2 - x1, y2 - y1];
    const place = ((point.x - x1) * dx + (point.y - y1) * dy) / (dx * dx + dy * dy || 1);
    const along = Math.min(1, Math.max(0, place));
    const distance = Math.hypot(point.x - x1 - along * dx, point.y - y1 - along * dy);
    if (distance < least) [found, least] = [one.id, distance];
  }
  return found;
}

/** Draws every link; those that look the same are one path. */
export function drawSegments(
  context: CanvasRenderingContext2D,
  segments: Segment[],
  view: View,
  look: (id: string) => Stroke,
): void {
  const groups = new Map<string, { stroke: Stroke; members: Segment[] }>();
  for (const one of segments) {
    const stroke = look(one.id);
    const key = `${stroke.color} ${stroke.width} ${stroke.dashed ? "-" : ""}`;
    const group = groups.get(key);
    if (group) group.members.push(one);
    else groups.set(key, { stroke, members: [one] });
  }
  context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  // The widest last: what is busy lies on top.
  const ordered = [...groups.values()].sort((a, b) => a.stroke.width - b.stroke.width);
  for (const { stroke, members } of ordered) {
    context.strokeStyle = stroke.color;
    context.lineWidth = stroke.width;
    context.setLineDash(stroke.dashed ? [5, 4] : []);
    context.beginPath();
    for (const one of members) {
      const [x1, y1, x2, y2] = onScreen(one, view);
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
    }
    context.stroke();
  }
}
