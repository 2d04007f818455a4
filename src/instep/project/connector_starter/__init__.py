"""The connector that `instep connector init` writes."""
