"""Measure how well failed runs are explained, using a file of real failures: make explain CASES=FILE

By hand: python -m tests.explain CASES.json [--launch] [--case 079] [--verbose]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from tests.explain.cases import GRADES, grade, read_cases
from tests.explain.launched import explain_launched
from tests.explain.offline import explain_offline

MEASURED = Path(__file__).with_name("measured.json")


def main() -> int:
    """Print the grades by class, and the cases that are not right. Exit with 1 if an explanation is wrong."""
    parser = argparse.ArgumentParser(prog="make explain", description=__doc__)
    parser.add_argument("cases", type=Path, help="a JSON file of cases")
    parser.add_argument(
        "--launch", action="store_true", help="launch each case on nodes of this machine: takes minutes"
    )
    parser.add_argument("--case", action="append", default=[], help="only this case")
    parser.add_argument(
        "--record", action="store_true", help="write the rates to measured.json, for docs/what_went_wrong.md"
    )
    parser.add_argument("--verbose", action="store_true", help="print each explanation")
    args = parser.parse_args()
    cases = [case for case in read_cases(args.cases) if not args.case or case["case"] in args.case]
    explain = explain_launched(args.cases) if args.launch else explain_offline
    grades: dict[str, dict[str, list[str]]] = defaultdict(lambda: {name: [] for name in GRADES})
    certain = 0
    for case in cases:
        explanation = explain(case)
        grades[case["class"]][grade(case, explanation)].append(case["case"])
        certain += explanation.confidence == "error"
        if args.verbose:
            line = f"{explanation.confidence:5} {explanation.id or '-':30} {' '.join(explanation.text.split())[:99]}"
            print(f"{case['case']} {grade(case, explanation):6} {line}")
    print(f"{'class':14}{'n':>4}" + "".join(f"{name:>8}" for name in GRADES) + "   not right")
    for kind, by_grade in sorted(grades.items()):
        print_row(kind, by_grade)
    total = {name: [case for by_grade in grades.values() for case in by_grade[name]] for name in GRADES}
    print_row("all", total)
    count = len(cases) or 1
    shares = ", ".join(f"{100 * len(total[name]) / count:.0f} % {name}" for name in GRADES)
    print(f"{shares}; {certain} of {len(cases)} from the error itself")
    if args.record:
        record(grades)
    return 1 if total["wrong"] else 0


def record(grades: dict[str, dict[str, list[str]]]) -> None:
    """Record how many cases in each class are right, partly right, without an explanation, and wrong."""
    kinds = {kind: {name: len(by_grade[name]) for name in GRADES} for kind, by_grade in sorted(grades.items())}
    MEASURED.write_text(json.dumps(kinds, indent=2) + "\n", encoding="utf-8")


def print_row(kind: str, by_grade: dict[str, list[str]]) -> None:
    """Print the row for a class."""
    numbers = "".join(f"{len(by_grade[name]):8}" for name in GRADES)
    failing = " ".join(f"{name}: {','.join(by_grade[name])}" for name in GRADES[1:] if by_grade[name])
    print(f"{kind:14}{sum(map(len, by_grade.values())):4}{numbers}   {failing if kind != 'all' else ''}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
