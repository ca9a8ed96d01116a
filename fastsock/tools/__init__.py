"""The commands doctor, ss, top and bench. Programs that use fastsock do not load these modules."""
