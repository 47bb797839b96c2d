"""Writes the pages of this folder that come from declarations. `make docs` runs it."""

from pathlib import Path

from trioka.broker.config.reference import reference

PAGES = {"CONFIG.md": reference}

if __name__ == "__main__":
    for name, page in PAGES.items():
        path = Path(__file__).with_name(name)
        path.write_text(page(), encoding="utf-8")
        print(f"docs/{name}")
