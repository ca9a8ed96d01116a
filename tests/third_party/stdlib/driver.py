"""Runs one module of the `test` package and writes down what became of each test. Started by `interpreter`.

    python driver.py MODULE RECORD PATTERN RESOURCES

Every start and every end of a test is a line of RECORD at once, so that a test that hangs or kills the interpreter is
known by name. Started again with the same RECORD, it goes on behind that test. Imports nothing of the project: this
runs in the throw-away environment, where spawned children of multiprocessing import it too.
"""

import collections
import faulthandler
import fnmatch
import gc
import importlib
import json
import os
import resource
import sys
import unittest

LEFT_OUT = "*VSOCK*"  # hangs on machines with a half-configured vsock device, also without fastsock


class Record(unittest.TestResult):
    """Outcomes by test id; a test that comes twice gets a number."""

    def __init__(self, file):
        super().__init__()
        self.known = set()
        self.output = open(file, "a+", encoding="utf-8")
        self.output.seek(0)
        for line in self.output:
            self.known.add(json.loads(line)["test"])
        self.times = collections.Counter()
        self.current = None
        self.trouble = []

    def write(self, test, **what):
        self.output.write(json.dumps({"test": test, **what}) + "\n")
        self.output.flush()

    def name(self, test):
        self.times[test.id()] += 1
        count = self.times[test.id()]
        return test.id() if count == 1 else f"{test.id()} [{count}]"

    def startTest(self, test):
        super().startTest(test)
        self.current = self.name(test)
        self.trouble = []
        self.write(self.current, start=True)

    def stopTest(self, test):
        super().stopTest(test)
        if self.current is None:  # Python 3.12.1 stops skipped tests that it has not started
            return
        for outcome, why in self.trouble or [("ok", "")]:
            self.write(self.current, outcome=outcome, why=why)
            break
        self.current = None

    def note(self, test, outcome, why=""):
        if self.current is None:  # of a class or a module: its fixture
            self.write(self.name(test), outcome=outcome, why=why)
        else:
            self.trouble.append((outcome, why))

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "error", self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed", f"{subtest}\n{(self.failures + self.errors)[-1][1]}")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")


def chosen(suite, pattern, known):
    """The tests of a suite that match and have not been run, still in their classes' suites."""
    kept = []
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept.append(chosen(test, pattern, known))
        elif (
            not fnmatch.fnmatchcase(test.id(), LEFT_OUT)
            and (pattern == "*" or any(fnmatch.fnmatchcase(test.id(), one) for one in pattern.split()))
            and test.id() not in known
        ):
            kept.append(test)
    return type(suite)(kept)


def main():
    module_name, file, pattern, resources = sys.argv[1:]
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    record = Record(file)
    from test import support

    support.use_resources = resources.split(",")
    support.verbose = False
    try:
        module = importlib.import_module(f"test.{module_name}")
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    except unittest.SkipTest as error:
        record.write(f"test.{module_name}", outcome="skipped", why=str(error))
    except ModuleNotFoundError as error:
        if error.name != f"test.{module_name}":
            raise
        record.write(f"test.{module_name}", outcome="absent")
    else:
        tests = chosen(suite, pattern, record.known)
        gc.freeze()  # many tests of asyncio collect garbage a hundred times, and need not look at all of its modules
        tests.run(record)
    record.write("", outcome="done")
    record.output.close()


if __name__ == "__main__":
    sys.path.pop(0)  # this directory: `test` must mean the interpreter's
    sys.argv[0] = os.path.abspath(sys.argv[0])
    main()
