"""What the `.pth` file of a throw-away environment imports: patches before anything else is imported.

Stands in site-packages as `fastsock_oracle`, next to `fastsock_oracle.json`: the settings to patch with, and the
directory for what each process tells. Settings are no variables of the environment, which tests clear for children.

A process tells what `fastsock.stats()` says when it exits in order.
"""

import atexit
import json
import os


def start() -> None:
    with open(os.path.splitext(__file__)[0] + ".json", encoding="utf-8") as file:
        asked = json.load(file)
    directory = asked["directory"]

    import attrs

    import fastsock

    def note_stats(process: int) -> None:
        if os.getpid() == process:
            with open(f"{directory}/{process}.json", "w", encoding="utf-8") as file:
                json.dump(attrs.asdict(fastsock.stats()), file, default=dict)

    atexit.register(note_stats, os.getpid())
    fastsock.patch(**asked["settings"])


start()
