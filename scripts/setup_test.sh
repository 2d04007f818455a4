#!/usr/bin/env bash
# What only the tests need: a MariaDB server, Chromium, sshd, PgBouncer, bubblewrap, an S3 and an Azure server, a REST catalog and hadolint. Without them their tests say that they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=.cache/programs

if ! command -v mariadbd >/dev/null && [ ! -x /usr/sbin/mariadbd ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing mariadb-server from Debian" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server; } >/dev/null
  else
    echo "setup: no MariaDB server here, its tests are skipped: apt-get install mariadb-server" >&2
  fi
fi

if ! command -v chromium >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing chromium from Debian" >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null
  else
    echo "setup: no Chromium here, the tests of the page are skipped: apt-get install chromium" >&2
  fi
fi

# By npm, each package with the pinned content; beside the rest, for its minute is mostly waiting.
azure_server() {
  local place="$programs/azure" lock=scripts/azure_server/package-lock.json
  [ "$(cat "$place/.made" 2>/dev/null)" != "$(sha256sum <"$lock")" ] || return 0
  echo "setup: fetching an Azure server (Azurite)" >&2
  rm -rf "$place" && mkdir -p "$place" && cp scripts/azure_server/package*.json "$place"
  if command -v npm >/dev/null &&
    (cd "$place" && npm ci --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error) >/dev/null 2>&1; then
    sha256sum <"$lock" >"$place/.made"
  else
    echo "setup: no Azure server here (it takes npm), its tests are skipped" >&2
  fi
}
azure_server &
azure=$!

# Unpacked, not installed: nothing is started, no user is made and no right is needed.
packages="openssh-server libwrap0 pgbouncer libc-ares2 libevent-2.1-7 bubblewrap"
if [ ! -x "$programs/usr/sbin/sshd" ] || [ ! -x "$programs/usr/sbin/pgbouncer" ] || [ ! -x "$programs/usr/bin/bwrap" ]; then
  mkdir -p "$programs/packages"
  echo "setup: unpacking openssh-server, pgbouncer and bubblewrap from Debian" >&2
  # shellcheck disable=SC2086  # names without blanks
  if ! (cd "$programs/packages" && apt-get -qq download $packages) >/dev/null 2>&1; then
    [ "$(id -u)" != 0 ] || apt-get update -qq >/dev/null 2>&1 || true
    # shellcheck disable=SC2086
    (cd "$programs/packages" && apt-get -qq download $packages) >/dev/null 2>&1 ||
      echo "setup: no openssh-server, pgbouncer and bubblewrap here, their tests are skipped" >&2
  fi
  for package in "$programs"/packages/*.deb; do
    [ ! -e "$package" ] || dpkg -x "$package" "$programs"
  done
fi

# made NAME WHAT MISSING: an environment with what scripts/NAME.lock names, made anew when the lock is another one.
made() {
  local place="$programs/${1%_server}" lock="scripts/$1.lock"
  [ "$(cat "$place/.made" 2>/dev/null)" != "$(sha256sum <"$lock")" ] || return 0
  echo "setup: making an environment with $2" >&2
  rm -rf "$place"
  if .venv/bin/python -m venv "$place" &&
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$place/bin/pip" install -q --require-hashes -r "$lock"; then
    sha256sum <"$lock" >"$place/.made"
  else
    echo "setup: no $3" >&2
  fi
}

# In an environment of its own: what it needs is older than what the product needs.
made s3_server "an S3 server (moto)" "S3 server here, its tests are skipped"
# A tool under the GPL that is run and never shipped: apart from all that is.
made hadolint hadolint "hadolint here, its test is skipped"

# Jars by Maven, each with the pinned content: Iceberg's own REST catalog, which it tests its clients with.
pinned() { (cd "$programs/rest" 2>/dev/null && sha256sum --status -c -) <scripts/rest_catalog.sha256; }
if ! pinned; then
  echo "setup: fetching Iceberg's REST catalog (20 MB)" >&2
  rm -rf "$programs/rest"
  command -v mvn >/dev/null && mvn -q -B -C -f scripts/rest_catalog.xml dependency:copy-dependencies \
    "-DoutputDirectory=$PWD/$programs/rest" >/dev/null 2>&1 && pinned ||
    echo "setup: no REST catalog here (it takes mvn), its tests are skipped" >&2
fi

wait "$azure"
