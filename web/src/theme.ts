/** Colours, spacing and type of the dashboard. Components use these tokens only. */
import { Alert, createTheme, type CSSVariablesResolver, Notification, Table } from "@mantine/core";

export const theme = createTheme({
  primaryColor: "cyan",
  // Shade 9 on white and shade 4 on dark reach a contrast of 4.5:1.
  primaryShade: { light: 9, dark: 9 },
  fontFamily: "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  defaultRadius: "md",
  headings: { fontWeight: "600" },
  // Who asks the system for less motion gets none.
  respectReducedMotion: true,
  components: {
    // Orange on white stays below a contrast of 4.5:1; the border says the colour.
    Alert: Alert.extend({ styles: { title: { color: "var(--mantine-color-text)" } } }),
    Table: Table.extend({ defaultProps: { tabularNums: true, verticalSpacing: "xs" } }),
    Notification: Notification.extend({ styles: { description: { color: "var(--mantine-color-text)" } } }),
  },
});

/** Descriptions and captions: Mantine's own grey stays below a contrast of 4.5:1. */
export const cssVariables: CSSVariablesResolver = () => ({
  variables: {},
  light: {
    "--mantine-color-dimmed": "var(--mantine-color-gray-7)",
    "--chart-bad": "var(--mantine-color-red-9)",
    "--chart-heat": "var(--mantine-color-cyan-9)",
  },
  dark: {
    "--mantine-color-dimmed": "var(--mantine-color-gray-5)",
    "--chart-bad": "var(--mantine-color-red-4)",
    "--chart-heat": "var(--mantine-color-cyan-5)",
  },
});

/** What is drawn on a canvas cannot use variables of the page: the same colours by scheme. */
export const DRAWN = {
  light: { ink: "#212529", axis: "#343a40", grid: "#dee2e6", paper: "#ffffff", shade: 8 },
  dark: { ink: "#e9ecef", axis: "#ced4da", grid: "#3b3b3b", paper: "#242424", shade: 5 },
} as const;

/** States of a node on the map; readable on both backgrounds. */
export const NODE_COLORS = {
  unknown: "#868e96",
  bad: "#e03131",
  degraded: "#e67700",
  enforce: "#0b7285",
  observe: "#7048e8",
  off: "#868e96",
} as const;
/** What lies under the line of an overlay link. */
export const OVERLAY_COLORS = { alive: "#9775fa", failed: "#e03131" } as const;
export const SILENCE = NODE_COLORS.bad;

/** Utilisation -> colour, from idle to full; readable on both backgrounds. */
export const UTILISATION_LEVELS = [
  { below: 0.5, color: "#0c8599", label: "below 50 %" },
  { below: 0.8, color: "#2f9e44", label: "below 80 %" },
  { below: 0.95, color: "#e67700", label: "below 95 %" },
  { below: Infinity, color: "#e03131", label: "full" },
  { below: -Infinity, color: "#868e96", label: "no report" },
] as const;
const SILENT = "#868e96";

export function utilisationColor(share: number | null | undefined): string {
  if (share === null || share === undefined) return SILENT;
  return UTILISATION_LEVELS.find(({ below }) => share < below)?.color ?? SILENT;
}
