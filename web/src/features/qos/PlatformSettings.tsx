/** Settings of the whole platform, and what applications may take of the sensor pods. */
import { Button, Card, Drawer, Group, NumberInput, Select, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { PlatformSettings as Settings } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { EditableTable } from "../security/EditableTable";
import { Stated } from "../security/Stated";
import {
  bodyOf,
  entriesOf,
  LIMITS,
  limitShown,
  limitsOf,
  type OwnerLimits,
  SETTINGS,
  words,
} from "./platform";

const KEY = ["platform-settings"];
const LIMITS_KEY = [...KEY, "limits"];

const LIMIT_COLUMNS: Column<OwnerLimits>[] = [
  { id: "owner", header: "Application", value: ({ owner }) => (owner === "*" ? "all others" : owner) },
  ...LIMITS.map((limit): Column<OwnerLimits> => ({
    id: limit.name,
    header: limit.label,
    align: "right",
    value: (row) => {
      const shown = limitShown(row, limit);
      return shown === "" ? "any" : `${shown}${limit.suffix ?? ""}`;
    },
  })),
];

export function PlatformSettings() {
  const settings = useQuery({ queryKey: KEY, queryFn: api.platformSettings, refetchInterval: 10_000 });
  const queries = useQueryClient();
  const mayChange = useMay("operator", "admin");
  const [edited, setEdited] = useState<Settings | null>(null);
  return (
    <Card withBorder component="section" aria-label="Platform settings">
      <Group justify="space-between" mb="sm">
        <div>
          <Text size="sm" fw={600}>
            Platform settings
          </Text>
          <Text size="sm" c="dimmed">
            Services and sensor pods follow a change within seconds, without a restart.
          </Text>
        </div>
        {mayChange ? (
          <Button
            variant="default"
            disabled={!settings.data}
            onClick={() => {
              setEdited(settings.data ?? null);
            }}
          >
            Change settings
          </Button>
        ) : null}
      </Group>
      <Fetched query={settings} what="the platform settings">
        {(found) => (
          <DataTable
            label="Platform settings"
            rows={SETTINGS}
            columns={[
              { id: "setting", header: "Setting", value: ({ label }) => label },
              { id: "value", header: "Value", value: (setting) => words(found, setting) },
            ]}
            rowKey={({ name }) => name}
            empty=""
            minWidth={420}
          />
        )}
      </Fetched>
      {mayChange ? (
        <Stack gap={0} mt="md">
          <Text size="sm" fw={600}>
            What applications may take of each sensor pod
          </Text>
          <Limits />
        </Stack>
      ) : null}
      <Drawer
        opened={edited !== null}
        onClose={() => {
          setEdited(null);
        }}
        title="Platform settings"
        position="right"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        {edited ? (
          <SettingsForm
            settings={edited}
            onDone={() => {
              setEdited(null);
              void queries.invalidateQueries({ queryKey: KEY });
            }}
          />
        ) : null}
      </Drawer>
    </Card>
  );
}

function SettingsForm({ settings, onDone }: { settings: Settings; onDone: () => void }) {
  const form = useForm({ initialValues: entriesOf(settings) });
  return (
    <Stated
      form={form}
      put={(values) =>
        api.putPlatformSettings(bodyOf(values, settings.application_limits), settings.revision)
      }
      onDone={onDone}
    >
      <Text size="sm" c="dimmed">
        An empty field leaves each service what it was started with.
      </Text>
      {SETTINGS.map(({ name, label, suffix = "", usual, choices }) =>
        choices ? (
          <Select
            key={name}
            label={label}
            placeholder={`as started (usually ${usual})`}
            data={choices}
            clearable
            value={form.values[name] === "" ? null : String(form.values[name])}
            onChange={(value) => {
              form.setFieldValue(name, value ?? "");
            }}
            error={form.errors[name]}
          />
        ) : (
          <NumberInput
            key={name}
            label={label}
            placeholder={`as started (usually ${usual}${suffix})`}
            suffix={suffix}
            min={0}
            {...form.getInputProps(name)}
          />
        ),
      )}
    </Stated>
  );
}

function Limits() {
  const put = async (change: (limits: NonNullable<Settings["application_limits"]>) => typeof limits) => {
    const known = await api.platformSettings();
    const limits = change({ ...known.application_limits });
    return api.putPlatformSettings(bodyOf(entriesOf(known), limits), known.revision);
  };
  return (
    <EditableTable<OwnerLimits>
      label="Limits of applications"
      queryKey={LIMITS_KEY}
      fetch={() =>
        api
          .platformSettings()
          .then(({ application_limits }) =>
            Object.entries(application_limits ?? {}).map(([owner, limits]) => ({ owner, ...limits })),
          )
      }
      columns={LIMIT_COLUMNS}
      name={({ owner }) => owner}
      empty="No limits are set here: those that the sensor pods were started with hold."
      add="New limits"
      editable
      form={(row, done) => (
        <LimitsForm
          row={row}
          onDone={done}
          put={(owner, limits) => put((known) => ({ ...known, [owner]: limits }))}
        />
      )}
      removal={{
        verb: "Delete",
        words: ({ owner }) => `Whoever measures as ${owner} has the limits of all others from then on.`,
        remove: ({ owner }) =>
          put((known) => Object.fromEntries(Object.entries(known).filter(([name]) => name !== owner))),
      }}
    />
  );
}

interface LimitsFormProps {
  row: OwnerLimits | null;
  put: (owner: string, limits: ReturnType<typeof limitsOf>) => Promise<unknown>;
  onDone: () => void;
}

function LimitsForm({ row, put, onDone }: LimitsFormProps) {
  const form = useForm({
    initialValues: {
      owner: row?.owner ?? "",
      ...Object.fromEntries(LIMITS.map((limit) => [limit.name, limitShown(row, limit)])),
    } as { owner: string } & Record<(typeof LIMITS)[number]["name"], number | string>,
    validate: { owner: (value) => (value ? null : "The subject of its token, or * for all others") },
  });
  return (
    <Stated form={form} put={({ owner, ...entries }) => put(owner, limitsOf(entries))} onDone={onDone}>
      <TextInput
        label="Application"
        description="Subject of its token; * for all others"
        required
        disabled={row !== null}
        {...form.getInputProps("owner")}
      />
      {LIMITS.map(({ name, label, suffix = "" }) => (
        <NumberInput
          key={name}
          label={label}
          placeholder="any"
          suffix={suffix}
          min={0}
          {...form.getInputProps(name)}
        />
      ))}
    </Stated>
  );
}
