import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const gateway = process.env.CHART_SERVER ?? "http://127.0.0.1:18080";

/** Beside every script and stylesheet its compressed form, which the gateway serves to whoever takes it. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    writeBundle: ({ dir = "dist" }) => {
      const folder = join(dir, "assets");
      for (const name of readdirSync(folder)) {
        if (!/\.(js|css)$/.test(name)) continue;
        const path = join(folder, name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  plugins: [react(), compressed()],
  build: {
    rollupOptions: {
      output: {
        // The graph library is only needed by the map; charts only by link pages.
        manualChunks: (id: string) => {
          if (id.includes("node_modules/cytoscape")) return "graph";
          if (id.includes("node_modules/uplot")) return "charts";
          return undefined;
        },
      },
    },
  },
  server: { proxy: { "/v1": gateway, "/auth": gateway, "/dev-issuer": gateway } },
  test: {
    environment: "jsdom",
    // A deadline, not a measurement: components render slowly while both cores are busy.
    testTimeout: 30_000,
    include: ["src/**/*.test.{ts,tsx}", "tests/**/*.test.ts"],
    setupFiles: ["src/shared/testSetup.ts"],
  },
});
