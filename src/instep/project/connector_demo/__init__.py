"""A connector whose records change shape from day to day: `make connector-demo`."""
