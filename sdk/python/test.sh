#!/usr/bin/env bash
# Tests the Python package: formatting, types, and its tests on the oldest and the newest Python that
# the lock files are for, or on what is there. The tests build and start the daemon.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

# tests VERSION LOCK [pytest's arguments] runs the tests on a version, and says so if it cannot.
tests() {
  local version=$1 lock=$2 python
  shift 2
  if ! python=$(environment "$version" "$version" "requirements/$lock"); then
    echo "sdk/python/test.sh: Python $version, or what its tests need, is not to be had here: it is SKIPPED"
    return 0
  fi
  echo "== Python $version"
  "$python" -m pytest "$@"
  last=$python
}

last=
if interpreter 3.10 >/dev/null || interpreter 3.13 >/dev/null; then
  # Wrong turns of the client are found or not whatever the version: one of them tries.
  tests 3.10 test-3.10.txt --deselect tests/test_conformance.py::test_mutation_is_found
  tests 3.13 test-3.13.txt
elif version=$(newest); then
  tests "$version" test-3.13.txt
else
  echo "sdk/python/test.sh: there is no Python from 3.10 on: the tests of the Python package are SKIPPED"
fi
if [ -n "$last" ]; then
  "$last" -m ruff format --quiet --check src tests tools bench
  "$last" -m ruff check --quiet src tests tools bench
  "$last" -m mypy
fi
