/** Sign-in on a one-machine platform, where the gateway's development issuer stands for the identity provider. */
import { Button, Card, Center, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { api, type Role } from "../../api/client";
import { usePageTitle } from "../../shared/hooks";
import { Failed } from "../../shared/Notices";

const ROLES: Role[] = ["viewer", "application", "operator", "admin"];

export function SignIn({ onSignedIn }: { onSignedIn: () => void }) {
  usePageTitle("Sign in");
  const [role, setRole] = useState<Role>("operator");
  const signIn = useMutation({ mutationFn: () => api.signIn(role), onSuccess: onSignedIn });
  return (
    <Center mih="60vh">
      <Card withBorder shadow="sm" padding="xl" maw={460}>
        <Stack>
          <Title order={1} size="h3">
            Sign in
          </Title>
          <Text size="sm">
            This platform runs on one machine with its own development issuer. Choose the role to look at it
            with.
          </Text>
          <SegmentedControl
            aria-label="Role"
            value={role}
            onChange={(value) => {
              setRole(value);
            }}
            data={ROLES}
            fullWidth
          />
          {signIn.isError ? <Failed error={signIn.error} /> : null}
          <Button
            loading={signIn.isPending}
            onClick={() => {
              signIn.mutate();
            }}
          >
            Sign in as {role}
          </Button>
        </Stack>
      </Card>
    </Center>
  );
}
