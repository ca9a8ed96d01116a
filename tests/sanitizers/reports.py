"""What the sanitizers' processes wrote into a folder: `reports.py FOLDER` prints it, and fails if there is anything."""

import re
import sys
from pathlib import Path

NOISE = re.compile(
    r"(ThreadSanitizer: reported \d+ warnings"  # at the end of a process, and in each of its children once more
    r"|==\d+==WARNING: ASan doesn't fully support makecontext/swapcontext functions.*"
    r"|)\n"
)


def new_reports(folder: Path, ended: bool = False) -> str:
    """The texts of all reports, which are removed with it. `ended`: nobody writes any more."""
    texts = []
    for path in sorted(folder.iterdir()):
        text = NOISE.sub("", path.read_text(errors="replace"))
        # One that is still being written is left for the next look: its last line has no end.
        if text and not text.endswith("\n") and not ended:
            continue
        with path.open("r+") as file:
            file.truncate(0)  # the process may go on and write to it
        if text.strip():
            texts.append(f"{path.name}\n{text}")
    return "\n".join(texts)


if __name__ == "__main__":
    found = new_reports(Path(sys.argv[1]), ended=True)
    print(found, end="")
    sys.exit(bool(found))
