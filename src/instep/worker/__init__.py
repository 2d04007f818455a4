"""The worker: one process claims queued jobs and watches, and one process per lane runs them."""
