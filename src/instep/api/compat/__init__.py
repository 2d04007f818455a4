"""The management API whose clients and scripts exist already, under `/v1`."""
