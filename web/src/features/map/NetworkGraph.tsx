/** Drawing of the network: nodes and directed links, with live labels. The table below the map says the same in words. */
import { Box, useComputedColorScheme } from "@mantine/core";
import cytoscape, { type Core, type ElementDefinition } from "cytoscape";
import { useEffect, useRef } from "react";

import type { Link, NetworkNode } from "../../api/types";
import { layoutPositions } from "./layout";
import { linkLabel, linkStyle, nodeStatus } from "./linkLabel";

interface Props {
  nodes: NetworkNode[];
  links: Link[];
  now: number;
  onSelectLink: (id: string) => void;
}

function elements(nodes: NetworkNode[], links: Link[], now: number): ElementDefinition[] {
  const positions = layoutPositions(nodes, links);
  const known = new Set(nodes.map((node) => node.id));
  return [
    ...nodes.map((node) => ({
      group: "nodes" as const,
      data: { id: node.id, label: node.id, color: nodeStatus(node).color },
      position: positions[node.id] ?? { x: 0, y: 0 },
    })),
    ...links
      .filter((link) => known.has(link.from_node) && known.has(link.to_node))
      .map((link) => {
        const { color, width, dashed } = linkStyle(link, now);
        return {
          group: "edges" as const,
          data: {
            id: link.id,
            source: link.from_node,
            target: link.to_node,
            label: linkLabel(link, now),
            color,
            width,
            line: dashed ? "dashed" : "solid",
          },
        };
      }),
  ];
}

export function NetworkGraph({ nodes, links, now, onSelectLink }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const graph = useRef<Core | null>(null);
  const shape = useRef("");
  const scheme = useComputedColorScheme("light");

  useEffect(() => {
    if (!container.current) return;
    const ink = scheme === "light" ? "#212529" : "#e9ecef";
    const paper = scheme === "light" ? "#ffffff" : "#242424";
    const core = cytoscape({
      container: container.current,
      minZoom: 0.2,
      maxZoom: 3,
      style: [
        {
          selector: "node",
          style: {
            label: "data(label)",
            "background-color": "data(color)",
            color: ink,
            "font-size": 15,
            "font-weight": 600,
            "text-valign": "bottom",
            "text-margin-y": 6,
            width: 34,
            height: 34,
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
            color: ink,
            "font-size": 12,
            "text-wrap": "wrap",
            "text-background-color": paper,
            "text-background-opacity": 0.92,
            "text-background-padding": "3px",
          },
        },
      ],
    });
    core.on("tap", "edge", (event) => {
      onSelectLink((event.target as { id: () => string }).id());
    });
    graph.current = core;
    shape.current = "";
    return () => {
      core.destroy();
      graph.current = null;
    };
  }, [scheme, onSelectLink]);

  useEffect(() => {
    const core = graph.current;
    if (!core) return;
    const wanted = elements(nodes, links, now);
    const signature = wanted.map((element) => element.data.id).join("|");
    if (signature !== shape.current) {
      shape.current = signature;
      core.elements().remove();
      core.add(wanted);
      core.fit(undefined, 60);
      return;
    }
    core.batch(() => {
      for (const element of wanted) core.getElementById(String(element.data.id)).data(element.data);
    });
  }, [nodes, links, now, scheme, onSelectLink]);

  return (
    <Box
      ref={container}
      h={{ base: 320, md: 420 }}
      role="img"
      aria-label={`Network map: ${nodes.length} nodes, ${links.length} directed links. The table below lists every link.`}
      data-testid="network-map"
      data-labels={JSON.stringify(Object.fromEntries(links.map((link) => [link.id, linkLabel(link, now)])))}
    />
  );
}
