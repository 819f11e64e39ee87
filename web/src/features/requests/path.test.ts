import { expect, it } from "vitest";

import { link } from "../../shared/samples";
import { pathLabel } from "./path";

const LINKS = [link(), link({ id: "b:to-c", from_node: "b", to_node: "c" })];

it("names the nodes of a path", () => {
  expect(pathLabel(["a:to-b", "b:to-c"], LINKS)).toBe("a → b → c");
  expect(pathLabel([], LINKS)).toBe("");
});

it("keeps the id of a link that is gone", () => {
  expect(pathLabel(["a:to-b", "b:wan0"], LINKS)).toBe("a → b → b:wan0");
});
