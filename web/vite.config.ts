import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const gateway = process.env.CHART_SERVER ?? "http://127.0.0.1:18080";

export default defineConfig({
  plugins: [react()],
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
    include: ["src/**/*.test.{ts,tsx}"],
    setupFiles: ["src/shared/testSetup.ts"],
  },
});
