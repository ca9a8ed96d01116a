"""One test body, run on kernel TCP and on the ring: what differs is a defect of the ring."""
