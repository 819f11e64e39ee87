/** Keeps the canvas with the links of a large network up to date: straight from the event stream, past the pages' data. */
import type { Core, EventObject } from "cytoscape";
import { type RefObject, useEffect, useRef } from "react";

import { useLiveEvents } from "../../api/useLive";
import type { Link, NetworkNode } from "../../api/types";
import { utilisationColor } from "../../theme";
import { drawSegments, linkAt, type Segment, segmentsOf, type Stroke } from "./edgeLayer";
import { layoutPositions } from "./layout";
import { LOAD_STALE_MS } from "./linkLabel";

/** Ten times a second: as often as agents report. */
const DRAW_MS = 100;

function strokeOf(utilisation: number | null): Stroke {
  return {
    color: utilisationColor(utilisation),
    width: 1 + Math.round(6 * Math.min(1, utilisation ?? 0)) / 2,
    dashed: utilisation === null,
  };
}

export function useManyEdges(
  graph: RefObject<Core | null>,
  many: boolean,
  nodes: NetworkNode[],
  links: Link[],
  onSelectLink: (id: string) => void,
): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement>(null);
  const live = useLiveEvents();
  const segments = useRef<Segment[]>([]);
  const shape = useRef("");

  useEffect(() => {
    if (!many) return;
    const signature = [...nodes, ...links].map((one) => one.id).join("|");
    if (signature === shape.current) return;
    shape.current = signature;
    segments.current = segmentsOf(links, layoutPositions(nodes, links));
  }, [many, nodes, links]);

  useEffect(() => {
    const [core, surface] = [graph.current, canvas.current];
    const context = surface?.getContext("2d");
    if (!many || !core || !surface || !context) return;
    let waiting = 0;
    const draw = () => {
      waiting = 0;
      const ratio = globalThis.devicePixelRatio || 1;
      const [width, height] = [surface.clientWidth * ratio, surface.clientHeight * ratio];
      if (surface.width !== width || surface.height !== height)
        [surface.width, surface.height] = [width, height];
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      const oldest = Date.now() - LOAD_STALE_MS;
      drawSegments(context, segments.current, { zoom: core.zoom(), pan: core.pan() }, (id) => {
        const pulse = live.pulse(id);
        return strokeOf(pulse && pulse.at >= oldest ? pulse.utilisation : null);
      });
    };
    const soon = () => {
      waiting ||= requestAnimationFrame(draw);
    };
    const timer = setInterval(soon, DRAW_MS);
    core.on("viewport resize", soon);
    const select = (event: EventObject) => {
      if (event.target !== core) return;
      const found = linkAt(segments.current, { zoom: core.zoom(), pan: core.pan() }, event.renderedPosition);
      if (found) onSelectLink(found);
    };
    core.on("tap", select);
    soon();
    return () => {
      clearInterval(timer);
      cancelAnimationFrame(waiting);
      core.off("viewport resize", soon);
      core.off("tap", select);
    };
  }, [graph, many, live, onSelectLink]);

  return canvas;
}
