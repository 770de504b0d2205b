#!/usr/bin/env bash
# Makes the messages of the API, src/ckptd/v1, from the .proto files. With --check it only fails if
# they are stale.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

version=$(newest) && python=$(environment generate "$version" requirements/generate.txt) || {
  echo "sdk/python/generate.sh: Python or the generator cannot be installed here: the Python code is SKIPPED"
  exit 0
}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$python" -m grpc_tools.protoc -I ../../api --python_out="$made" --pyi_out="$made" ../../api/ckptd/v1/*.proto
if [ "${1:-}" = --check ]; then
  for file in "$made"/ckptd/v1/*; do
    cmp "$file" "src/ckptd/v1/$(basename "$file")" || { echo "the messages of the Python package are stale: run make generate"; exit 1; }
  done
else
  cp "$made"/ckptd/v1/* src/ckptd/v1/
fi
