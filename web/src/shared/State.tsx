/** A state in a word: colour says it at a glance, the word says it to everybody. */
import { Badge } from "@mantine/core";

export type Tone = "good" | "busy" | "bad" | "off";
const COLORS: Record<Tone, string> = { good: "teal", busy: "orange", bad: "red", off: "gray" };

export function State({ tone, children }: { tone: Tone; children: string }) {
  return (
    <Badge
      color={COLORS[tone]}
      variant="outline"
      tt="none"
      miw="max-content"
      styles={{ label: { color: "var(--mantine-color-text)" } }}
    >
      {children}
    </Badge>
  );
}
