/** Words and figures of a flow. Pure. */
import type { Flow } from "../../api/types";

export const end = (address: string, port: number): string =>
  address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;

export const flowKey = (flow: Flow): string =>
  [
    flow.node,
    flow.protocol,
    flow.source_address,
    flow.source_port,
    flow.destination_address,
    flow.destination_port,
    flow.started_at,
  ].join(" ");

/** Used of what was granted; null without a grant. */
export const usedShare = ({ delivered_bps, granted_bps }: Flow): number | null =>
  granted_bps ? delivered_bps / granted_bps : null;
