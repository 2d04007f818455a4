"""What those who run a server look at: metrics, retention, and the doctor."""
