import { describe, expect, it } from "vitest";

import type { Link } from "../../api/types";
import { link, node } from "../../shared/samples";
import { layoutPositions } from "./layout";

const both = (a: string, b: string): Link[] => [
  link({ id: `${a}:to-${b}`, from_node: a, to_node: b }),
  link({ id: `${b}:to-${a}`, from_node: b, to_node: a }),
];

describe("positions on the map", () => {
  it("draws a chain as a line, in its order", () => {
    const nodes = ["delta", "bravo", "alpha", "charlie"].map((id) => node(id));
    const links = [...both("bravo", "charlie"), ...both("alpha", "bravo"), ...both("charlie", "delta")];
    const at = layoutPositions(nodes, links);
    const order = Object.keys(at).sort((a, b) => (at[a]?.x ?? 0) - (at[b]?.x ?? 0));
    expect(order).toEqual(["alpha", "bravo", "charlie", "delta"]);
    expect(new Set(Object.values(at).map(({ y }) => y)).size).toBe(1);
  });

  it("keeps every node apart, whatever the order of the answer", () => {
    const ids = ["s1", "s2", "left", "right", "r1", "r2", "alone"];
    const links = [
      ...["s1", "s2"].flatMap((id) => both(id, "left")),
      ...both("left", "right"),
      ...["r1", "r2"].flatMap((id) => both("right", id)),
    ];
    const at = layoutPositions(
      ids.map((id) => node(id)),
      links,
    );
    expect(new Set(Object.values(at).map(({ x, y }) => `${x} ${y}`)).size).toBe(ids.length);
    expect(layoutPositions(ids.map((id) => node(id)).reverse(), [...links].reverse())).toEqual(at);
  });

  it("obeys the operator", () => {
    const at = layoutPositions([node("a", { map_position: { x: 0.5, y: 1 } })], []);
    expect(at.a).toEqual({ x: 550, y: 420 });
  });
});
