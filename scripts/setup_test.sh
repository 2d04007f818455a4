#!/usr/bin/env bash
# What only the tests need: a MariaDB server, sshd and PgBouncer. Without them their tests say that they are skipped.
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
