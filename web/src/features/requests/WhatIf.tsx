/** What a change of a request would do, asked of the service that decides it; then the change itself. */
import { Button, Card, Group, NumberInput, SimpleGrid, Stack, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Link, RateRequest, RateRequestChange } from "../../api/types";
import { Failed } from "../../shared/Notices";
import { Answer } from "./Answer";
import { MEGABITS } from "./formValues";

export function WhatIf({ request, links }: { request: RateRequest; links: Link[] }) {
  const queries = useQueryClient();
  const before = request.request.guaranteed_bps / 1e6;
  const [rate, setRate] = useState<number | string>(before);
  const [minutes, setMinutes] = useState<number | string>("");
  const [wanted] = useDebouncedValue({ rate, minutes }, 300);
  const changed = wanted.rate !== before || wanted.minutes !== "";
  const body = (): RateRequestChange =>
    ({
      guaranteed_bps: Math.round(Number(wanted.rate) * 1e6),
      ...(wanted.minutes === ""
        ? {}
        : { end: new Date(Date.now() + Number(wanted.minutes) * 60_000).toISOString() }),
    }) as RateRequestChange;
  const preview = useQuery({
    queryKey: ["change", request.id, request.revision, wanted],
    queryFn: () => api.previewChange(request.id, body()),
    enabled: changed && wanted.rate !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });
  const apply = useMutation({
    mutationFn: () => api.changeRateRequest(request.id, request.revision, body()),
    onSuccess: (answer) => {
      queries.setQueryData(["rate-request", request.id], answer);
      void queries.invalidateQueries({ queryKey: ["request-history", request.id] });
    },
  });
  const answer = changed ? preview.data : undefined;
  return (
    <Card withBorder component="section" aria-label="What if">
      <Text size="sm" fw={600} mb="xs">
        What if
      </Text>
      <Stack>
        <SimpleGrid cols={2}>
          <NumberInput label="Guaranteed rate" {...MEGABITS} value={rate} onChange={setRate} />
          <NumberInput
            label="Ends in"
            suffix=" min"
            placeholder="unchanged"
            min={1}
            value={minutes}
            onChange={setMinutes}
          />
        </SimpleGrid>
        {answer ? (
          <Answer answer={answer} links={links} testId="what-if" />
        ) : (
          <Text size="sm">
            Change a value to see whether it would be granted; nothing changes until it is applied.
          </Text>
        )}
        {preview.isError ? <Failed error={preview.error} /> : null}
        {apply.isError ? <Failed error={apply.error} /> : null}
        <Group justify="flex-end">
          <Button
            disabled={!answer?.granted}
            loading={apply.isPending}
            onClick={() => {
              apply.mutate();
            }}
          >
            Apply
          </Button>
        </Group>
      </Stack>
    </Card>
  );
}
