"""What a task says of a long command's end."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.action.long_command import outcome


def test_a_command_without_an_answer_has_changed_something() -> None:
    assert outcome(0, "one\ntwo\n", False) == {"changed": True, "rc": 0, "stdout_lines": ["one", "two"], "answer": {}}


def test_the_answer_is_a_line_of_its_own() -> None:
    found = outcome(0, 'one\nMUSTER-RESULT {"changed": false, "lock": {"key": 1}}\n', False)
    assert found == {"changed": False, "rc": 0, "stdout_lines": ["one"], "answer": {"lock": {"key": 1}}}


def test_a_fault_is_told_in_its_own_words() -> None:
    found = outcome(1, 'Getting\nMUSTER-RESULT {"fault": "there is no file a. Needed: it"}\n', False)
    assert (found["failed"], found["msg"]) == (True, "there is no file a. Needed: it")


def test_without_one_the_last_words_are_told() -> None:
    found = outcome(2, "x" * 5000 + "\nE: broken\n", False)
    assert found["msg"].startswith("exit code 2: xxx") and found["msg"].endswith("E: broken")
    assert len(found["msg"]) < 3100
    assert outcome(1, "", True)["msg"].startswith("it was ended by a signal, or the machine was restarted")
