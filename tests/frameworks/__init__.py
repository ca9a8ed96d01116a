"""Programs on other people's frameworks, as real processes."""
