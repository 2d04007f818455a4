#!/usr/bin/env bash
# Run pytest with its temporary files in memory where there is room for them: they are many and small, and a disk takes
# a millisecond for each that is made and for each that is synced.
set -u
cd "$(dirname "$0")/.."

GIB=$((1024 * 1024))

in_memory() {
  local free memory folder
  free=$(df --output=avail /dev/shm 2>/dev/null | tail -1)
  memory=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null)
  [ "${free:-0}" -gt $((6 * GIB)) ] && [ "${memory:-0}" -gt $((12 * GIB)) ] || return 1
  folder=$(mktemp -d /dev/shm/instep-XXXXXX) || return 1
  chmod 755 "$folder" # servers of the tests run as users of their own
  printf '#!/bin/sh\nexit 0\n' > "$folder/tried" && chmod 755 "$folder/tried" && "$folder/tried" 2>/dev/null && rm "$folder/tried" \
    && echo "$folder" && return
  rm -rf "$folder"
  return 1
}

if [ -z "${TMPDIR:-}" ] && folder=$(in_memory); then
  export TMPDIR=$folder
  trap 'rm -rf "$folder"' EXIT
fi
.venv/bin/pytest "$@"
