#!/usr/bin/env bash
# Tests the JavaScript packages: builds the programs that they need, installs the locked packages,
# checks the types, and runs the tests.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

if ! environment; then
  echo "sdk/js/test.sh: Node.js 20 or newer, or its packages, cannot be installed here: the tests of the JavaScript packages are SKIPPED"
  exit 0
fi
mkdir -p ../../bin/js
(cd ../.. && CGO_ENABLED=0 go build -o bin/js/ckptd ./cmd/ckptd)
(cd ../.. && CGO_ENABLED=0 go build -o bin/js/conformance ./internal/conformance/serve)
[ ! -x "${BUF:-../../bin/tools/buf}" ] || ./generate.sh --check
# node_modules/.bin, because npx asks the registry for what is not there.
node_modules/.bin/tsc -b
CKPTD_JS_BUILT=1 node_modules/.bin/vitest run "$@"
