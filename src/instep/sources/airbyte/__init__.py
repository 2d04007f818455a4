"""Connectors that speak Airbyte's protocol: their messages become the operations that our own connectors send."""
