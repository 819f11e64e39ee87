/** What few requests need: class and priorities, further selectors, avoided places, callback, hold, tags. */
import { Checkbox, MultiSelect, NumberInput, SimpleGrid, Stack, TagsInput, TextInput } from "@mantine/core";

import { type FormValues, guarantees, MEGABITS, PORT, PRIORITY } from "./formValues";

/** The fields that stand here. */
export const MORE: ReadonlySet<keyof FormValues> = new Set<keyof FormValues>([
  "minimumMbit",
  "background",
  "priority",
  "delayPriority",
  "burstTolerance",
  "sourcePort",
  "dscp",
  "cgroup",
  "avoid",
  "callbackUrl",
  "hold",
  "tags",
]);

interface Props {
  /** What connects a field with its value and its error. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- as the kit's own getInputProps
  input: (name: keyof FormValues) => any;
  values: FormValues;
  /** Ids of nodes and links. */
  places: string[];
}

export function MoreOptions({ input, values, places }: Props) {
  const checkbox = (name: "background" | "hold") => {
    const { value, ...rest } = input(name) as { value: boolean };
    return { ...rest, checked: value };
  };
  const guaranteed = guarantees(values.service);
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <NumberInput
          label="Minimum rate"
          description="Accept at least this; empty: all or nothing"
          {...MEGABITS}
          disabled={!guaranteed}
          {...input("minimumMbit")}
        />
        <NumberInput
          label="Priority"
          description="0 lowest, 255 highest"
          {...PRIORITY}
          disabled={guaranteed && values.background}
          {...input("priority")}
        />
        <NumberInput
          label="Delay priority"
          description="0 to 255; from 128 on expedited"
          {...PRIORITY}
          {...input("delayPriority")}
        />
        <NumberInput
          label="Burst tolerance"
          description="0 to 15 (TIA-1039)"
          min={0}
          max={15}
          allowDecimal={false}
          {...input("burstTolerance")}
        />
        <NumberInput label="Sender's port" description="Empty: any port" {...PORT} {...input("sourcePort")} />
        <NumberInput
          label="DSCP"
          description="Empty: any code point"
          min={0}
          max={63}
          allowDecimal={false}
          {...input("dscp")}
        />
        <NumberInput
          label="Control group"
          description="Id of a cgroup v2 of the sender; empty: any"
          min={1}
          allowDecimal={false}
          {...input("cgroup")}
        />
        <TextInput
          label="Callback URL"
          description="Receives each change, signed"
          placeholder="https://app.example/chart"
          {...input("callbackUrl")}
        />
      </SimpleGrid>
      <MultiSelect
        label="Avoid"
        description="Nodes and links that the path must not use"
        data={places}
        searchable
        {...input("avoid")}
      />
      <TagsInput label="Tags" description="name=value; Enter after each" {...input("tags")} />
      <Checkbox
        label="Background: takes what foreground requests leave, up to the guaranteed rate"
        disabled={!guaranteed}
        {...checkbox("background")}
      />
      <Checkbox label="Hold: reserve it for up to 15 minutes, until it is committed" {...checkbox("hold")} />
    </Stack>
  );
}
