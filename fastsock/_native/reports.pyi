"""What is told of connections: where one stands, and what they counted."""
