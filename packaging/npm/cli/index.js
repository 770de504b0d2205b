import { createRequire } from "node:module";

const require = createRequire(import.meta.url);

// npm installs the one of these packages whose os and cpu are those of the machine.
const packages = Object.keys(require("./package.json").optionalDependencies);

export function program() {
  const name = `@ckptd/cli-${process.platform}-${process.arch}`;
  if (!packages.includes(name)) {
    throw new Error(`there is no package of ckptd for ${process.platform} on ${process.arch}: build it with Go`);
  }
  try {
    return require.resolve(`${name}/bin/ckptd${process.platform === "win32" ? ".exe" : ""}`);
  } catch {
    throw new Error(`the package ${name} is missing: install @ckptd/cli again, with optional dependencies and on this machine`);
  }
}
