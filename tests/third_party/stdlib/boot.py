"""What the `.pth` file of a throw-away environment imports: patches before anything else is imported.

Stands in site-packages as `fastsock_oracle`, next to `fastsock_oracle.json`: the settings to patch with, and the
directory for what each process tells. Settings are no variables of the environment, which tests clear for children.

A process tells each connection that takes the ring at once, as a byte of the file named by its number, since it may be
killed; what else `fastsock.stats()` says, it tells when it exits in order.
"""

import atexit
import json
import os
from collections.abc import Mapping
from typing import Any


def start() -> None:
    with open(os.path.splitext(__file__)[0] + ".json", encoding="utf-8") as file:
        asked = json.load(file)
    directory = asked["directory"]
    system_open, system_write, system_close = os.open, os.write, os.close

    import attrs

    import fastsock
    from fastsock import observability

    def note_moved(what: str, values: Mapping[str, Any]) -> None:
        if what != "fastsock.path" or values["path"] != "ring":
            return
        name = f"{directory}/{os.getpid()}.ring"
        fd = system_open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        system_write(fd, b".")
        system_close(fd)

    def note_stats(process: int) -> None:
        if os.getpid() == process:
            with open(f"{directory}/{process}.json", "w", encoding="utf-8") as file:
                json.dump(attrs.asdict(fastsock.stats()), file, default=dict)

    observability.recorder = note_moved
    atexit.register(note_stats, os.getpid())
    fastsock.patch(**asked["settings"])


start()
