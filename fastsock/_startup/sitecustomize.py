"""Imported by `site` at the start of every Python process below `fastsock run`; see `fastsock._startup`.

Any interpreter that such a program starts runs this file, including Python 2 and interpreters without fastsock. So the
syntax is old on purpose, errors are not raised, and afterwards the process looks as if this file did not exist.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def start():
    # type: () -> None
    """Patches this process. An interpreter that cannot import fastsock is served by the library alone."""
    if sys.version_info < (3, 10):  # noqa: UP036 - may be any interpreter
        serve_by_library()
        return
    try:
        import importlib.util

        if importlib.util.find_spec("fastsock") is None:
            # fastsock was on the sys.path of the parent only, as in a checkout: use the copy that contains this file.
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
            serve_by_library()
        elif sys.stderr is not None:
            sys.stderr.write("fastsock: not patched: {}\n".format(error))  # noqa: UP032 - old syntax


def serve_by_library():
    # type: () -> None
    """Puts the library in front of this interpreter's calls, as `fastsock run --libc` does; says why if it cannot."""
    try:
        import ctypes

        library = ctypes.CDLL(os.path.join(os.path.dirname(HERE), "libfastsock.so"))
        library.fs_libc_run.restype = ctypes.c_char_p
        file = os.environ.pop("FASTSOCK_RUN_STATS", None)
        why = library.fs_libc_run(file if file is None or isinstance(file, bytes) else file.encode())
    except Exception as error:
        why = str(error).encode()
    if why is not None and sys.stderr is not None:
        sys.stderr.write("fastsock: this Python stays with the kernel: {}\n".format(why.decode()))  # noqa: UP032


def chain():
    # type: () -> None
    """Imports the `sitecustomize` that this file hides, and puts it in our place.

    Raises ImportError if there is none, as `site` expects.
    """
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    ours = sys.modules.pop("sitecustomize")
    __import__("sitecustomize")
    del ours  # until here: Python 2 clears the globals of a module without references while its code runs


if __name__ == "sitecustomize":
    if os.environ.get("FASTSOCK_RUN") == "1":
        start()
    chain()
