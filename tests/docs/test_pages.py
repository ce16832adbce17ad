"""The documentation is what the code says."""

import importlib.util
import pathlib
import re

from wingbeat.server.example import HELLO

ROOT = pathlib.Path(__file__).parents[2]


def test_the_page_of_settings_is_current():
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.render(), "run: python scripts/settings_page.py"


def test_every_link_within_the_documentation_leads_somewhere():
    broken = []
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_the_first_workflow_is_the_same_everywhere():
    assert (ROOT / "examples" / "hello.py").read_text() == HELLO


def test_the_readme_has_exactly_two_set_up_commands():
    text = (ROOT / "README.md").read_text()
    assert re.findall(r"^    make (\w+)", text, re.M) == ["demo", "test"]
