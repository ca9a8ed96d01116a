"""Builds the native core. Everything else about the package is in pyproject.toml."""

import sys
from glob import glob

if not sys.platform.startswith("linux"):
    sys.exit("fastsock runs on Linux only: it needs memfd, abstract unix names, eventfd and SO_PEERCRED.")
if "t" in getattr(sys, "abiflags", ""):
    sys.exit("fastsock needs CPython with its global interpreter lock: it does not run on the free-threaded build yet.")

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = glob("fastsock/_native/*.[hp]*")  # headers, .pxd and .pxi: a change in any rebuilds everything


def native(name: str) -> Extension:
    return Extension(
        f"fastsock._native.{name}",
        [f"fastsock/_native/{name}.pyx"],
        depends=SOURCES,
        extra_compile_args=["-std=gnu11", "-O2", "-Wall", "-Wno-unused-function"],
        libraries=["pthread"],
    )


setup(
    ext_modules=cythonize(
        [native(name) for name in ("vi", "calls", "connector", "aio")],
        compiler_directives={"language_level": "3"},
    )
)
