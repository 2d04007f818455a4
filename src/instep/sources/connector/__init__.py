"""Connectors written for the Connector SDK as a source: a child process whose operations become segments on disk."""
