import { describe, expect, it } from "vitest";

import type { NetworkNode, TunnelEnd } from "../../api/types";
import { node } from "../../shared/samples";
import {
  applicationsOf,
  applicationsText,
  classesOf,
  classesText,
  endRows,
  proxiedRows,
  withEnd,
  withoutEnd,
  wordsOf,
} from "./ends";

const END: TunnelEnd = {
  tunnel: "a-b",
  role: "origin",
  interface: "chart-itm0",
  address: "10.0.0.2",
  port: 7400,
  peer_node: "b",
  classes: [{ name: "gold", weight: 3, selector: "from=10.1.0.0/16,dscp=46" }],
  period_ms: 1000,
  congestion: "cubic",
  prefixes: [],
  applications: [],
};
const NODE: NetworkNode = { ...node("a"), description: "a router", tunnel_ends: [END] };

describe("ends of nodes", () => {
  it("are a row each, and proxied traffic is one where there is any", () => {
    expect(endRows([NODE, node("b")]).map(({ node: { id }, end }) => [id, end.tunnel])).toEqual([
      ["a", "a-b"],
    ]);
    expect(proxiedRows([NODE])).toEqual([]);
    const proxying = {
      ...NODE,
      proxied_traffic: { interfaces: ["eth1"], prefixes: [], mode: "same-ports" as const },
    };
    expect(proxiedRows([proxying])).toHaveLength(1);
  });

  it("are stated with the rest of the node as it was", () => {
    const changed = withEnd(NODE, { ...END, port: 7500 });
    expect(changed.description).toBe("a router");
    expect(changed.tunnel_ends).toEqual([{ ...END, port: 7500 }]);
    expect(changed).not.toHaveProperty("proxied_traffic");
    expect(withEnd(NODE, { ...END, tunnel: "a-c" }).tunnel_ends).toHaveLength(2);
    expect(withoutEnd(NODE, "a-b").tunnel_ends).toEqual([]);
  });

  it("have applications in lines, one each, and keep their limits", () => {
    const applications = [
      { name: "pacing", file: "itm-aimd.so", argument: "5000000,100000,500000", limit_ms: 30, on: true },
      { name: "marking", file: "mark.so", argument: "", limit_ms: 20, on: false },
    ];
    const text = "pacing=itm-aimd.so 5000000,100000,500000\noff marking=mark.so";
    expect(applicationsText(applications)).toBe(text);
    expect(applicationsOf(text, applications)).toEqual(applications);
    expect(applicationsOf("pacing=../aimd.so")).toBeNull();
    expect(applicationsOf("pacing")).toBeNull();
    expect(applicationsOf("")).toEqual([]);
  });

  it("have classes in lines, one each", () => {
    expect(classesOf(classesText(END.classes))).toEqual(END.classes);
    expect(classesOf("")).toEqual([]);
    expect(classesOf("gold")).toBeNull();
    expect(wordsOf("eth1, eth2\neth3")).toEqual(["eth1", "eth2", "eth3"]);
  });
});
