#!/usr/bin/env bash
# What only the tests need: a MariaDB server. Without the right to install it, its tests say that they are skipped.
set -euo pipefail
command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing mariadb-server from Debian" >&2
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mariadb-server; } >/dev/null
else
  echo "setup: no MariaDB server here, its tests are skipped: apt-get install mariadb-server" >&2
fi
