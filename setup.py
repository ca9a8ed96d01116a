"""Builds the native part: libfastsock.so from core/ and interpose/, the launcher, and the Cython modules as one
extension on the library.

So a process has one core, whether the library came by LD_PRELOAD or by an import. Where musl-gcc is found, the folder
musl/ has a library for programs of musl, and a launcher that needs no C library. The rest is in pyproject.toml.

FASTSOCK_MUSL=0 builds nothing of musl. FASTSOCK_DEBUG=1 builds with the core's assertions. `build_ext --inplace`
needs --force to see that it has changed.
"""

import hashlib
import os
import shutil
import subprocess
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
HEADERS = [
    *glob("core/**/*.h", recursive=True),
    *glob("interpose/*.h"),
    *glob("fastsock/_native/*.h"),
    "interpose/exports.map",
]
READ = [*HEADERS, *glob("fastsock/_native/*.p*")]  # a change in any rebuilds everything
# A turn to send is no turn to receive (core/ring/ring.h): who passes the wrong one gets no extension. (GCC 14 and later
# take both for errors.)
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wno-unused-function"]
FLAGS += ["-Werror=incompatible-pointer-types", "-Werror=implicit-function-declaration"]
FLAGS += ["-fdata-sections"]  # and --sort-section: small variables share pages, which each forked child copies
# A thread of the program, or its signal handler, may have a small stack. (A sanitizer takes more.)
HERE = f"-ffile-prefix-map={Path.cwd()}=."
FRAMES = ["-Werror=frame-larger-than=512"] if "-fsanitize" not in os.environ.get("CFLAGS", "") else []
DEBUG = ["-DFS_DEBUG", "-UNDEBUG"]
# Python's own flags ask for all debug information, two thirds of the file. For a traceback lines suffice; who wants
# more, or none, says so in CFLAGS.
LINES = [] if "-g" in os.environ.get("CFLAGS", "") or os.environ.get("FASTSOCK_DEBUG") == "1" else ["-g1"]
LINK = ["-Wl,-z,now", "-Wl,-z,nodelete", "-Wl,-Bsymbolic", "-Wl,--sort-section=alignment"]
LIBRARY, LAUNCHER, OF_MUSL = "libfastsock", "fastsock-run", "libfastsock-musl"


def build_of() -> str:
    """Identifies what the library and the extension must have in common: the headers, and how they are compiled."""
    headers = sorted([*glob("core/**/*.h", recursive=True), "interpose/libc_front.h"])
    read = b"".join(Path(name).read_bytes() for name in headers)
    return hashlib.sha256(read + (os.environ.get("FASTSOCK_DEBUG") or "").encode()).hexdigest()[:16]


class BuildInParallel(build_ext):
    """The compiler would take the files of an extension one after the other."""

    def build_extensions(self) -> None:
        compile_in_turn = self.compiler.compile

        def compile_files(sources: list[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(CPUS) as pool:
                made = pool.map(lambda source: compile_in_turn([source], **options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = compile_files
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """The extension is linked to the library, which is built before it. The others have scripts of their own."""
        if ext.name.endswith((LAUNCHER, OF_MUSL)):
            made = Path(self.get_ext_fullpath(ext.name))
            musl = "musl" in ext.name
            script = "interpose/compile" if ext.name.endswith(OF_MUSL) else "launcher/compile"
            words = [script, f"{self.build_temp}/{ext.name}", "-g0", "-s", HERE]
            if musl and script == "launcher/compile":
                words.append("-static")
            subprocess.check_call(words, env={**os.environ, **({"CC": "musl-gcc"} if musl else {})})
            for folder in (made.parent, Path("fastsock/musl")) if musl else (made.parent,):  # (of a build in place)
                folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(f"{words[1]}/{made.name.replace('-musl', '')}", made)
            return
        if not ext.name.endswith(LIBRARY):
            made = self.get_ext_fullpath(f"fastsock.{LIBRARY}")
            ext.extra_link_args = [*ext.extra_link_args, made]
            ext.depends = [*ext.depends, made]
        super().build_extension(ext)

    def get_ext_filename(self, name: str) -> str:
        """The library is no module of Python's, and is named as a library."""
        parts = name.split(".")
        if parts[-1] in (LIBRARY, LAUNCHER, OF_MUSL):
            return os.path.join(*parts) + (".so" if parts[-1] != LAUNCHER else "")
        return super().get_ext_filename(name)


def flags() -> list[str]:
    return [
        *FLAGS,
        HERE,
        *LINES,
        f'-DFS_BUILD="{build_of()}"',
        *(DEBUG if os.environ.get("FASTSOCK_DEBUG") == "1" else []),
    ]


def native() -> Extension:
    """Each module is transpiled under its own name, which its PyInit function bears; fastsock._native finds them.

    Calls of the core go through its addresses, without a jump between (-fno-plt)."""
    modules = cythonize(
        [Extension(f"fastsock._native.{Path(path).stem}", [path]) for path in MODULES],
        nthreads=CPUS,
        compiler_directives={"language_level": "3", "auto_pickle": False},  # nothing here can be pickled
    )
    return Extension(
        "fastsock._native._core",
        [source for module in modules for source in module.sources],
        include_dirs=["core/include", "core", "interpose", "fastsock/_native"],
        depends=READ,
        extra_compile_args=[*flags(), "-fvisibility=hidden", "-fno-plt"],
        extra_link_args=[*LINK, "-Wl,-rpath,$ORIGIN/.."],
    )


def library() -> Extension:
    """What the library shows is in interpose/exports.map.

    Its own calls stay inside of it (-Bsymbolic): nobody else's library comes between, and the functions in place of the
    C library's call each other, wherever the library was loaded. It needs no loader by name (-ftls-model): that of musl
    runs a program that has this library by mistake. Its calls of the C library go through no table of jumps (-fno-plt):
    each forked child would look at one more piece of the program."""
    return Extension(
        f"fastsock.{LIBRARY}",
        INTERPOSE + CORE,
        include_dirs=["core/include", "core", "interpose"],
        depends=READ,
        extra_compile_args=[*flags(), *FRAMES, "-fno-semantic-interposition", "-ftls-model=initial-exec", "-fno-plt"],
        extra_link_args=[*LINK, "-Wl,--version-script=interpose/exports.map", f"-Wl,-soname,{LIBRARY}.so"],
        libraries=["pthread", "dl"],
    )


def scripted(name: str) -> Extension:
    """What a script of the sources builds."""
    return Extension(f"fastsock.{name}", [], depends=[*READ, *INTERPOSE, "launcher/run.c", "launcher/compile"])


OF_MUSL_TOO = shutil.which("musl-gcc") and os.environ.get("FASTSOCK_MUSL") != "0"
MUSL = [scripted("musl.fastsock-run"), scripted(f"musl.{OF_MUSL}")] if OF_MUSL_TOO else []
setup(ext_modules=[library(), native(), scripted(LAUNCHER), *MUSL], cmdclass={"build_ext": BuildInParallel})
