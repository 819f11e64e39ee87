import { describe, expect, it } from "vitest";

import type { Confirmation, RateRequest } from "../../api/types";
import { link, request } from "../../shared/samples";
import { explain, matchWords } from "./explain";

const ASKED = {
  source: "a",
  destination: "b",
  source_prefixes: ["10.0.0.1/32", "10.9.0.0/16"],
  destination_prefixes: [],
  source_port: null,
  destination_port: 5001,
  protocol: "tcp",
  dscp: 46,
  cgroup_id: null,
  service: "guaranteed",
  guaranteed_bps: 1_000_000,
};
const SENDER = { node: "a", state: "APPLIED", reason: "", kernel_rate_bps: 1_000_000, matching_flows: 1 };

function asked(change: object = {}, sender: object = {}): RateRequest {
  return request({
    enforcement: "ENFORCED",
    service_state: "GRANTED",
    confirming_nodes: ["a"],
    confirmations: [{ ...SENDER, ...sender } as Confirmation],
    request: ASKED,
    ...change,
  } as never);
}

const cause = (one: RateRequest, measured: number | null = 990_000, path = link()) =>
  explain(one, [path], measured).cause;

describe("explaining a request", () => {
  it("says which packets it is for", () => {
    expect(matchWords(asked())).toBe("tcp, from 10.0.0.1/32 or 10.9.0.0/16, to b port 5001, DSCP 46");
  });

  it("finds nothing wrong with one that gets its rate", () => {
    expect(explain(asked(), [link()], 990_000)).toMatchObject({
      bottleneck: "a:to-b",
      kernelBps: 1_000_000,
      cause: null,
    });
    expect(cause(asked(), null)).toBeNull();
  });

  it("owes no more than the guarantee, though more may be sent", () => {
    expect(cause(asked({}, { kernel_rate_bps: 5_000_000 }), 1_200_000)).toBeNull();
  });

  it("names the first cause along the way", () => {
    expect(cause(asked({ lifecycle: "RELEASED", reason: "by hand" }))).toBe(
      "the request is released: by hand",
    );
    expect(cause(asked({ granted_bps: 5 }))).toMatch(/admitted 5 b\/s of 1\.00 Mb\/s/);
    expect(cause(asked({ service_state: "PREEMPTED" }))).toMatch(/preempted/);
    expect(cause(asked({ enforcement: "PENDING", confirmations: [] }))).toBe(
      "not enforced: no report from a",
    );
    expect(cause(asked({ enforcement: "FAILED" }, { state: "FAILED", reason: "no tc" }))).toMatch(/a: no tc/);
    expect(cause(asked({ enforcement: "PENDING" }, { state: "OBSERVED" }))).toMatch(/a in mode observe/);
    expect(cause(asked({}, { matching_flows: 0 }))).toMatch(/no flow on a matches/);
    expect(cause(asked({ request: { ...ASKED, service: "variable" } }))).toMatch(/is the allocator running/);
    expect(cause(asked({}, { kernel_rate_bps: 7 }))).toMatch(/enforces 7 b\/s, less than granted/);
    expect(cause(asked(), 100_000)).toMatch(/it sends 100 kb\/s of its rate of 1\.00 Mb\/s/);
    const dropping = link({ load: { ...link().load, dropped_packets: 3 } as never });
    expect(cause(asked(), 100_000, dropping)).toMatch(/drops packets: 3/);
  });
});
