"""What one runs to look at fastsock at work: doctor, ss, top, bench. No program that uses fastsock loads any of it."""
