/** Shapes of the REST interface (see the gateway's OpenAPI document). Rates are bits per second, times RFC 3339 UTC. */

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  field?: string | null;
  floor?: number | null;
  ceiling?: number | null;
  suggestions?: string[] | null;
}

export type EnforcementMode = "off" | "observe" | "enforce";

export interface NodeState {
  enforcement: EnforcementMode;
  agent_version: string;
  capabilities: string[];
  faults: string[];
  reported_at: string;
  stale: boolean;
}

export interface NetworkNode {
  id: string;
  description: string;
  addresses: string[];
  map_position: { x: number; y: number } | null;
  state: NodeState | null;
}

export interface LinkLoad {
  sent_bps: number;
  explicit_rate_bps: number;
  legacy_bps: number;
  utilisation: number;
  queue_bytes: number;
  dropped_packets: number;
  at: string;
}

export interface LinkRate {
  available_bps: number;
  explicit_rate_capacity_bps: number;
  valid_until: string;
}

export interface MeasuredValue {
  value: number;
  at: string;
  stale: boolean;
}

export interface LinkMeasured {
  rtt_us: MeasuredValue | null;
  loss_ratio: MeasuredValue | null;
  available_bandwidth_bps: MeasuredValue | null;
}

export interface Link {
  id: string;
  from_node: string;
  interface: string;
  to_node: string;
  capacity_bps: number;
  delay_us: number;
  load: LinkLoad | null;
  rate: LinkRate | null;
  measured: LinkMeasured | null;
}

export type ServiceType = "available" | "guaranteed" | "maximum" | "variable";

export interface RateRequestBody {
  source: string;
  destination: string;
  protocol: "tcp" | "udp" | null;
  source_port: number | null;
  destination_port: number | null;
  service: ServiceType;
  guaranteed_bps: number;
  minimum_bps: number | null;
  priority: number;
  duration_s: number | null;
  description: string;
}

export interface Confirmation {
  node: string;
  state: "APPLIED" | "OBSERVED" | "FAILED" | "REMOVED";
  reason: string;
  applied_at: string | null;
  kernel_rate_bps: number;
  matching_flows: number;
  sent_bytes: number;
}

export interface RateRequest {
  id: string;
  revision: number;
  owner: string;
  lifecycle: "HELD" | "RESERVED" | "ACTIVE" | "RELEASED" | "EXPIRED" | "CANCELLED";
  enforcement: "PENDING" | "ENFORCED" | "FAILED";
  service_state: "GRANTED" | "PREEMPTED" | "DEGRADED";
  granted_bps: number;
  path: string[];
  confirmations: Confirmation[];
  confirming_nodes: string[];
  reason: string;
  created_at: string;
  updated_at: string;
  enforced_at: string | null;
  request: RateRequestBody;
}

export interface Preview {
  granted: boolean;
  granted_bps: number;
  path: string[];
  bottleneck_link_id: string | null;
  ceiling_bps: number | null;
  refusal: Problem | null;
}

export interface SeriesPoint {
  at: string;
  value: number | null;
}

export interface Series {
  unit: string;
  points: SeriesPoint[];
}

export interface Session {
  subject: string;
  roles: string[];
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
}
