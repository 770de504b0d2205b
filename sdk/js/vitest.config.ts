import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    globals: true, // the validation suite of LangGraph needs it
    include: ["packages/*/test/**/*.test.ts", "test/*.test.ts"],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    maxWorkers: 2,
    reporters: ["default"],
  },
});
