/** Sign-in: through the identity provider where there is one, else with a role from the development issuer. */
import { Button, Card, Center, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api, type Role } from "../../api/client";
import { usePageTitle } from "../../shared/hooks";
import { Failed } from "../../shared/Notices";

const ROLES: Role[] = ["viewer", "application", "operator", "admin"];

export function SignIn({ onSignedIn }: { onSignedIn: () => void }) {
  usePageTitle("Sign in");
  const [role, setRole] = useState<Role>("operator");
  const offers = useQuery({ queryKey: ["sign-in"], queryFn: api.signInOffers, retry: false });
  const signIn = useMutation({ mutationFn: () => api.signIn(role), onSuccess: onSignedIn });
  const loginUrl = offers.data?.login_url;
  if (loginUrl) {
    const returnTo = encodeURIComponent(window.location.pathname + window.location.search);
    return (
      <Center mih="60vh">
        <Card withBorder shadow="sm" padding="xl" maw={460}>
          <Stack>
            <Title order={1} size="h3">
              Sign in
            </Title>
            <Text size="sm">
              Your organisation's identity provider authenticates you and assigns your roles.
            </Text>
            <Button component="a" href={`${loginUrl}?return_to=${returnTo}`}>
              Sign in with the identity provider
            </Button>
          </Stack>
        </Card>
      </Center>
    );
  }
  return (
    <Center mih="60vh">
      <Card withBorder shadow="sm" padding="xl" maw={460}>
        <Stack>
          <Title order={1} size="h3">
            Sign in
          </Title>
          <Text size="sm">This platform uses a development issuer. Select the role to sign in with.</Text>
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
