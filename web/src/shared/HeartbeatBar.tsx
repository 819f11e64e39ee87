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

export function HeartbeatBar({ slots, label }: Props) {
  const shown = slots.slice(-WIDTH / STEP);
  const heard = shown.filter((slot): slot is number => slot !== null);
  const silent = shown.length - heard.length;
  const words =
    heard.length === 0
      ? "silent"
      : `at most ${formatShare(Math.max(...heard))}${silent > 0 ? `, silent for ${silent} of ${shown.length}` : ""}`;
  return (
    <Box component="svg" w={WIDTH} h={HEIGHT} role="img" aria-label={`${label}: ${words}`} display="block">
      <title>{words}</title>
      {shown.map((slot, index) => {
        const x = WIDTH - (shown.length - index) * STEP;
        if (slot === null)
          return <rect key={x} x={x} y={HEIGHT - 1} width={STEP - 1} height={1} fill={SILENCE} />;
        const height = Math.max(2, Math.min(1, slot) * HEIGHT);
        return (
          <rect
            key={x}
            x={x}
            y={HEIGHT - height}
            width={STEP - 1}
            height={height}
            fill={utilisationColor(slot)}
          />
        );
      })}
    </Box>
  );
}
