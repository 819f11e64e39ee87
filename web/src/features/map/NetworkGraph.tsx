/**
 * Drawing of the network: nodes and directed links, with live labels. The table below the map says the same in words. In a
 * large network the graph has the nodes alone, and the links are lines on a canvas under it (edgeLayer).
 */
import { Box, useComputedColorScheme } from "@mantine/core";
import cytoscape, { type Core, type ElementDefinition, type StylesheetJson } from "cytoscape";
import { useEffect, useEffectEvent, useRef } from "react";

import { MANY_LINKS } from "../../api/events";
import type { Link, NetworkNode } from "../../api/types";
import { DRAWN } from "../../theme";
import { layoutPositions } from "./layout";
import { linkLabel, linkStyle, mapHeight, nodeStatus, overlayColor, overlayStates } from "./linkLabel";
import { useManyEdges } from "./useManyEdges";

interface Props {
  nodes: NetworkNode[];
  links: Link[];
  now: number;
  onSelectLink: (id: string) => void;
}

const FILL = { position: "absolute", inset: 0, width: "100%", height: "100%" } as const;

/** With more links than this their labels would cover each other: the table and the colours say it. */
const LABELS_LIMIT = 20;

function elements(nodes: NetworkNode[], links: Link[], now: number): ElementDefinition[] {
  const positions = layoutPositions(nodes, links);
  const labelled = links.length <= LABELS_LIMIT;
  const edges = links.length > MANY_LINKS ? [] : links;
  const known = new Set(nodes.map((node) => node.id));
  const overlay = overlayStates(nodes);
  return [
    ...nodes.map((node) => ({
      group: "nodes" as const,
      data: { id: node.id, label: node.id, color: nodeStatus(node).color },
      position: positions[node.id] ?? { x: 0, y: 0 },
    })),
    ...edges
      .filter((link) => known.has(link.from_node) && known.has(link.to_node))
      .map((link) => {
        const { color, width, dashed } = linkStyle(link, now);
        return {
          group: "edges" as const,
          data: {
            id: link.id,
            source: link.from_node,
            target: link.to_node,
            label: labelled ? linkLabel(link, now) : "",
            color,
            width,
            line: dashed ? "dashed" : "solid",
            ...under(overlay.get(link.id)),
          },
        };
      }),
  ];
}

/** What lies under an edge, of an overlay link. */
function under(alive: boolean | undefined): { under: string; shown: number } {
  const color = overlayColor(alive);
  return { under: color ?? "#000000", shown: color ? 0.45 : 0 };
}

/** Gives each element what changed of it; where nothing did, nothing is drawn anew. */
function refresh(core: Core, nodes: NetworkNode[], links: Link[], now: number): void {
  const labelled = links.length <= LABELS_LIMIT;
  for (const node of nodes) set(core, node.id, { color: nodeStatus(node).color });
  if (links.length > MANY_LINKS) return;
  const overlay = overlayStates(nodes);
  for (const link of links) {
    const { color, width, dashed } = linkStyle(link, now);
    const label = labelled ? linkLabel(link, now) : "";
    const drawn = { label, color, width: Math.round(width * 2) / 2, line: dashed ? "dashed" : "solid" };
    set(core, link.id, { ...drawn, ...under(overlay.get(link.id)) });
  }
}

function set(core: Core, id: string, wanted: Record<string, string | number>): void {
  const element = core.getElementById(id);
  for (const [name, value] of Object.entries(wanted))
    if (element.data(name) !== value) element.data(name, value);
}

/** Names in a large network are drawn from this size on, in pixels, and so large they are at a zoom of 1. */
const [MANY_NAMES_FROM, MANY_NAMES] = [10, 8];

/** On a screen narrower than this the map is shown small: names of nodes must be larger to be read. */
const NARROW = 500;

function styleOf(scheme: "light" | "dark", many: boolean, narrow: boolean): StylesheetJson {
  const { ink, paper } = DRAWN[scheme];
  const size = many ? 12 : narrow ? 60 : 34;
  return [
    {
      selector: "node",
      style: {
        label: "data(label)",
        "background-color": "data(color)",
        color: ink,
        "font-size": many ? MANY_NAMES : narrow ? 52 : 15,
        // Names that nobody could read are not drawn.
        "min-zoomed-font-size": many ? MANY_NAMES_FROM : 7,
        "font-weight": 600,
        "text-valign": "bottom",
        "text-margin-y": many ? 2 : 6,
        width: size,
        height: size,
      },
    },
    {
      selector: "edge",
      style: {
        label: "data(label)",
        "line-color": "data(color)",
        "target-arrow-color": "data(color)",
        "target-arrow-shape": "triangle",
        "curve-style": "bezier",
        "control-point-step-size": 90,
        width: "data(width)" as unknown as number,
        "line-style": "data(line)" as unknown as "solid",
        "underlay-color": "data(under)",
        "underlay-opacity": "data(shown)" as unknown as number,
        "underlay-padding": 5,
        color: ink,
        "font-size": 12,
        "min-zoomed-font-size": 7,
        "text-wrap": "wrap",
        "text-background-color": paper,
        "text-background-opacity": 0.92,
        "text-background-padding": "3px",
      },
    },
  ];
}

export function NetworkGraph({ nodes, links, now, onSelectLink }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const graph = useRef<Core | null>(null);
  const shape = useRef("");
  /** The theme that the map's style is of. */
  const worn = useRef("");
  const scheme = useComputedColorScheme("light");
  const many = links.length > MANY_LINKS;

  const styleNow = useEffectEvent(() => {
    worn.current = scheme;
    return styleOf(scheme, many, (container.current?.clientWidth ?? NARROW) < NARROW);
  });

  useEffect(() => {
    if (!container.current) return;
    const core = cytoscape({
      container: container.current,
      style: styleNow(),
      minZoom: 0.02,
      // Large networks: while it is moved, the picture of before is moved.
      textureOnViewport: true,
      hideLabelsOnViewport: true,
      maxZoom: 3,
    });
    core.on("tap", "edge", (event) => {
      onSelectLink((event.target as { id: () => string }).id());
    });
    // Another size (a phone that is turned): all of it is shown again.
    core.on("resize", () => {
      core.fit(undefined, many ? 16 : 60);
    });
    graph.current = core;
    shape.current = "";
    return () => {
      core.destroy();
      graph.current = null;
    };
  }, [onSelectLink, many]);

  useEffect(() => {
    const core = graph.current;
    if (!core || worn.current === scheme) return;
    if (many && core.zoom() * MANY_NAMES < MANY_NAMES_FROM) {
      // Only names are of another colour, and there are none to be seen: not before somebody comes near.
      const near = () => {
        if (core.zoom() * MANY_NAMES < MANY_NAMES_FROM) return;
        core.off("zoom", near);
        core.style(styleNow());
      };
      core.on("zoom", near);
      return () => {
        core.off("zoom", near);
      };
    }
    // After the page has shown its other colours: every element of the map is looked at.
    const timer = setTimeout(() => {
      core.style(styleNow());
    });
    return () => {
      clearTimeout(timer);
    };
  }, [scheme, many, onSelectLink]);

  useEffect(() => {
    const core = graph.current;
    if (!core) return;
    const signature = [...nodes, ...links].map((one) => one.id).join("|");
    if (signature !== shape.current) {
      shape.current = signature;
      core.elements().remove();
      core.add(elements(nodes, links, now));
      core.fit(undefined, many ? 16 : 60);
      return;
    }
    core.batch(() => {
      refresh(core, nodes, links, now);
    });
  }, [nodes, links, now, onSelectLink, many]);

  const canvas = useManyEdges(graph, many, nodes, links, onSelectLink);

  return (
    <Box
      pos="relative"
      h={mapHeight(links)}
      role="img"
      aria-label={`Network map: ${nodes.length} nodes, ${links.length} directed links. The table below lists every link.`}
      data-testid="network-map"
      data-labels={
        links.length <= LABELS_LIMIT
          ? JSON.stringify(Object.fromEntries(links.map((link) => [link.id, linkLabel(link, now)])))
          : undefined
      }
    >
      <canvas ref={canvas} hidden={!many} style={FILL} />
      <div ref={container} style={FILL} />
    </Box>
  );
}
