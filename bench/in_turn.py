"""Runs commands one after the other and ends at the first that fails: python in_turn.py '[["a", "b"], ...]'"""

from __future__ import annotations

import json
import subprocess
import sys

for command in json.loads(sys.argv[1]):
    code = subprocess.run(command, check=False).returncode
    if code:
        sys.exit(code)
