"""Programs that nobody here wrote, as real processes: plain, under `fastsock run`, and one end each way."""
