/** Meshes: nodes that measure each other; created, changed, and their coverage. */
import { Select, Stack, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { SensingMesh } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { formatShare } from "../../shared/units";
import { EditableTable } from "../security/EditableTable";
import { measuring, membersText, mostOfALink, sensorText } from "./mesh";
import { MeshCoverage } from "./MeshCoverage";
import { MeshForm } from "./MeshForm";

const KEY = ["sensing-meshes"];

const COLUMNS: Column<SensingMesh>[] = [
  { id: "id", header: "Mesh", value: ({ id }) => id },
  { id: "state", header: "State", value: ({ enabled }) => (enabled ? "enabled" : "disabled") },
  { id: "members", header: "Members", value: membersText },
  { id: "measuring", header: "Measuring", align: "right", value: measuring },
  { id: "sensors", header: "Sensors", value: ({ sensors }) => sensors.map(sensorText).join(" ") },
  {
    id: "configurations",
    header: "Configurations",
    align: "right",
    value: ({ plan }) => plan.configurations,
  },
  {
    id: "slowest",
    header: "Longest period",
    align: "right",
    value: ({ plan }) => plan.slowest,
    cell: ({ plan }) => (plan.slowest > 1 ? `${plan.slowest} times` : "as asked for"),
  },
  {
    id: "share",
    header: "Most of a link",
    align: "right",
    value: mostOfALink,
    cell: (mesh) => `${formatShare(mostOfALink(mesh), 3)} of ${formatShare(mesh.budget_share, 2)}`,
  },
];

export function Meshes() {
  const mayChange = useMay("operator", "admin");
  const meshes = useQuery({ queryKey: KEY, queryFn: api.sensingMeshes, refetchInterval: 10_000 });
  const [chosen, setChosen] = useState<string | null>(null);
  const known = meshes.data ?? [];
  const shown = known.find(({ id }) => id === chosen) ?? known[0];
  return (
    <Stack gap="xs" component="section" aria-label="Meshes">
      <Title order={2} size="h4">
        Meshes
      </Title>
      {mayChange ? (
        <EditableTable
          label="Sensing meshes"
          queryKey={KEY}
          fetch={api.sensingMeshes}
          columns={COLUMNS}
          name={({ id }) => id}
          empty="No meshes: nothing is measured but what is configured pair by pair."
          add="New mesh"
          editable
          form={(mesh, done) => <MeshForm mesh={mesh} onDone={done} />}
          removal={{
            verb: "Delete",
            words: () => "Its members stop measuring each other; stored results are kept.",
            remove: ({ id }) => api.deleteSensingMesh(id),
          }}
        />
      ) : (
        <Fetched query={meshes} what="the meshes">
          {(rows) => (
            <DataTable
              label="Sensing meshes"
              rows={rows}
              columns={COLUMNS}
              rowKey={({ id }) => id}
              empty="No meshes."
            />
          )}
        </Fetched>
      )}
      {known.length > 1 ? (
        <Select
          label="Coverage of"
          w={240}
          data={known.map(({ id }) => id)}
          value={shown?.id ?? null}
          onChange={setChosen}
          allowDeselect={false}
        />
      ) : null}
      {shown ? <MeshCoverage mesh={shown} /> : null}
    </Stack>
  );
}
