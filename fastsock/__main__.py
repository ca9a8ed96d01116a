"""`python -m fastsock`: see `fastsock.cli`."""

import sys

from fastsock.cli import main

if __name__ == "__main__":
    sys.exit(main())
