import { describe, expect, it } from "vitest";

import { isAt, PAGES, pagesFor } from "./actions";

const at = (pathname: string) => PAGES.filter((page) => isAt(page, pathname)).map((page) => page.id);

describe("the actions", () => {
  it("have each an id, an address and a letter of its own", () => {
    for (const what of ["id", "to", "letter", "label"] as const)
      expect(new Set(PAGES.map((page) => page[what])).size).toBe(PAGES.length);
  });

  it("leave out what a role may not see", () => {
    const seen = (role: "viewer" | "operator" | "application") => pagesFor([role]).map((page) => page.id);
    expect(seen("operator")).toEqual(PAGES.map((page) => page.id));
    expect(seen("viewer")).not.toContain("audit");
    expect(seen("application")).not.toContain("audit");
    expect(seen("application")).toContain("requests");
    expect(pagesFor([]).map((page) => page.id)).not.toContain("audit");
  });

  it("know the page of an address", () => {
    expect(at("/")).toEqual(["overview"]);
    expect(at("/links/a%3Ato-b")).toEqual(["network"]);
    expect(at("/requests/r1")).toEqual(["requests"]);
    expect(at("/requestsx")).toEqual([]);
  });
});
