"""A conformance kit for the asyncio layer: what holds on kernel TCP with the loop's own methods holds on the ring."""
