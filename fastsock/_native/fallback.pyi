"""The Python part of the fallback to kernel TCP: unread data of a transport, and a bridge behind the descriptors."""
