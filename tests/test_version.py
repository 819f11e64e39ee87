"""One version for everything (tools/version.py)."""

import version


def test_the_first_place_gets_the_version() -> None:
    text = '[project]\nname = "a"\nversion = "0.1.0"\n[x]\nversion = "9"\n'
    assert version.written(text, '\nversion = "', '"', "0.2.0") == text.replace("0.1.0", "0.2.0")


def test_a_file_without_a_version_is_told() -> None:
    assert version.written("nothing", '\nversion = "', '"', "0.2.0") is None


def test_every_place_has_the_version_of_the_file() -> None:
    stated = (version.ROOT / "VERSION").read_text().strip()
    for name, before, after in version.PLACES:
        text = (version.ROOT / name).read_text()
        assert version.written(text, before, after, stated) == text, name
