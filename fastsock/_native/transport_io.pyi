"""The bytes of a connection that a loop carries. Nothing here is for Python."""
