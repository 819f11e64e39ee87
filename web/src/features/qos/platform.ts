/** The settings of the platform as people see them: names, units, and what they are when nobody set them. */
import type { ApplicationLimits, PlatformSettings, PlatformSettingsBody } from "../../api/types";

export type Name = Exclude<keyof PlatformSettings, "id" | "revision" | "application_limits">;
export type Entry = number | string;

interface Setting {
  name: Name;
  label: string;
  /** Of the services as they come; a deployment may start them with another. */
  usual: number | string;
  suffix?: string;
  /** What is shown times this is what is stored. */
  factor?: number;
  choices?: string[];
}

export const SETTINGS: Setting[] = [
  {
    name: "oversubscription",
    label: "Maximum and guaranteed rates together",
    usual: 4,
    suffix: " × the admission limit",
  },
  {
    name: "lease_idle_share",
    label: "Leased in band while nobody draws",
    usual: 10,
    suffix: " %",
    factor: 0.01,
  },
  { name: "lease_greatest_share", label: "Leased in band at most", usual: 50, suffix: " %", factor: 0.01 },
  {
    name: "authority_unauthorised",
    label: "In-band requests without an authorisation",
    usual: "free",
    choices: ["free", "drop"],
  },
  {
    name: "authority_free_available_bps",
    label: "Available rate that these are granted",
    usual: 10,
    suffix: " Mb/s",
    factor: 1e6,
  },
  { name: "probe_share", label: "Probes on a link", usual: 1, suffix: " % of its capacity", factor: 0.01 },
  { name: "inference_fraction", label: "Pairs measured in the end", usual: 13, suffix: " %", factor: 0.01 },
  { name: "inference_active_pairs", label: "Pairs that inference asks for in a period", usual: 0 },
  { name: "inference_active_valid_s", label: "Time that such a pair has", usual: 120, suffix: " s" },
  { name: "inference_active_priority", label: "Priority of such a pair", usual: 10 },
  {
    name: "snapshot_period_s",
    label: "Between snapshots of all pairs",
    usual: 240,
    suffix: " min",
    factor: 60,
  },
];

/** Without the last digits that a product in binary has. */
const rounded = (value: number) => Number(value.toPrecision(12));

/** What a form shows of a setting: "" when nobody set it. */
export function shownOf(settings: PlatformSettings, { name, factor = 1 }: Setting): Entry {
  const value = settings[name];
  if (value === null) return "";
  return typeof value === "number" ? rounded(value / factor) : value;
}

export function words(settings: PlatformSettings, setting: Setting): string {
  const shown = shownOf(settings, setting);
  return shown === ""
    ? `as started (usually ${setting.usual}${setting.suffix ?? ""})`
    : `${shown}${setting.suffix ?? ""}`;
}

/** What is sent: all of it, since what is left out is given back to the services. */
export function bodyOf(
  entries: Partial<Record<Name, Entry>>,
  limits: PlatformSettings["application_limits"],
) {
  const body: Record<string, unknown> = { application_limits: limits };
  for (const { name, factor = 1, choices } of SETTINGS) {
    const entry = entries[name] ?? "";
    body[name] = entry === "" ? null : choices ? entry : rounded(Number(entry) * factor);
  }
  return body as PlatformSettingsBody;
}

export const entriesOf = (settings: PlatformSettings) =>
  Object.fromEntries(SETTINGS.map((setting) => [setting.name, shownOf(settings, setting)])) as Record<
    Name,
    Entry
  >;

export interface OwnerLimits extends ApplicationLimits {
  owner: string;
}

export const LIMITS: { name: keyof ApplicationLimits; label: string; suffix?: string; factor?: number }[] = [
  { name: "configurations", label: "Configurations" },
  { name: "priority", label: "Priority up to" },
  { name: "period_ms", label: "Period at least", suffix: " ms" },
  { name: "one_shots_per_minute", label: "Single runs in a minute" },
  { name: "probe_share", label: "Of each link's probing budget", suffix: " %", factor: 0.01 },
];

export const limitShown = (
  limits: ApplicationLimits | null,
  { name, factor = 1 }: (typeof LIMITS)[number],
): Entry => {
  const value = limits?.[name];
  return value === null || value === undefined ? "" : rounded(value / factor);
};

export function limitsOf(entries: Partial<Record<keyof ApplicationLimits, Entry>>): ApplicationLimits {
  return Object.fromEntries(
    LIMITS.map(({ name, factor = 1 }) => {
      const entry = entries[name] ?? "";
      return [name, entry === "" ? null : rounded(Number(entry) * factor)];
    }),
  );
}
