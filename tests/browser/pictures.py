"""`make pictures`: the README's pictures of a comparison's page and of a task before and after training."""

import sys
from pathlib import Path

from seal_ray.report.files import TRIALS
from tests.browser.conftest import launched

OUT = Path(__file__).parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 790


def draw(comparison: Path, arm: str) -> None:
    """Draws both pictures from the pages of a comparison and of its first run of an arm."""
    OUT.mkdir(exist_ok=True)
    with launched() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto((comparison / "report.html").resolve().as_uri())
        page.screenshot(path=OUT / "report.png")
        (run,) = sorted((comparison / TRIALS).glob(f"{arm}-seed*/report.html"))[:1]
        page.goto(run.resolve().as_uri())
        pair = page.locator("details.better").filter(has_text="miss_func").first
        pair.locator("summary").click()
        pair.screenshot(path=OUT / "dialogue.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), "coevolved-varied")
