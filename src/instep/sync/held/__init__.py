"""Values and rows in quarantine: found, let go, put back."""
