/** Keys and certificates from the authority's audit: the newest of each, and how old they are. Pure. */
import type { AuditRecord } from "../../api/types";

export interface Held {
  subject: string;
  /** Milliseconds since the epoch. */
  since: number;
  expires: number | null;
  /** Generation of a key, serial number of a certificate. */
  number: string;
  revoked: boolean;
}

const timeMs = (value: unknown): number | null =>
  typeof value === "number" && value > 0 ? value / 1000 : null;

function newest(audit: AuditRecord[], made: string, ended: string | null): Held[] {
  const found = new Map<string, Held>();
  const over = new Set<string>();
  // The newest first: what was revoked after it was made is revoked.
  for (const { action, subject, at, detail } of audit) {
    if (ended && action === ended && !found.has(subject)) over.add(subject);
    if (action !== made || found.has(subject)) continue;
    const number = detail.serial ?? detail.generation ?? "";
    found.set(subject, {
      subject,
      since: Date.parse(at),
      expires: timeMs(detail.expires_at_us) ?? timeMs(detail.not_after_us),
      number: typeof number === "string" || typeof number === "number" ? String(number) : "",
      revoked: over.has(subject),
    });
  }
  return [...found.values()].sort((a, b) => a.subject.localeCompare(b.subject));
}

export const keysOf = (audit: AuditRecord[]): Held[] => newest(audit, "key.create", null);
export const certificatesOf = (audit: AuditRecord[]): Held[] =>
  newest(audit, "certificate.issue", "certificate.revoke");

const REFUSED = ["next-hop.report", "next-hop.report-refused", "certificate.revoke"];
/** What the authority heard of signals that did not verify, and whom it believes no more. */
export const refusalsOf = (audit: AuditRecord[]): AuditRecord[] =>
  audit.filter(({ action }) => REFUSED.includes(action));
