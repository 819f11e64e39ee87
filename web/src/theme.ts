/** Colours, spacing and type of the dashboard. Components use these tokens only. */
import { createTheme } from "@mantine/core";

export const theme = createTheme({
  primaryColor: "cyan",
  // Shade 9 on white and shade 4 on dark reach a contrast of 4.5:1.
  primaryShade: { light: 9, dark: 9 },
  fontFamily: "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  defaultRadius: "md",
  headings: { fontWeight: "600" },
});

/** Utilisation -> colour, from idle to full; readable on both backgrounds. */
export function utilisationColor(share: number | null | undefined): string {
  if (share === null || share === undefined) return "#868e96";
  if (share < 0.5) return "#0c8599";
  if (share < 0.8) return "#2f9e44";
  if (share < 0.95) return "#e67700";
  return "#e03131";
}
