"""Detection of genuine PostgreSQL.

What only speaks its protocol, or stores rows in its own way, may give the numbers of row versions and of transactions
another meaning.
"""

from __future__ import annotations

import re

GENUINE = re.compile(
    r"PostgreSQL \d+(\.\d+)?( \((Debian|Ubuntu|Homebrew|Postgres\.app)[^()]*\))?( on [^(), ]+)?"
    r", compiled by [^,]+, (32|64)-bit"
)
"""The text of `version()` of PostgreSQL as it is released: others put their name or their number somewhere in it."""
DIFFERS = """(EXISTS (SELECT FROM pg_proc WHERE proname IN ('aurora_version', 'citus_version'))
  OR EXISTS (SELECT FROM pg_settings WHERE name ~ '^(alloydb|aurora|citus|neon|polar|yb)[._]'))"""
"""An SQL condition that is true of others."""
