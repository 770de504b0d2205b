#!/usr/bin/env bash
# Makes the messages of the API, src/ckptd/v1, from the .proto files, and the sync client from the
# async one. With --check it only says what is not current.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

version=$(newest) && python=$(environment generate "$version" requirements/generate.txt) || {
  echo "sdk/python/generate.sh: Python, or the generator, is not to be had here: it is SKIPPED"
  exit 0
}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
"$python" -m grpc_tools.protoc -I ../../api --python_out="$made" --pyi_out="$made" ../../api/ckptd/v1/*.proto
if [ "${1:-}" = --check ]; then
  for file in "$made"/ckptd/v1/*; do
    cmp "$file" "src/ckptd/v1/$(basename "$file")" || { echo "the messages of the Python package are not current: make generate"; exit 1; }
  done
else
  cp "$made"/ckptd/v1/* src/ckptd/v1/
fi
