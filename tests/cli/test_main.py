import re
import subprocess
import sys

import pytest

from torchcno.cli import VERBS


def test_without_words_it_explains_itself(cno):
    outcome = cno()
    assert outcome.code == 0
    assert all(verb in outcome.out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(cno, verb):
    outcome = cno(verb, "--help")
    assert outcome.code == 0
    assert f"  cno {verb}" in outcome.out.split("examples:")[1]
    assert max(map(len, outcome.out.splitlines())) <= 80
    assert not re.search(r"\b(INT|FLOAT|STR|BOOL|None|False)\b", outcome.out)  # Python's words


def test_a_mistyped_verb_is_answered_with_the_nearest(cno):
    outcome = cno("trian")
    assert outcome.code == 2
    assert "did you mean `cno train`?" in outcome.err


def test_debug_shows_where_it_broke(cno):
    with pytest.raises(ValueError, match="unknown problem"):
        cno("train", "posson", "cno", "--debug")


def test_help_does_not_wait_for_torch():
    script = (
        "import sys; from torchcno.cli import VERBS, main; main([]); "
        "[main([verb, '--help']) for verb in VERBS]; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_a_shell_completes_verbs_and_options(cno, tmp_path):
    assert cno("--tyro-write-completion", "bash", tmp_path / "cno").code == 0
    script = (tmp_path / "cno").read_text()
    assert all(word in script for word in (*VERBS, "--resolutions", "--tensorboard"))
