/** The last minutes of a link as a row of bars: how high is how busy, a hole is a silence. */
import { Box } from "@mantine/core";

import { SILENCE, utilisationColor } from "../theme";
import { formatShare } from "./units";

const [WIDTH, HEIGHT, STEP] = [90, 18, 3];

interface Props {
  /** Utilisation of each slot, oldest first; null: nothing was heard. */
  slots: (number | null)[];
  label: string;
}

/** The bars of each colour as one path: a table has thousands of them. */
function barsOf(shown: (number | null)[]): Map<string, string> {
  const paths = new Map<string, string>();
  shown.forEach((slot, index) => {
    const color = slot === null ? SILENCE : utilisationColor(slot);
    const height = slot === null ? 1 : Math.max(2, Math.min(1, slot) * HEIGHT);
    const bar = `M${WIDTH - (shown.length - index) * STEP} ${HEIGHT}v${-height}h${STEP - 1}v${height}z`;
    paths.set(color, (paths.get(color) ?? "") + bar);
  });
  return paths;
}

export function HeartbeatBar({ slots, label }: Props) {
  const shown = slots.slice(-WIDTH / STEP);
  const heard = shown.filter((slot): slot is number => slot !== null);
  const silent = shown.length - heard.length;
  const words =
    heard.length === 0
      ? "no reports"
      : `at most ${formatShare(Math.max(...heard))}${silent > 0 ? `, no report in ${silent} of ${shown.length} slots` : ""}`;
  return (
    <Box component="svg" w={WIDTH} h={HEIGHT} role="img" aria-label={`${label}: ${words}`} display="block">
      <title>{words}</title>
      {[...barsOf(shown)].map(([color, path]) => (
        <path key={color} d={path} fill={color} />
      ))}
    </Box>
  );
}
