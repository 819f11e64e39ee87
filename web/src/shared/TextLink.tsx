/** A link within text or a table: underlined, in the text's own colour. */
import { Anchor } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { ComponentPropsWithRef } from "react";

function Underlined(props: ComponentPropsWithRef<"a">) {
  return <Anchor size="sm" underline="always" c="var(--mantine-color-text)" {...props} />;
}

export const TextLink = createLink(Underlined);
