/** What would come of a request: granted, or refused and why; what would be accepted, and when there is room. */
import { Alert, Text } from "@mantine/core";

import type { Link, Preview } from "../../api/types";
import { formatRate } from "../../shared/units";
import { pathLabel } from "./path";

interface Props {
  answer: Preview;
  links: Link[];
  titles?: { granted: string; refused: string };
  testId: string;
}

const WINDOWS = 3;
const TITLES = { granted: "This would be granted", refused: "This would be refused" };
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "short" });

/** "between 1.00 Mb/s and 40.0 Mb/s"; null when nothing at all would be accepted. Pure. */
export function acceptedWords({ floor_bps: floor, ceiling_bps: ceiling }: Preview): string | null {
  if (!ceiling) return floor ? `At least ${formatRate(floor)} would be accepted.` : null;
  return floor && floor < ceiling
    ? `Between ${formatRate(floor)} and ${formatRate(ceiling)} would be accepted.`
    : `Up to ${formatRate(ceiling)} would be accepted.`;
}

export function Answer({ answer, links, titles = TITLES, testId }: Props) {
  const { granted, granted_bps, path, preempts, refusal, waits_until, windows } = answer;
  const accepted = acceptedWords(answer);
  // They are written for whoever calls REST: here only where there is nothing shorter to say.
  const suggestions = accepted ? [] : (refusal?.suggestions ?? []);
  return (
    <Alert
      color={granted ? "teal" : "orange"}
      variant="outline"
      role="status"
      title={granted ? titles.granted : titles.refused}
      data-testid={testId}
    >
      {granted ? (
        <Text size="sm">
          {formatRate(granted_bps)} guaranteed{path.length > 0 ? ` over ${pathLabel(path, links)}` : ""}
          {preempts > 0 ? `; ${preempts} requests of lower priority would be pre-empted` : ""}
          {waits_until
            ? `; in force at ${new Date(waits_until).toLocaleTimeString("en-GB")} at the latest, as another rate drains on its path`
            : ""}
          .
        </Text>
      ) : (
        <>
          <Text size="sm">{refusal?.detail}</Text>
          {accepted ? <Text size="sm">{accepted}</Text> : null}
          {suggestions.map((suggestion) => (
            <Text size="sm" key={suggestion}>
              {suggestion}
            </Text>
          ))}
        </>
      )}
      {granted
        ? null
        : windows.slice(0, WINDOWS).map(({ start, end, free_bps }) => (
            <Text size="xs" key={start}>
              Possible from {CLOCK.format(Date.parse(start))}
              {end ? ` until ${CLOCK.format(Date.parse(end))}` : " onwards"}: {formatRate(free_bps)} free.
            </Text>
          ))}
    </Alert>
  );
}
