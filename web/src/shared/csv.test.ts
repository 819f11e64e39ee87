import { describe, expect, it } from "vitest";

import { toCsv } from "./csv";

describe("a table as CSV", () => {
  it("quotes what must be quoted and leaves out what is not known", () => {
    expect(
      toCsv(
        ["Link", "Mb/s"],
        [
          ['a "b", c', 1.5],
          [null, undefined],
          ["two\nlines", -3],
        ],
      ),
    ).toBe('Link,Mb/s\r\n"a ""b"", c",1.5\r\n,\r\n"two\nlines",-3\r\n');
  });

  it("lets no description become a formula", () => {
    expect(toCsv(["x"], [["=1+1"], ["@cmd"], ["-x"]])).toBe("x\r\n'=1+1\r\n'@cmd\r\n'-x\r\n");
  });
});
