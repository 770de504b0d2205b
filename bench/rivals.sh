#!/usr/bin/env bash
# Installs the servers that the bench compares with: PostgreSQL and Redis, from Debian's packages. What is there already is
# left alone, and nothing is said. What cannot be had here is said, and is no error: that rival is skipped by name. No
# server is left running; the bench starts its own.
set -euo pipefail

has() { command -v "$1" >/dev/null 2>&1; }

# quietly runs a command and shows what it said only if it fails.
quietly() {
  local said
  said=$("$@" 2>&1) || { tail -n 5 <<<"$said" >&2; return 1; }
}

# The package's own cluster and service are not wanted.
apt() {
  has apt-get || return 1
  local root=()
  if [ "$(id -u)" != 0 ]; then
    has sudo || return 1
    root=(sudo -n)
  fi
  quietly "${root[@]}" apt-get update -qq
  quietly "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "$@"
}

postgres() { has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

postgres || apt postgresql || echo "bench/rivals.sh: PostgreSQL cannot be installed here: it is SKIPPED"
has redis-server || apt redis-server || echo "bench/rivals.sh: Redis cannot be installed here: it is SKIPPED"
