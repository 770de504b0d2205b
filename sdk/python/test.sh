#!/usr/bin/env bash
# Tests the Python package on Python 3.10 and 3.13, or else on the newest Python of this machine, and
# checks formatting and types. The tests build and start the daemon.
set -euo pipefail
cd "$(dirname "$0")"
source ./environment.sh

# tests VERSION LOCK [ARGUMENT…] runs pytest with the arguments on a version, or says why not.
tests() {
  local version=$1 lock=$2 python
  shift 2
  if ! python=$(environment "$version" "$version" "requirements/$lock"); then
    echo "sdk/python/test.sh: Python $version or its packages cannot be installed here: its tests are SKIPPED"
    return 0
  fi
  echo "== Python $version"
  "$python" -m pytest "$@"
  last=$python
}

last=
if interpreter 3.10 >/dev/null || interpreter 3.13 >/dev/null; then
  # The mutations do not depend on the version: they run on one.
  tests 3.10 test-3.10.txt --deselect tests/test_conformance.py::test_mutation_is_found
  tests 3.13 test-3.13.txt
elif version=$(newest); then
  tests "$version" test-3.13.txt
else
  echo "sdk/python/test.sh: there is no Python 3.10 or newer: the tests of the Python package are SKIPPED"
fi
if [ -n "$last" ]; then
  "$last" -m ruff format --quiet --check src tests tools bench examples
  "$last" -m ruff check --quiet src tests tools bench examples
  "$last" -m mypy
fi
