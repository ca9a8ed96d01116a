"""A visualization server as a pipeline of filters, a process for each copy, on plain sockets: DataCutter's model.

Fetches an image of so many bytes, block by block, then single blocks, as a user does who moves the window a little.
Prints one line of JSON. An ordinary program; it does not know about fastsock.
"""

from __future__ import annotations

import argparse
import json
from statistics import median

from pipeline import Pipeline, Stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--image", type=int, default=16 << 20, help="bytes of an image (default: 16 MiB)")
    parser.add_argument("--block", type=int, default=64 << 10, help="bytes of a block (default: 64 KiB)")
    parser.add_argument("--copies", type=int, default=1, help="of each filter")
    parser.add_argument("--schedule", choices=("round-robin", "demand"), default="round-robin")
    parser.add_argument("--nanoseconds", type=float, default=0.0, help="of computing for each byte, in each filter")
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--partial", type=int, default=50, help="single blocks to fetch")
    options = parser.parse_args()
    stages = [Stage(name, options.copies, options.nanoseconds) for name in ("repository", "transform", "transform")]
    with Pipeline(stages, options.block, options.schedule) as pipeline:
        blocks = range(-(-options.image // options.block))
        images = [pipeline.query(blocks) for _ in range(options.images)]
        partial = [pipeline.query(range(n, n + 1)) for n in range(options.partial)]
    print(json.dumps({
        "blocks": len(blocks) * options.images + options.partial,
        "image_seconds": round(median(images), 6),
        "block_seconds": round(median(partial), 6) if partial else None,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
