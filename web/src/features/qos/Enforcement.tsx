/** The enforcement switch: off, observe or enforce, for all nodes and for each; who may not change it sees it. */
import { Button, Card, Group, Modal, SegmentedControl, SimpleGrid, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Policy, PolicyBody } from "../../api/types";
import { useNodes, usePolicies } from "../../api/useLive";
import { useMay } from "../../shared/hooks";
import { Failed, Fetched } from "../../shared/Notices";

type Mode = NonNullable<PolicyBody["enforcement"]>;
/** What a node may be switched to: a mode of its own, or that of the default policy. */
type Choice = Mode | "default";

const EFFECTS: Record<Choice, string> = {
  default: "The node has no mode of its own: it follows the default policy, now and when that changes.",
  off: "Every flow returns to its default congestion control within 2 s. No flow stalls; no rate is enforced.",
  observe: "Rates are computed and shown, not enforced; flows stay on their default congestion control.",
  enforce: "Granted rates are enforced by the kernels of the nodes.",
};
const ALL = "default";

interface Change {
  id: string;
  mode: Choice;
}

export function Enforcement() {
  const policies = usePolicies();
  const nodes = useNodes();
  const queries = useQueryClient();
  const mayChange = useMay("operator", "admin");
  const [wanted, setWanted] = useState<Change | null>(null);
  const find = (id: string): Policy | undefined => policies.data?.find((policy) => policy.id === id);
  const put = useMutation({
    mutationFn: ({ id, mode }: Change) => {
      const own = find(id);
      const body: PolicyBody = {
        enforcement: mode === "default" ? null : mode,
        link_controller: own?.link_controller ?? null,
        max_guaranteed_bps: own?.max_guaranteed_bps ?? null,
        quick_start_request_bps: own?.quick_start_request_bps ?? null,
      };
      return api.putPolicy(id, body, own?.revision ?? null);
    },
    onSuccess: () => {
      setWanted(null);
    },
    onSettled: () => void queries.invalidateQueries({ queryKey: ["policies"] }),
  });
  const name = (id: string) => (id === ALL ? "all nodes" : id);
  const rows = [ALL, ...(nodes.data ?? []).map(({ id }) => id)];
  return (
    <Card withBorder component="section" aria-label="Enforcement">
      <Text size="sm" fw={600}>
        Enforcement
      </Text>
      <Text size="sm" c="dimmed" mb="sm">
        {mayChange
          ? "With off, every flow returns to its default congestion control; traffic continues."
          : "Read only: changing it needs the role operator."}
      </Text>
      <Fetched query={policies} what="the policies">
        {() => (
          <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm">
            {rows.map((id) => {
              const own = find(id);
              const mode = own?.in_force.enforcement ?? find(ALL)?.enforcement ?? "off";
              const chosen: Choice = id === ALL ? mode : (own?.enforcement ?? "default");
              const told = nodes.data?.find((node) => node.id === id)?.state?.enforcement;
              return (
                <div key={id}>
                  <Group justify="space-between">
                    <Text size="sm" fw={id === ALL ? 600 : 400} id={`enforcement-${id}`}>
                      {id === ALL ? "All nodes" : id}
                    </Text>
                    <Text size="xs" c="dimmed">
                      {id === ALL ? "" : chosen === "default" ? `follows the default: ${mode}` : "own policy"}
                      {told && told !== mode ? `; the node reports ${told}` : ""}
                    </Text>
                  </Group>
                  <SegmentedControl
                    fullWidth
                    size="xs"
                    disabled={!mayChange}
                    aria-labelledby={`enforcement-${id}`}
                    data-testid={`enforcement-of-${id}`}
                    value={chosen}
                    data={[...(id === ALL ? [] : ["default" as const]), "off", "observe", "enforce"]}
                    onChange={(value: Choice) => {
                      put.reset();
                      setWanted({ id, mode: value });
                    }}
                  />
                </div>
              );
            })}
          </SimpleGrid>
        )}
      </Fetched>
      <Modal
        opened={wanted !== null}
        onClose={() => {
          setWanted(null);
        }}
        title={wanted ? `Switch ${name(wanted.id)} to ${wanted.mode}?` : ""}
        closeButtonProps={{ "aria-label": "Cancel" }}
      >
        <Stack>
          <Text size="sm">{wanted ? EFFECTS[wanted.mode] : ""}</Text>
          {put.isError ? <Failed error={put.error} /> : null}
          <Group justify="flex-end">
            <Button
              color={wanted?.mode === "off" ? "red.9" : undefined}
              loading={put.isPending}
              onClick={() => {
                if (wanted) put.mutate(wanted);
              }}
            >
              Switch
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Card>
  );
}
