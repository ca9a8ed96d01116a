"""Receiving and sending on an endpoint, as a call of the program does."""
