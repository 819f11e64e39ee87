/** Release a request: the button and its confirmation. */
import { Button, type ButtonProps, Group, Modal, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { RateRequest } from "../../api/types";
import { Failed } from "../../shared/Notices";

interface Props extends ButtonProps {
  request: RateRequest;
  /** The button's text. */
  label?: string;
}

export function Release({ request, label = "Release", ...button }: Props) {
  const [asking, question] = useDisclosure();
  const queries = useQueryClient();
  const { source, destination, description } = request.request;
  const release = useMutation({
    mutationFn: () => api.releaseRateRequest(request.id),
    onSuccess: (answer) => {
      question.close();
      queries.setQueryData(["rate-request", request.id], answer);
      void queries.invalidateQueries({ queryKey: ["rate-requests"] });
      void queries.invalidateQueries({ queryKey: ["request-history", request.id] });
    },
  });
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        {...button}
        onClick={() => {
          release.reset();
          question.open();
        }}
        aria-label={`${label} ${source} to ${destination}, ${description || request.id}`}
      >
        {label}
      </Button>
      <Modal
        opened={asking}
        onClose={question.close}
        title="Release this rate?"
        closeButtonProps={{ "aria-label": "Keep the rate" }}
      >
        <Stack>
          <Text size="sm">
            The flows of {source} → {destination} continue under the default congestion control.
          </Text>
          {release.isError ? <Failed error={release.error} /> : null}
          <Group justify="flex-end">
            <Button
              color="red.9"
              loading={release.isPending}
              onClick={() => {
                release.mutate();
              }}
            >
              Release
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
