/** One number with its name and what it means, as a card; a link where there is a page behind it. */
import { Card, Text } from "@mantine/core";
import { Link } from "@tanstack/react-router";

interface Props {
  label: string;
  value: string;
  note?: string | undefined;
  /** A colour of the theme for a value that somebody should look at. */
  color?: string | undefined;
  to?: string;
}

export function Figure({ label, value, note, color, to }: Props) {
  const inside = (
    <>
      <Text size="sm">{label}</Text>
      <Text
        size="xl"
        fw={600}
        c={color}
        style={{ fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" }}
        data-testid={label.toLowerCase()}
      >
        {value}
      </Text>
      {note ? <Text size="xs">{note}</Text> : null}
    </>
  );
  if (to)
    return (
      <Card withBorder padding="sm" renderRoot={(props) => <Link to={to as "/"} {...props} />}>
        {inside}
      </Card>
    );
  return (
    <Card withBorder padding="sm">
      {inside}
    </Card>
  );
}
