"""usage: dask_end.py scheduler PORT | dask_end.py worker PORT NAME DIRECTORY"""

import sys

from distributed.cli.dask_scheduler import main as run_scheduler
from distributed.cli.dask_worker import main as run_worker

if __name__ == "__main__":
    role, port = sys.argv[1], sys.argv[2]
    sys.argv, given = ["dask"], sys.argv
    if role == "scheduler":
        run_scheduler(["--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show"])
    else:
        words = ["--host", "127.0.0.1", "--no-dashboard", "--no-nanny", "--nthreads", "1", "--memory-limit", "4GB"]
        run_worker([f"tcp://127.0.0.1:{port}", *words, "--name", given[3], "--local-directory", given[4]])
