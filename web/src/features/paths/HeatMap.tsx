/** All pairs as coloured cells; an inferred one is hatched and begins with a tilde. */
import { Card, Group, Table, Text, UnstyledButton } from "@mantine/core";

import type { Estimate } from "../../api/types";
import classes from "./HeatMap.module.css";
import { badness, cellColor, intervalOf, isMeasured, type Matrix, type Metric, pair } from "./matrix";

interface Props {
  matrix: Matrix;
  metric: Metric;
  chosen: string[] | null;
  onSelect: (source: string, destination: string) => void;
}

export function HeatMap({ matrix, metric, chosen, onSelect }: Props) {
  return (
    <Card withBorder component="section" aria-label={`${metric.label}, all pairs`}>
      <Group justify="space-between" mb="xs" gap="xs">
        <Text size="sm" fw={600}>
          {metric.label}, all pairs
        </Text>
        <Group gap="md" aria-hidden>
          <Text size="xs">
            <span className={classes.sample} /> measured
          </Text>
          <Text size="xs">
            <span className={`${classes.sample ?? ""} ${classes.inferred ?? ""}`} /> ~ inferred
          </Text>
          <Text size="xs">good</Text>
          <span className={classes.scale} />
          <Text size="xs">bad</Text>
        </Group>
      </Group>
      <Table.ScrollContainer
        minWidth={matrix.nodes.length * 88 + 110}
        scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}
      >
        <Table className={classes.map} withRowBorders={false} verticalSpacing={0} horizontalSpacing={0}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col" className={classes.corner}>
                from \ to
              </Table.Th>
              {matrix.nodes.map((node) => (
                <Table.Th key={node} scope="col" ta="center">
                  {node}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {matrix.nodes.map((source) => (
              <Table.Tr key={source}>
                <Table.Th scope="row">{source}</Table.Th>
                {matrix.nodes.map((destination) => {
                  const estimate = matrix.cells.get(pair(source, destination));
                  return (
                    <Table.Td key={destination} p={1}>
                      {estimate ? (
                        <HeatCell
                          estimate={estimate}
                          metric={metric}
                          color={cellColor(badness(estimate.value, matrix, metric.rising))}
                          chosen={chosen?.[0] === source && chosen[1] === destination}
                          onSelect={onSelect}
                        />
                      ) : (
                        <Text size="xs" ta="center" c="dimmed">
                          {source === destination ? "" : "unknown"}
                        </Text>
                      )}
                    </Table.Td>
                  );
                })}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}

interface CellProps {
  estimate: Estimate;
  metric: Metric;
  color: string;
  chosen: boolean;
  onSelect: Props["onSelect"];
}

function HeatCell({ estimate, metric, color, chosen, onSelect }: CellProps) {
  const { source_node: source, destination_node: destination, method, age_s } = estimate;
  const measured = isMeasured(estimate);
  const how = measured ? "measured" : `inferred (${method})`;
  const words = `${source} to ${destination}: ${metric.format(estimate.value)}, ${how}, ${intervalOf(estimate, metric)}, ${Math.round(age_s)} s old`;
  return (
    <UnstyledButton
      className={`${classes.cell ?? ""} ${measured ? "" : (classes.inferred ?? "")}`}
      style={{ backgroundColor: color }}
      title={words}
      aria-label={words}
      aria-pressed={chosen}
      data-testid={`pair-${source}-${destination}`}
      data-method={method}
      onClick={() => {
        onSelect(source, destination);
      }}
    >
      {measured ? "" : "~ "}
      {metric.format(estimate.value)}
    </UnstyledButton>
  );
}
