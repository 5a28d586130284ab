"""Compares the failures in a JUnit file with the list of those expected: see redis-py-suite."""

import sys
import xml.etree.ElementTree as ElementTree


def main() -> int:
    report, expected_file = sys.argv[1:]
    expected = {}
    with open(expected_file, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and not line.startswith("#"):
                name, why = line.split(maxsplit=1)
                expected[name] = why.strip()
    failed, ran = {}, set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("classname").split(".")[-1] + "::" + case.get("name")
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        if case.find("skipped") is None:
            ran.add(name)
        if problem is not None:
            failed[name] = problem.get("message", "").splitlines()[0][:160]
    if not ran:
        print("no test ran")
        return 1
    surprises = sorted(set(failed) - set(expected))
    mended = sorted(n for n in expected if n in ran and n not in failed)
    for name in surprises:
        print(f"FAILED, not expected: {name}: {failed[name]}")
    for name in mended:
        print(f"passes, but is expected to fail ({expected[name]}): {name}")
    print(f"{len(ran) - len(failed)} passed, {len(failed)} failed, {len(surprises)} of them not expected")
    return 1 if surprises or mended else 0


sys.exit(main())
