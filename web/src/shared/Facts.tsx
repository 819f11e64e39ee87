/** Names and values under each other. */
import { DataList } from "@mantine/core";
import type { ReactNode } from "react";

export function Facts({ data }: { data: { label: string; value: ReactNode }[] }) {
  return (
    <DataList>
      {data.map(({ label, value }) => (
        <DataList.Item key={label}>
          <DataList.ItemLabel c="dimmed">{label}</DataList.ItemLabel>
          <DataList.ItemValue>{value}</DataList.ItemValue>
        </DataList.Item>
      ))}
    </DataList>
  );
}
