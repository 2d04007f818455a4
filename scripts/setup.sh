#!/usr/bin/env bash
# Makes .venv from the lock file, checks Java and fetches the pinned jars. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "setup: $*" >&2; }
die() { say "$@"; exit 1; }

install_debian() { # PACKAGE...: only as root and with apt
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  say "installing $* from Debian"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null
}

python=${PYTHON:-}
if [ -z "$python" ]; then
  for candidate in python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null &&
       "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
      python=$candidate; break
    fi
  done
fi
[ -n "$python" ] || die "Python 3.11 to 3.13 is needed: install it (Debian: apt-get install python3 python3-venv) or set PYTHON=/path/to/python"

if [ ! -x .venv/bin/pip ]; then
  rm -rf .venv
  "$python" -m venv .venv 2>/dev/null || {
    rm -rf .venv
    install_debian python3-venv && "$python" -m venv .venv
  } || die "cannot make a virtual environment: apt-get install python3-venv, then run this again"
fi
say "installing the locked dependencies (the first time takes a minute or two)"
.venv/bin/pip install -q --require-hashes -r requirements.lock
.venv/bin/pip install -q --no-deps -e .

java_major() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE '1s/.*version "([0-9]+).*/\1/p'; }
if [ "$(java_major || echo 0)" -lt 17 ] 2>/dev/null || [ -z "$(java_major || true)" ]; then
  install_debian openjdk-17-jre-headless || die "Java 17 or newer is needed: apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
fi
.venv/bin/python -m instep.spark.jars
say "ready"
