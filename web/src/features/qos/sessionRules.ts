/** Session rules in words and back, and what the switches change. Pure. */
import type { SessionRule, SessionRuleBody, SessionSelector } from "../../api/types";
import { formatRate } from "../../shared/units";

/** What telephony ships with; from 4 on, sessions with a guaranteed rate are expedited. */
const EXPEDITED_CLASS = 6;
const ORDINARY_CLASS = 3;
const EXPEDITED_BURST_TOLERANCE = 3;

const FIELDS = {
  protocol: "protocol",
  "local-ports": "local_ports",
  "remote-ports": "remote_ports",
  local: "local_prefix",
  remote: "remote_prefix",
  dscp: "dscp",
} as const;
type Field = (typeof FIELDS)[keyof typeof FIELDS];

export const NOTHING: SessionSelector = {
  protocol: null,
  local_ports: null,
  remote_ports: null,
  local_prefix: null,
  remote_prefix: null,
  dscp: null,
};

/** A selector as `chart session-rule` writes it: "protocol=udp,dscp=46". */
export function selectorText(selector: SessionSelector): string {
  return Object.entries(FIELDS)
    .map(([name, field]) => [name, selector[field]] as const)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${value}`)
    .join(",");
}

function selectorOf(line: string): SessionSelector | null {
  const selector: Record<Field, string | number | null> = { ...(NOTHING as Record<Field, null>) };
  for (const part of line.split(",")) {
    const [name = "", value = ""] = part.trim().split("=");
    const field = name in FIELDS ? FIELDS[name as keyof typeof FIELDS] : undefined;
    if (!field || !value || (field === "dscp" && !/^\d{1,2}$/.test(value))) return null;
    selector[field] = field === "dscp" ? Number(value) : value;
  }
  return selector as SessionSelector;
}

/** One selector a line; null: a line does not read so. */
export function selectorsOf(text: string): SessionSelector[] | null {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const found = lines.map(selectorOf).filter((one) => one !== null);
  return lines.length > 0 && found.length === lines.length ? found : null;
}

/** Tags as "site=lab"; those that do not read so are left out. */
export function tagsOf(texts: string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => text.split("=")).flatMap(([name, value]) => (name && value ? [[name, value]] : [])),
  );
}

export const tagTexts = (tags: Record<string, string>): string[] =>
  Object.entries(tags).map(([name, value]) => `${name}=${value}`);

/** What each session asks, in words. */
export function asks({ service, guaranteed_bps, available_bps }: SessionRule): string {
  const rates = [guaranteed_bps, available_bps].filter((rate) => rate > 0).map((rate) => formatRate(rate));
  return `${service} ${rates.join(" + ")}`;
}

export function whichNodes({ nodes, node_tags }: SessionRule): string {
  return [...nodes, ...tagTexts(node_tags)].join(", ") || "all";
}

/** What nodes say is wrong with it; null: nothing. */
export function faults({ reported_by }: SessionRule): string | null {
  const said = reported_by.filter(({ fault }) => fault !== "").map(({ node, fault }) => `${node}: ${fault}`);
  return said.length > 0 ? said.join("; ") : null;
}

/** The part of a rule that operators state. */
export function stated(rule: SessionRule): SessionRuleBody {
  return {
    name: rule.name,
    session_class: rule.session_class,
    selectors: rule.selectors,
    service: rule.service,
    guaranteed_bps: rule.guaranteed_bps,
    available_bps: rule.available_bps,
    delay_class: rule.delay_class,
    priority: rule.priority,
    burst_tolerance: rule.burst_tolerance,
    nodes: rule.nodes,
    node_tags: rule.node_tags,
    enabled: rule.enabled,
    authorised: rule.authorised,
  };
}

/** Sessions of the rule are in force and go before others. */
export const isExpedited = ({ enabled, expedited, authorised }: SessionRule): boolean =>
  enabled && expedited && authorised;

/** The rule enabled and expedited by its own authorisation, or as it is without precedence. */
export function withExpedited(rule: SessionRule, expedited: boolean): SessionRuleBody {
  const body = stated(rule);
  if (!expedited) return { ...body, delay_class: Math.min(rule.delay_class, ORDINARY_CLASS) };
  return {
    ...body,
    enabled: true,
    authorised: true,
    delay_class: Math.max(rule.delay_class, EXPEDITED_CLASS),
    burst_tolerance: Math.min(rule.burst_tolerance, EXPEDITED_BURST_TOLERANCE),
  };
}
