"""Compares what failed in a suite with the list of what is expected to.

    compare.py junit|tcl|mocha[-real] REPORT EXPECTED

In the list a line that begins with `##` is a reason, and the lines after it are the tests that fail for
it. Lines that begin with one `#` are for readers. Reasons may begin with a word:

    everywhere:  a real server fails too, under the same flags
    real:        only that one does
    sometimes:   may pass: waits for a time, or for luck
    skipped:     not run against ours: waits for ever, or leaves what the tests behind do not expect
    never:       not to be asked for here

A test that fails and is not named, or is named and passes, is an error.
"""

import json
import re
import sys
import xml.etree.ElementTree as ElementTree


def expected_tests(path: str, real: bool) -> tuple[dict[str, str], set[str]]:
    """What the list names, with its reason, and which of it may pass."""
    expected, loose, why = {}, set(), ""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if line.startswith("##"):
                why = line[2:].strip()
            elif line and not line.startswith("#"):
                if not why:
                    sys.exit(f"{path}:{number}: a test without a reason above it")
                if line in expected:
                    sys.exit(f"{path}:{number}: named twice: {line}")
                word = why.split(":")[0]
                if word == "sometimes":
                    loose.add(line)
                elif real and word not in ("everywhere", "real") or not real and word == "real":
                    continue
                expected[line] = why
    return expected, loose


def junit(report: str) -> tuple[set[str], dict[str, str]]:
    """The tests that ran and those that failed, with the first line of what they said."""
    failed, ran = {}, set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = case.get("classname").split(".")[-1] + "::" + case.get("name")
        problem = case.find("failure")
        problem = case.find("error") if problem is None else problem
        if case.find("skipped") is None:
            ran.add(name)
        if problem is not None:
            failed[name] = problem.get("message", "").splitlines()[0]
    return ran, failed


def tcl(report: str) -> tuple[set[str], dict[str, str]]:
    """As `junit`, from what Redis's own suite prints; a name has its unit in front."""
    failed, ran, unit, last = {}, set(), "", None
    with open(report, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            line = re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip("\n")
            if line.startswith("Testing unit/"):
                unit = line.removeprefix("Testing unit/")
            elif "The End" in line:
                unit = ""
            elif not unit:
                continue
            said = re.match(r"\[(ok|err|exception|TIMEOUT)\]: (.*)", line)
            if said:
                what, name = said.groups()
                name = re.sub(r" \(\d+ ms\)$", "", name)
                name = re.sub(r" in tests/unit/\S+\.tcl$", "", name)
                last = f"{unit}: {name.strip()}"
                ran.add(last)
                if what != "ok":
                    failed[last] = ""
                else:
                    last = None
            elif last and line.startswith("["):
                last = None
            elif last and not failed[last] and line.strip():
                failed[last] = line.strip()
    return ran, failed


def mocha(report: str) -> tuple[set[str], dict[str, str]]:
    """As `junit`, from the report that mocha writes as JSON."""
    with open(report, encoding="utf-8") as text:
        # What tests print stands before it.
        said = text.read()
        whole = json.loads(said[said.index('{\n  "stats"') :])
    failed = {case["fullTitle"]: case["err"].get("message", "") for case in whole["failures"]}
    return {case["fullTitle"] for case in whole["passes"]} | set(failed), failed


def main() -> int:
    kind, report, expected_file = sys.argv[1:]
    kind, _, real = kind.partition("-")
    expected, loose = expected_tests(expected_file, real == "real")
    ran, failed = {"junit": junit, "tcl": tcl, "mocha": mocha}[kind](report)
    if not ran:
        print("no test ran")
        return 1
    surprises = sorted(set(failed) - set(expected))
    mended = sorted(n for n in expected if n in ran and n not in failed and n not in loose)
    for name in surprises:
        said = failed[name].splitlines()
        print(f"FAILED, not expected: {name}: {said[0][:200] if said else ''}")
    for name in mended:
        print(f"passes, but is expected to fail ({expected[name]}): {name}")
    print(f"{len(ran) - len(failed)} passed, {len(failed)} failed, {len(surprises)} of them not expected")
    return 1 if surprises or mended else 0


if __name__ == "__main__":
    sys.exit(main())
