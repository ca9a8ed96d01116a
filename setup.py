"""Builds the native part: core/ with the Cython modules on it as one shared object, and with interpose/ on it as
libfastsock.so, which programs that are not Python get by LD_PRELOAD. The rest is in pyproject.toml.

FASTSOCK_DEBUG=1 builds with the core's assertions. `build_ext --inplace` needs --force to see that it has changed.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

if not sys.platform.startswith("linux"):
    sys.exit("fastsock runs on Linux only: it needs memfd, abstract unix names, eventfd and SO_PEERCRED.")
if "t" in getattr(sys, "abiflags", ""):
    sys.exit("fastsock does not support the free-threaded build of Python yet: use the build with the GIL.")

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CPUS = len(os.sched_getaffinity(0))
MODULES = sorted(glob("fastsock/_native/*.pyx"))
CORE = sorted(glob("core/**/*.c", recursive=True))
INTERPOSE = sorted(glob("interpose/*.c"))
HEADERS = [*glob("core/**/*.h", recursive=True), *glob("interpose/*.h"), "interpose/exports.map"]
READ = [*HEADERS, *glob("fastsock/_native/*.p*")]  # a change in any rebuilds everything
# Hidden: functions of the core call each other directly, and nobody else's library can come between.
# A turn to send is no turn to receive (core/ring/ring.h): who passes the wrong one gets no extension.
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wno-unused-function", "-fvisibility=hidden"]
FLAGS += ["-Werror=incompatible-pointer-types"]
DEBUG = ["-DFS_DEBUG", "-UNDEBUG"]
# Python's own flags ask for all debug information, two thirds of the file. For a traceback lines suffice; who wants
# more, or none, says so in CFLAGS.
LINES = [] if "-g" in os.environ.get("CFLAGS", "") or os.environ.get("FASTSOCK_DEBUG") == "1" else ["-g1"]


LIBRARY = "libfastsock"


class BuildInParallel(build_ext):
    """The compiler would take the files of an extension one after the other, and those of the core once for each."""

    def build_extensions(self) -> None:
        compile_in_turn = self.compiler.compile
        compiled: dict[str, list[str]] = {}

        def compile_files(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(CPUS) as pool:
                fresh = [source for source in sources if source not in compiled]
                objects = pool.map(lambda source: compile_in_turn([source], **options), fresh)
                compiled.update(zip(fresh, objects, strict=True))
                return [name for source in sources for name in compiled[source]]

        self.compiler.compile = compile_files
        super().build_extensions()

    def get_ext_filename(self, name: str) -> str:
        """The library is no module of Python's, and is named as a library."""
        parts = name.split(".")
        return os.path.join(*parts) + ".so" if parts[-1] == LIBRARY else super().get_ext_filename(name)


def native() -> Extension:
    """Each module is transpiled under its own name, which its PyInit function bears; fastsock._native finds them."""
    modules = cythonize(
        [Extension(f"fastsock._native.{Path(path).stem}", [path]) for path in MODULES],
        nthreads=CPUS,
        compiler_directives={"language_level": "3", "auto_pickle": False},  # nothing here can be pickled
    )
    return Extension(
        "fastsock._native._core",
        [source for module in modules for source in module.sources] + CORE,
        include_dirs=["core"],
        depends=READ,
        extra_compile_args=FLAGS + LINES + (DEBUG if os.environ.get("FASTSOCK_DEBUG") == "1" else []),
        libraries=["pthread"],
    )


def library() -> Extension:
    """What the library shows is what the C library shows: interpose/exports.map."""
    return Extension(
        f"fastsock.{LIBRARY}",
        INTERPOSE + CORE,
        include_dirs=["core/include", "core", "interpose"],
        depends=READ,
        extra_compile_args=FLAGS + LINES + (DEBUG if os.environ.get("FASTSOCK_DEBUG") == "1" else []),
        extra_link_args=["-Wl,--version-script=interpose/exports.map", "-Wl,-z,now", f"-Wl,-soname,{LIBRARY}.so"],
        libraries=["pthread", "dl"],
    )


setup(ext_modules=[native(), library()], cmdclass={"build_ext": BuildInParallel})
