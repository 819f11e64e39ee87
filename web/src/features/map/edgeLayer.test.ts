import { describe, expect, it, vi } from "vitest";

import { drawSegments, linkAt, segmentsOf, type Stroke } from "./edgeLayer";

const POSITIONS = { a: { x: 0, y: 0 }, b: { x: 100, y: 0 }, c: { x: 0, y: 100 } };
const LINKS = [
  { id: "a:to-b", from_node: "a", to_node: "b" },
  { id: "b:to-a", from_node: "b", to_node: "a" },
  { id: "a:to-c", from_node: "a", to_node: "c" },
  { id: "a:to-x", from_node: "a", to_node: "x" },
];
const VIEW = { zoom: 2, pan: { x: 10, y: 20 } };

describe("the lines of a large network", () => {
  const segments = segmentsOf(LINKS, POSITIONS);

  it("leaves out a link whose end is not known", () => {
    expect(segments.map(({ id }) => id)).toEqual(["a:to-b", "b:to-a", "a:to-c"]);
  });

  it("finds the direction that is pointed at, and nothing far from every line", () => {
    expect(linkAt(segments, VIEW, { x: 110, y: 23 })).toBe("a:to-b");
    expect(linkAt(segments, VIEW, { x: 110, y: 17 })).toBe("b:to-a");
    expect(linkAt(segments, VIEW, { x: 9, y: 120 })).toBe("a:to-c");
    expect(linkAt(segments, VIEW, { x: 110, y: 60 })).toBeNull();
    expect(linkAt(segments, VIEW, { x: 230, y: 20 })).toBeNull();
  });

  it("draws what looks the same in one stroke, the busiest on top", () => {
    const strokes: Stroke[] = [];
    const context = {
      canvas: { width: 1, height: 1 },
      strokeStyle: "",
      lineWidth: 0,
      lines: 0,
      clearRect: vi.fn(),
      setLineDash: vi.fn(),
      beginPath: vi.fn(),
      moveTo: vi.fn(),
      lineTo: vi.fn(),
      stroke() {
        strokes.push({ color: this.strokeStyle, width: this.lineWidth, dashed: false });
      },
    };
    drawSegments(context as unknown as CanvasRenderingContext2D, segments, VIEW, (id) =>
      id === "a:to-b" ? { color: "red", width: 4, dashed: false } : { color: "blue", width: 1, dashed: true },
    );
    expect(strokes.map(({ color }) => color)).toEqual(["blue", "red"]);
    expect(context.lineTo).toHaveBeenCalledTimes(3);
  });
});
