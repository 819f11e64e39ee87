import eslint from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

export default tseslint.config(
  // The generated client is checked by the generator; dist is built; node runs report.mjs as it is, without types.
  {
    ignores: [
      "dist",
      "src/api/schema.d.ts",
      "eslint.config.js",
      "postcss.config.cjs",
      "test-results",
      "tests/report.mjs",
    ],
  },
  eslint.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: { parserOptions: { projectService: true } },
    plugins: { "react-hooks": hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      // Numbers in labels are meant to be printed.
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
);
