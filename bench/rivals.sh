#!/usr/bin/env bash
# Installs the servers that the bench compares ckptd with, PostgreSQL and Redis, from Debian's
# packages. It skips installed ones silently. It names those that cannot be installed here, but that
# isn't an error: such a rival is skipped by name. No server is left running; the bench starts its own.
set -euo pipefail

has() { command -v "$1" >/dev/null 2>&1; }

# quietly runs a command and shows its output only if it fails.
quietly() {
  local said
  said=$("$@" 2>&1) || { tail -n 5 <<<"$said" >&2; return 1; }
}

# RUNLEVEL=1 keeps the package's own cluster and service from starting.
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
