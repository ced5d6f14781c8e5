"""Check the subjects of new commits: imperative, at most 72 characters, and no final period.

    python -m tests.commit_subjects

Commits up to BASELINE are older than the rule. Without that commit (a shallow clone), only the newest one is checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BASELINE = "0b21f7c87b84d946d3c7b6408316af484a21d64d"
LONGEST = 72  # number of characters that git log and code hosts show without a line break
# First words of a subject line. Extend the list with any verb in the imperative.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
        Abort Accept Adapt Add Adjust Allow Append Apply Avoid Begin Bind Bound Build Bump Cache Call Catch Change
        Check Choose Clarify Clean Clear Close Collect Combine Compare Compress Compute Configure Convert Copy Correct
        Count Cover Create Cut Declare Deduplicate Define Delete Deny Derive Describe Detect Disable Document Draw Drop
        Enable End Enforce Ensure Escape Exclude Exit Expand Expect Explain Export Expose Extend Extract Fail Fetch
        Find Fix Follow Force Format Generate Give Group Guard Handle Have Hide Hold Ignore Implement Import
        Improve Include Increase Inline Install Interrupt Introduce Isolate Join Keep Label Launch Leave Let Limit Link
        List Load Lock Log Lower Make Mark Match Measure Mention Merge Migrate Mount Move Name Narrow Normalize Offer
        Open Optimize Order Parse Pass Pin Prefer Prepare Preserve Prevent Print Profile Propagate Protect Prune Put
        Quote Raise Read Rebuild Record Recover Reduce Refactor Refuse Regenerate Register Reject Relax Release
        Remove Rename Reorder Repair Repeat Replace Replicate Report Request Require Reset Resolve Restart Restore
        Restrict Retry Return Reuse Revert Rewrite Run Save Say Search Send Separate Set Share Shorten Show Shrink
        Simplify Skip Sort Speed Split Start State Stop Store Strip Support Suppress Switch Take Teach Tell Test
        Tighten Time Treat Trim Truncate Tune Turn Type Unify Update Upgrade Use Validate Verify Wait Warn Wrap
        Ask Reword Write
        """,
    )
)


def problem(subject: str) -> str | None:
    """Return the problem with a commit's subject, or None."""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters; use at most {LONGEST}"
    if subject.endswith("."):
        return "ends with a full stop; remove it"
    first = subject.split(" ", 1)[0]
    if first not in VERBS:
        return f"starts with {first!r}; start with an imperative, such as Add, Fix or Move (tests/commit_subjects.py)"
    return None


def new_commits(checkout: Path) -> list[tuple[str, str]]:
    """Return the abbreviated hash and the subject of each commit after BASELINE, without merges."""
    git = ["git", "-C", str(checkout)]
    is_ancestor = subprocess.run(
        [*git, "merge-base", "--is-ancestor", BASELINE, "HEAD"], capture_output=True, check=False
    )
    span = [f"{BASELINE}..HEAD"] if is_ancestor.returncode == 0 else ["--max-count=1", "HEAD"]
    log = subprocess.run(
        [*git, "log", "--no-merges", "--format=%h %s", *span], check=True, capture_output=True, text=True
    )
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in log.stdout.splitlines()]


def main() -> int:
    """Print each subject that breaks the rule; return the exit status."""
    problems = [(commit, subject, problem(subject)) for commit, subject in new_commits(CHECKOUT)]
    wrong = [f"{commit} {subject!r} {reason}" for commit, subject, reason in problems if reason]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
