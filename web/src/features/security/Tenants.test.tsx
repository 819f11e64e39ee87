import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Tenant } from "../../api/types";
import { renderInApp, stubGateway } from "../../shared/samples";
import { endsOf, endText } from "./tenantEnds";
import { Tenants } from "./Tenants";

const SHOP: Tenant = {
  id: "shop",
  revision: 4,
  description: "Web shop",
  members: ["frontend"],
  namespaces: ["shop"],
  ends: [{ node: null, prefix: "10.4.0.0/16", protocol: "tcp", ports: "8000-8099", cgroup_id: null }],
};
const DEFAULT: Tenant = {
  id: "default",
  revision: 1,
  description: "",
  members: [],
  namespaces: [],
  ends: [],
};

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("ends of flows", () => {
  it("read as they are written", () => {
    const text = "prefix=10.4.0.0/16,protocol=tcp,ports=8000-8099\nnode=bravo,cgroup=77";
    const ends = endsOf(text);
    expect(ends).toEqual([
      { prefix: "10.4.0.0/16", protocol: "tcp", ports: "8000-8099" },
      { node: "bravo", cgroup_id: 77 },
    ]);
    expect(ends?.map(endText).join("\n")).toBe(text);
    expect(endsOf("\n")).toEqual([]);
  });

  it.each(["ports=80", "prefix", "node=a,protocol=icmp", "node=a,cgroup=x", "node=a,colour=red"])(
    "are refused: %s",
    (line) => {
      expect(endsOf(line)).toBeNull();
    },
  );
});

describe("tenants", () => {
  it("are listed and changed at the revision that was shown", async () => {
    let sent: unknown;
    vi.stubGlobal(
      "fetch",
      vi.fn(
        stubGateway({
          "GET /v1/tenants": () => ({ status: 200, body: { items: [DEFAULT, SHOP] } }),
          "PUT /v1/tenants/shop": (body) => {
            sent = body;
            return { status: 200, body: SHOP };
          },
        }),
      ),
    );
    const user = userEvent.setup();
    renderInApp(<Tenants />);
    expect(await screen.findByText("prefix=10.4.0.0/16,protocol=tcp,ports=8000-8099")).toBeInTheDocument();
    expect(screen.getByText("who belongs to no other")).toBeInTheDocument();
    expect(screen.queryByRole("button", { name: "Delete default" })).toBeNull();
    await user.click(screen.getByRole("button", { name: "Change shop" }));
    const owns = await screen.findByRole("textbox", { name: "Owns" });
    await user.clear(owns);
    await user.type(owns, "node=alpha");
    await user.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toEqual({
        description: "Web shop",
        members: ["frontend"],
        namespaces: ["shop"],
        ends: [{ node: "alpha" }],
      });
    });
  });
});
