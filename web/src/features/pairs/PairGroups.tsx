/** The groups, for viewers as a list; whoever may ask for rates makes their own, operators change all. */
import type { UseQueryResult } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { PairGroup } from "../../api/types";
import { useSession } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { EditableTable } from "../security/EditableTable";
import { PairGroupForm } from "./PairGroupForm";
import { destinationsText, sourcesText } from "./pairs";

export const GROUPS_KEY = ["pair-groups"];

const COLUMNS: Column<PairGroup>[] = [
  { id: "id", header: "Group", value: ({ id }) => id },
  { id: "description", header: "Description", value: ({ description }) => description || null },
  { id: "sources", header: "Sources", value: sourcesText },
  { id: "destinations", header: "Destinations", value: destinationsText },
  { id: "pairs", header: "Single pairs", align: "right", value: ({ pairs }) => pairs.length },
  { id: "owner", header: "Owner", value: ({ owner }) => owner },
];

const LABEL = "Groups of pairs";
const EMPTY = "No groups: make one to look at many pairs together.";

export function PairGroups({ groups }: { groups: UseQueryResult<PairGroup[]> }) {
  const session = useSession();
  const mayMake = useMay("application", "operator", "admin");
  const mayAll = useMay("operator", "admin");
  const mayChange = ({ owner }: PairGroup) => mayAll || owner === session.data?.subject;
  if (!mayMake)
    return (
      <Fetched query={groups} what="the groups of pairs">
        {(rows) => (
          <DataTable label={LABEL} rows={rows} columns={COLUMNS} rowKey={({ id }) => id} empty={EMPTY} />
        )}
      </Fetched>
    );
  return (
    <EditableTable
      label={LABEL}
      queryKey={GROUPS_KEY}
      fetch={api.pairGroups}
      columns={COLUMNS}
      name={({ id }) => id}
      empty={EMPTY}
      add="New group"
      editable={mayChange}
      form={(group, done) => <PairGroupForm group={group} onDone={done} />}
      removal={{
        verb: "Delete",
        offered: mayChange,
        words: () => "Its pairs are no longer looked at together; stored results are kept.",
        remove: ({ id }) => api.deletePairGroup(id),
      }}
    />
  );
}
