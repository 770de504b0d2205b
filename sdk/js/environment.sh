# Sourced by test.sh and generate.sh: installs the locked packages.

# environment installs the packages, unless the current ones are there. It fails without Node.js 20
# or newer.
environment() {
  node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)' 2>/dev/null || return 1
  cmp -s package-lock.json node_modules/.ckptd-lock && return
  npm ci --no-progress --loglevel=error >&2 && cp package-lock.json node_modules/.ckptd-lock
}
