/** Ends of flows as people write them, one a line: prefix=10.4.0.0/16,protocol=tcp,ports=8000-8099. */
import type { Tenant, TenantBody } from "../../api/types";

type End = NonNullable<TenantBody["ends"]>[number];

const PROTOCOLS = ["tcp", "udp", "sctp", "dccp"] as const;
const isProtocol = (value: string): value is (typeof PROTOCOLS)[number] =>
  PROTOCOLS.some((one) => one === value);

export function endText(end: End | Tenant["ends"][number]): string {
  const parts: [string, string | number | null | undefined][] = [
    ["node", end.node],
    ["prefix", end.prefix],
    ["protocol", end.protocol],
    ["ports", end.ports],
    ["cgroup", end.cgroup_id],
  ];
  return parts.flatMap(([name, value]) => (value ? [`${name}=${value}`] : [])).join(",");
}

/** null: a line cannot be read. */
export function endsOf(text: string): End[] | null {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const ends = lines.map(endOf);
  return ends.every((end) => end !== null) ? ends : null;
}

function endOf(line: string): End | null {
  const end: End = {};
  for (const part of line.split(",")) {
    const [name, value, more] = part.trim().split("=");
    if (!value || more !== undefined) return null;
    if (name === "node" || name === "prefix" || name === "ports") end[name] = value;
    else if (name === "protocol" && isProtocol(value)) end.protocol = value;
    else if (name === "cgroup" && /^\d+$/.test(value)) end.cgroup_id = Number(value);
    else return null;
  }
  return end.node || end.prefix ? end : null;
}
