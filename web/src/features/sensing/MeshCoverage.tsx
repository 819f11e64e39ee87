/** Coverage of a mesh: which pairs have fresh results, and what the mesh takes of each link. */
import { Card, Group, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { SensingMesh } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useNow } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { formatBytes, formatRate, formatShare } from "../../shared/units";
import classes from "../paths/HeatMap.module.css";
import { cellColor } from "../paths/matrix";
import { cellKey, cellWords, coverageMatrix, freshShare } from "./mesh";

type PlannedLink = SensingMesh["plan"]["links"][number];

const LINKS: Column<PlannedLink>[] = [
  { id: "link", header: "Link", value: ({ link }) => link },
  {
    id: "capacity",
    header: "Capacity",
    align: "right",
    value: ({ capacity_bps }) => capacity_bps,
    cell: ({ capacity_bps }) => (capacity_bps === null ? "unknown" : formatRate(capacity_bps)),
  },
  {
    id: "planned",
    header: "Probes and answers",
    align: "right",
    value: ({ planned_bytes }) => planned_bytes,
    cell: ({ planned_bytes, limit_bytes }) =>
      `${formatBytes(planned_bytes)} of ${formatBytes(limit_bytes)} a minute`,
  },
  {
    id: "share",
    header: "Of the link",
    align: "right",
    value: ({ share }) => share,
    cell: ({ share }) => formatShare(share, 3),
  },
];

const MEMBERS: Column<SensingMesh["plan"]["members"][number]>[] = [
  { id: "node", header: "Member", value: ({ node }) => node },
  { id: "state", header: "State", value: ({ state }) => state },
];

export function MeshCoverage({ mesh }: { mesh: SensingMesh }) {
  const coverage = useQuery({
    queryKey: ["mesh-coverage", mesh.id],
    queryFn: () => api.meshCoverage(mesh.id),
    refetchInterval: 5000,
  });
  const absent = mesh.plan.members.filter(({ state }) => state !== "measuring");
  return (
    <Stack gap="xs">
      <Fetched query={coverage} what={`the coverage of ${mesh.id}`}>
        {(found) => <Matrix mesh={mesh.id} found={found} />}
      </Fetched>
      {mesh.plan.remarks.map((remark) => (
        <Text key={remark} size="sm">
          {remark}
        </Text>
      ))}
      {absent.length > 0 ? (
        <DataTable
          label={`Members of ${mesh.id} that do not measure`}
          rows={absent}
          columns={MEMBERS}
          rowKey={({ node }) => node}
        />
      ) : null}
      <DataTable
        label={`Links that ${mesh.id} crosses`}
        rows={mesh.plan.links}
        columns={LINKS}
        rowKey={({ link }) => link}
        sort={{ id: "share", desc: true }}
        empty="No link is crossed."
      />
    </Stack>
  );
}

function Matrix({ mesh, found }: { mesh: string; found: Awaited<ReturnType<typeof api.meshCoverage>> }) {
  const now = useNow(1000);
  const matrix = coverageMatrix(found);
  return (
    <Card withBorder component="section" aria-label={`Coverage of ${mesh}`}>
      <Group justify="space-between" mb="xs" gap="xs">
        <Text size="sm" fw={600}>
          Coverage of {mesh}
        </Text>
        <Text size="sm">
          {found.fresh} of {found.pairs} pairs fresh (younger than two periods)
        </Text>
      </Group>
      <Table.ScrollContainer
        minWidth={matrix.nodes.length * 60 + 110}
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
                  const pair = matrix.cells.get(cellKey(source, destination));
                  const share = pair ? freshShare(pair) : 0;
                  return (
                    <Table.Td key={destination} p={1}>
                      {pair ? (
                        <div
                          className={classes.cell}
                          style={{ backgroundColor: cellColor(1 - share) }}
                          title={`${source} to ${destination}: ${cellWords(pair, now)}`}
                        >
                          {share === 1 ? "fresh" : share > 0 ? "partly" : "stale"}
                        </div>
                      ) : null}
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
