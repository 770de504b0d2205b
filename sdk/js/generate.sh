#!/usr/bin/env bash
# Makes the messages of the API, packages/client/src/gen, from the .proto files. With --check it only
# fails if they are stale. BUF is the program buf, by default that of `make generate`.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

buf=${BUF:-$PWD/../../bin/tools/buf}
if ! environment || ! [ -x "$buf" ]; then
  echo "sdk/js/generate.sh: Node.js, its packages or buf are not there: the JavaScript code is SKIPPED"
  exit 0
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
(cd ../../api && "$buf" generate --template ../sdk/js/buf.gen.yaml -o "$made")
target=packages/client/src/gen
if [ "${1:-}" = --check ]; then
  diff -r "$made" "$target" >/dev/null || { echo "the messages of the JavaScript package are stale: run make generate"; exit 1; }
else
  rm -rf "$target"
  cp -r "$made" "$target"
fi
