#!/usr/bin/env python3
"""Opens a page in headless Chromium, at two widths, in light and dark colours, and looks at it.

usage: report-browser.py PAGE.html FIGURES [SCREENSHOTS]

FIGURES is how many figures the page must have. Every one has to be drawn; the console has to stay
silent; nothing may be wider than the page; tables have to sort by keyboard, links to give CSV and
SVG. Prints the time to load. Pictures are written into the folder SCREENSHOTS. Needs selenium,
chromium and chromedriver.
"""

import base64
import csv
import pathlib
import shutil
import sys
import tempfile
import time
import xml.dom.minidom
import xml.parsers.expat

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WIDTHS = (1280, 380)
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage --hide-scrollbars --disable-renderer-backgrounding "
    "--disable-backgrounding-occluded-windows --disable-background-timer-throttling"
)

# How much of a figure is drawn: elements of an SVG, or pixels of a canvas that are not clear.
DRAWN = """
const drawn = (figure) => {
  const svg = figure.querySelector(".chart svg");
  if (svg) return svg.querySelectorAll("path, text").length;
  const canvas = figure.querySelector(".chart canvas");
  if (!canvas) return 0;
  const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, copy.width, copy.height);
  let count = 0;
  for (let at = 3; at < data.length; at += 4) count += data[at] > 0;
  return count;
};
"""

# All figures are asked in one go: a question for each of a hundred takes seconds.
FIGURES = (
    DRAWN
    + """
return [...document.querySelectorAll("[data-figure]")].map((figure) => {
  const chart = figure.querySelector(".chart");
  return {
    title: figure.querySelector("h3").innerText,
    drawn: drawn(figure),
    named: chart.getAttribute("role") === "img" && Boolean(chart.getAttribute("aria-label")),
    height: chart.getBoundingClientRect().height,
  };
});
"""
)

# Shows another chart of each figure that has several, and hides a series and shows it again.
CHOICES = (
    DRAWN
    + """
return [...document.querySelectorAll("[data-figure]")].map((figure) => {
  const select = figure.querySelector("select");
  if (select && select.options.length > 1) {
    select.selectedIndex = select.options.length - 1;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }
  const series = () => figure.querySelector(".legend button");
  let pressed = "false";
  if (series()) {
    series().click();
    pressed = series().getAttribute("aria-pressed");
    series().click();
  }
  return { title: figure.querySelector("h3").innerText, pressed, drawn: drawn(figure) };
});
"""
)

# Elements that reach beyond the right edge, other than inside of what scrolls by itself.
TOO_WIDE = """
const width = document.documentElement.clientWidth;
const wide = [...document.body.querySelectorAll("*")].filter((node) =>
  node.getBoundingClientRect().right > width + 1
  && !node.closest(".scroll, nav ul, svg, .skip") && getComputedStyle(node).position !== "fixed");
return [document.documentElement.scrollWidth - width,
  wide.slice(0, 5).map((node) => node.tagName + "." + node.className)];
"""

# Figures and tables whose boxes lie over each other.
OVERLAPPING = """
const boxes = [...document.querySelectorAll(".block")].map((node) => node.getBoundingClientRect());
return boxes.filter((box, at) => at > 0 && box.top < boxes[at - 1].bottom - 1).length;
"""

# The texts of a table's cells.
TEXTS = """
const cells = arguments[0].querySelectorAll(arguments[1]);
return Array.from(cells, cell => cell.innerText.trim());
"""


class Problems(list):
    """What is wrong, printed as it is found."""

    def check(self, good, text):
        if not good:
            self.append(text)
            print(f"wrong: {text}")


def browser(width, dark, downloads, profile):
    options = Options()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--window-size={width},900")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    # Headless windows have a least width; the device does not.
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    return driver


class Stalled(Exception):
    """A block that stayed empty in view: the page did not draw it, or the browser drew no frames."""


def scroll_through(driver):
    """Brings every figure and table into view, so that it is drawn."""
    for block in driver.find_elements(By.CSS_SELECTOR, ".block"):
        # What is drawn above changes its height and can push the block out of view again: each
        # question scrolls first, as a reader would.
        ready = """
          arguments[0].scrollIntoView({ block: 'center' });
          return !arguments[0].querySelector('.chart:empty, .table:empty')"""
        begin = time.monotonic()
        while not driver.execute_script(ready, block):
            waited = time.monotonic() - begin
            if waited > 30:
                raise Stalled(stalled(driver, block))
            # The page hears what is in view with the next frame. A picture asks for one: on a machine
            # that is busy elsewhere none came by itself for a minute, twice in some hundred runs.
            if waited > 1:
                driver.get_screenshot_as_png()
            time.sleep(0.02)


def stalled(driver, block):
    """What is known of a block that stayed empty."""
    state = driver.execute_script(
        "const box = arguments[0].getBoundingClientRect();"
        "return `${document.visibilityState}, ${box.top} to ${box.bottom} of ${innerHeight} px`",
        block,
    )
    console = [entry["message"] for entry in driver.get_log("browser")]
    return f"{block.get_attribute('outerHTML')[:200]!r} stays empty: {state}; console: {console}"


def check_figures(driver, expected, problems, where):
    figures = driver.execute_script(FIGURES)
    problems.check(len(figures) == expected, f"{where}: {len(figures)} figures, expected {expected}")
    for figure in figures:
        title = f"{where}: {figure['title']}"
        problems.check(figure["drawn"] > 6, f"{title} is not drawn ({figure['drawn']})")
        problems.check(figure["named"], f"{title} has no text in its place")
        problems.check(figure["height"] >= 200, f"{title} is too low to read")


def check_layout(driver, problems, where):
    overflow, wide = driver.execute_script(TOO_WIDE)
    problems.check(overflow <= 0 and not wide, f"{where}: too wide by {overflow}: {wide}")
    overlaps = driver.execute_script(OVERLAPPING)
    problems.check(overlaps == 0, f"{where}: {overlaps} blocks lie over others")


def check_sorting(driver, problems, where):
    """Sorts the longest table by keyboard, both ways."""
    tables = driver.find_elements(By.CSS_SELECTOR, "main [data-table] table")
    rows = "return arguments[0].querySelectorAll('tbody tr').length"
    table = max(tables, key=lambda table: driver.execute_script(rows, table))
    heads = table.find_elements(By.TAG_NAME, "th")
    place = next(i for i, head in enumerate(heads) if "number" in (head.get_attribute("class") or ""))
    for direction, key in (("ascending", Keys.ENTER), ("descending", Keys.SPACE)):
        button = heads[place].find_element(By.TAG_NAME, "button")
        driver.execute_script("arguments[0].focus()", button)
        driver.switch_to.active_element.send_keys(key)
        state = heads[place].get_attribute("aria-sort")
        problems.check(state == direction, f"{where}: sorted {state}, expected {direction}")
        # In one go: a question for each of ten thousand cells takes seconds.
        texts = driver.execute_script(TEXTS, table, f"tbody td:nth-child({place + 1})")
        numbers = [float(text.replace(",", "")) for text in texts if text]
        ordered = sorted(numbers, reverse=direction == "descending")
        problems.check(numbers == ordered and numbers, f"{where}: not sorted {direction}: {numbers[:9]}")


def check_keyboard(driver, problems, where):
    """Follows the tab key from the top: nothing may hold it, and the order is that of the page."""
    driver.execute_script("document.activeElement.blur(); window.scrollTo(0, 0)")
    tops, names = [], []
    for _ in range(40):
        driver.switch_to.active_element.send_keys(Keys.TAB)
        top, name = driver.execute_script(
            "const e = document.activeElement, box = e.getBoundingClientRect();"
            "return [box.top + scrollY, e.tagName + ' ' + e.textContent.slice(0, 30)]"
        )
        tops.append(top)
        names.append(name)
    problems.check(len(set(names)) > 10, f"{where}: the tab key reaches {len(set(names))} elements")


def check_theme(driver, problems, where, dark):
    theme = "return document.documentElement.dataset.theme"
    expected = "dark" if dark else "light"
    found = driver.execute_script(theme)
    problems.check(found == expected, f"{where}: the colours are {found}, expected {expected}")
    button = driver.find_element(By.ID, "theme")
    for _ in range(2):
        driver.execute_script("arguments[0].focus()", button)
        driver.switch_to.active_element.send_keys(Keys.ENTER)
        switched = driver.execute_script(theme)
        problems.check(switched != found, f"{where}: the switch leaves {found} colours")
        found = switched


def check_downloads(driver, downloads, problems, where):
    figure = driver.find_element(By.CSS_SELECTOR, "[data-figure]")
    for ending, label in ((".csv", "CSV"), (".svg", "SVG")):
        link = figure.find_element(By.LINK_TEXT, label)
        driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", link)
        driver.execute_script("arguments[0].focus()", link)
        driver.switch_to.active_element.send_keys(Keys.ENTER)
        path = pathlib.Path(downloads) / link.get_attribute("download")
        limit = time.monotonic() + 10
        while not path.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        problems.check(path.exists() and path.suffix == ending, f"{where}: no {label} was saved")
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if ending == ".csv":
            rows = list(csv.reader(text.splitlines()))
            good = len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows)
            problems.check(good, f"{where}: the CSV has rows of different lengths")
        else:
            problems.check(text.startswith("<svg"), f"{where}: the SVG begins with {text[:20]!r}")
            try:
                xml.dom.minidom.parseString(text.encode())
            except xml.parsers.expat.ExpatError as error:
                problems.check(False, f"{where}: the SVG is no XML: {error}")
        path.unlink()


def check_choices(driver, problems, where):
    for figure in driver.execute_script(CHOICES):
        title = f"{where}: {figure['title']}"
        problems.check(figure["pressed"] == "false", f"{title}: a series cannot be hidden")
        problems.check(figure["drawn"] > 6, f"{title}: another chart is not drawn ({figure['drawn']})")


def look(page, expected, screenshots, problems, width, dark):
    where = f"{width} px, {'dark' if dark else 'light'}"
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as downloads:
        driver = browser(width, dark, downloads, profile)
        try:
            # Time of the processor, which other work on the machine does not change much.
            driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
            driver.get(page.as_uri())
            loaded = driver.execute_script(
                "return performance.getEntriesByType('navigation')[0].loadEventEnd"
            )
            metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
            task = next(m["value"] for m in metrics if m["name"] == "TaskDuration")
            print(f"{where}: loaded in {loaded:.0f} ms, {1e3 * task:.0f} ms of the page's own work")
            scroll_through(driver)
            check_figures(driver, expected, problems, where)
            check_layout(driver, problems, where)
            check_theme(driver, problems, where, dark)
            if screenshots:
                driver.execute_script("window.scrollTo(0, 0)")
                size = driver.execute_script(
                    "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
                )
                clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 15000), "scale": 1}
                shot = driver.execute_cdp_cmd(
                    "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
                )
                name = f"{width}-{'dark' if dark else 'light'}.png"
                (screenshots / name).write_bytes(base64.b64decode(shot["data"]))
            check_sorting(driver, problems, where)
            check_keyboard(driver, problems, where)
            check_downloads(driver, downloads, problems, where)
            check_choices(driver, problems, where)
            check_layout(driver, problems, where)
            for entry in driver.get_log("browser"):
                problems.check(False, f"{where}: the console says {entry['message']}")
        finally:
            driver.quit()


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    page, expected = pathlib.Path(sys.argv[1]).resolve(), int(sys.argv[2])
    screenshots = pathlib.Path(sys.argv[3]) if len(sys.argv) == 4 else None
    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
    problems = Problems()
    for width in WIDTHS:
        for dark in (False, True):
            try:
                look(page, expected, screenshots, problems, width, dark)
            except Stalled as first:
                # A page that does not draw fails again; a browser without frames seldom does.
                print(f"once more in a new browser: {first}")
                look(page, expected, screenshots, problems, width, dark)
    if problems:
        sys.exit(f"{page.name}: {len(problems)} problems")
    print(f"{page.name}: {expected} figures, {len(WIDTHS)} widths, light and dark: good")


if __name__ == "__main__":
    main()
