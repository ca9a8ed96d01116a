"""Messages: groups and what they guarantee."""
