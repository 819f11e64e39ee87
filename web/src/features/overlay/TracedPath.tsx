/** One path of a trace: a drawing of its nodes and links, what it is like, and why. */
import { Box, Card, Group, List, Text } from "@mantine/core";

import type { OverlayHop, OverlayTracedPath } from "../../api/types";
import { State } from "../../shared/State";
import { figuresOf, pathState } from "./words";
import classes from "./TracedPath.module.css";

export function TracedPath({ path }: { path: OverlayTracedPath }) {
  const { tone, text } = pathState(path);
  const last = path.hops[path.hops.length - 1];
  return (
    <Card withBorder component="section" aria-label={`Path ${path.colour}`}>
      <Group gap="sm" mb="xs">
        <Text fw={600} size="sm">
          Path {path.colour}
        </Text>
        <State tone={tone}>{text}</State>
        <Text size="sm">{figuresOf(path)}</Text>
      </Group>
      <ol className={classes.chain}>
        {path.hops.map((hop, number) => (
          <Step key={`${number} ${hop.link_id}`} hop={hop} />
        ))}
        {last ? (
          <li className={classes.step}>
            <Box className={classes.node}>{last.next_node}</Box>
          </li>
        ) : null}
      </ol>
      <List size="sm" mt="xs" spacing={2}>
        {path.why.map((sentence) => (
          <List.Item key={sentence}>{sentence}</List.Item>
        ))}
      </List>
    </Card>
  );
}

/** A node, and the link that it takes; above it those that it does not. */
function Step({ hop }: { hop: OverlayHop }) {
  return (
    <li className={classes.step}>
      <Box className={classes.node}>
        {hop.node}
        {hop.reported ? "" : " (does not report)"}
      </Box>
      <Box className={`${classes.link ?? ""} ${hop.all_failed ? (classes.failed ?? "") : ""}`}>
        {hop.skipped.map(({ link_id, reason }) => (
          <Text key={link_id} size="xs" className={classes.skipped}>
            <s>{link_id}</s> {reason}
          </Text>
        ))}
        <Text size="xs">{hop.link_id}</Text>
      </Box>
    </li>
  );
}
