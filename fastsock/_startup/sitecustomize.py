"""What `site` imports at the start of every Python process below `fastsock run`; see `fastsock._startup`.

Whatever interpreter such a program starts comes through here, Python 2 and ones without fastsock included:
the syntax is old on purpose, nothing that goes wrong with us is raised, and afterwards the process looks as
if this file had never been there.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def start():
    # type: () -> None
    """Patch this process; without a word when this interpreter cannot import fastsock."""
    if sys.version_info < (3, 10):  # noqa: UP036 - not fastsock's interpreter, necessarily
        return
    try:
        import importlib.util

        if importlib.util.find_spec("fastsock") is None:
            # Only the sys.path of the parent reached it, as in a checkout: take the copy this file is in.
            package = os.path.dirname(HERE)
            spec = importlib.util.spec_from_file_location(
                "fastsock", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
            )
            assert spec is not None
            assert spec.loader is not None
            sys.modules["fastsock"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules["fastsock"])
        from fastsock import _startup

        _startup.start()
    except Exception as error:
        if isinstance(error, ImportError):
            for name in [name for name in sys.modules if name.partition(".")[0] == "fastsock"]:
                del sys.modules[name]
        elif sys.stderr is not None:
            sys.stderr.write("fastsock: not patched: {}\n".format(error))  # noqa: UP032 - old syntax


def chain():
    # type: () -> None
    """Import the `sitecustomize` this file hides, if there is one, in our place.

    If there is none, this raises the ImportError that `site` takes for just that.
    """
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    ours = sys.modules.pop("sitecustomize")
    __import__("sitecustomize")
    del ours  # held until here: Python 2 empties a module that nobody holds while it still runs


if __name__ == "sitecustomize":
    if os.environ.get("FASTSOCK_RUN") == "1":
        start()
    chain()
