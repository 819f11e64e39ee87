/** A mesh's sensors as text, and its coverage as a matrix. Pure. */
import type { CoveredPair, MeshCoverage, SensingMesh, SensingMeshBody } from "../../api/types";
import { tagTexts } from "../qos/sessionRules";

type Sensor = SensingMeshBody["sensors"][number];

const SENSORS: Sensor["sensor"][] = ["ping", "traceroute", "tulip", "pathchirp", "pathrate", "spruce"];

/** "ping=10,count=5": every 10 s, with a parameter. */
export const sensorText = ({ sensor, period_ms, parameters }: SensingMesh["sensors"][number]): string =>
  [
    `${sensor}=${period_ms / 1000}`,
    ...Object.entries(parameters).map(([name, value]) => `${name}=${value}`),
  ].join(",");

function sensorOf(line: string): Sensor | null {
  const [first = "", ...others] = line.split(",").map((part) => part.trim().split("="));
  const sensor = SENSORS.find((known) => known === first[0]);
  const seconds = Number(first[1]);
  if (!sensor || !(seconds >= 0.1)) return null;
  const parameters: Record<string, string> = {};
  for (const [name, value] of others) {
    if (!name || !value) return null;
    parameters[name] = value;
  }
  return { sensor, period_ms: Math.round(seconds * 1000), parameters };
}

/** One sensor a line; null: a line does not read so. */
export function sensorsOf(text: string): Sensor[] | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const found = lines.map(sensorOf).filter((one) => one !== null);
  return lines.length > 0 && found.length === lines.length ? found : null;
}

export const membersText = ({ nodes, node_tags }: SensingMesh): string =>
  [...nodes, ...tagTexts(node_tags)].join(", ") || "every sensor pod";

export const measuring = ({ plan }: SensingMesh): number =>
  plan.members.filter(({ state }) => state === "measuring").length;

/** The most that the mesh takes of one link, 0 to 1. */
export const mostOfALink = ({ plan }: SensingMesh): number =>
  plan.links.reduce((most, { share }) => Math.max(most, share), 0);

export interface CoverageMatrix {
  nodes: string[];
  cells: Map<string, CoveredPair[]>;
}

export const cellKey = (source: string, destination: string) => `${source},${destination}`;

/** At most `most` nodes, in the order of their names. */
export function coverageMatrix({ items }: MeshCoverage, most = 40): CoverageMatrix {
  const names = new Set(
    items.flatMap(({ source_node, destination_node }) => [source_node, destination_node]),
  );
  const nodes = [...names].sort().slice(0, most);
  const cells = new Map<string, CoveredPair[]>();
  for (const one of items) {
    const key = cellKey(one.source_node, one.destination_node);
    cells.set(key, [...(cells.get(key) ?? []), one]);
  }
  return { nodes, cells };
}

/** 1: every sensor's result is fresh; 0: none is. */
export const freshShare = (pair: CoveredPair[]): number =>
  pair.filter(({ fresh }) => fresh).length / Math.max(1, pair.length);

const age = (measuredAt: string | null, now: number): string =>
  measuredAt === null ? "never measured" : `${Math.round((now - Date.parse(measuredAt)) / 1000)} s old`;

export const cellWords = (pair: CoveredPair[], now: number): string =>
  pair
    .map((one) => `${one.sensor} ${one.error ? `failed (${one.error})` : age(one.measured_at, now)}`)
    .join(", ");
