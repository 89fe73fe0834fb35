# SPDX-License-Identifier: Apache-2.0
"""Clicks through the pages: pages.py view ADDRESS FOLDER, pages.py up ADDRESS TOKEN. Used by pages.test.sh."""
import json
import os
import sys

from browser import Browser

SCREENSHOTS = os.environ.get("SCREENSHOTS")
DRAWN = "performance.getEntriesByName('charts-drawn').length > {}"
wrong = []


def check(what, is_right):
    if not is_right:
        wrong.append(what)


def shoot(page, name):
    if SCREENSHOTS:
        page.screenshot(f"{SCREENSHOTS}/{name}.png")


def has_no_overflow(page, what):
    wide = page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(f"{what}: {wide} pixels wider than the screen", wide <= 0)


def is_clean(page, what):
    check(f"{what}: {page.errors}", not page.errors)
    check(f"{what}: markup of others became elements",
          page.value("document.querySelector('img[src=x], main b i, script:not([src])') === null"))


def colours(page):
    """How many pixels of the first chart are not empty."""
    return page.value("""(() => { const c = document.querySelector('.chart canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()""")


def look_at_run(browser, address):
    page = browser.open(f"{address}/runs/try-1")
    page.wait(DRAWN.format(0))
    check("a curve is drawn", colours(page) > 500)
    check("the head names the run", page.value("document.querySelector('h1').textContent") == "tiny")
    before = page.value("performance.getEntriesByName('charts-drawn').length")
    page.drag(".chart canvas", 0.4, 0.8)
    page.wait("location.hash.includes('from=')")
    page.wait(DRAWN.format(before))
    hash_of_zoom = page.value("location.hash")
    page.value("document.querySelector('.chart canvas').focus()")
    page.press("ArrowRight")
    page.wait("/^\\d+: [\\d.]+/.test(document.querySelector('.said').textContent)")
    check("the crosshair is on all charts", page.value(
        "[...document.querySelectorAll('.chart')].filter(f => /^\\d+: /.test(f.querySelector('.said')?.textContent)).length") > 2)
    page.press("l")
    page.wait("location.hash.includes('logy=loss')")
    page.click(".chart summary")
    page.wait("document.querySelectorAll('.chart table tbody tr').length > 5")
    check("the table has a caption", page.value("document.querySelector('.chart table caption').textContent") == "loss")
    page.go("about:blank")
    page.go(f"{address}/runs/try-1{hash_of_zoom}")
    page.wait(DRAWN.format(0))
    check("a link keeps the view", page.value("location.hash") == hash_of_zoom)
    page.press("Escape")
    page.click("[data-act=all]")
    page.wait("!location.hash.includes('from=')")
    write_notes(page, address)
    is_clean(page, "a run")
    page.close()


def write_notes(page, address):
    note = "better <b>than</b> try-2"
    page.click("#notes [name=tags]")
    page.type("baseline <i>paper</i>")
    page.click("#notes textarea")
    page.type(note)
    page.click("#notes button")
    page.wait("document.querySelector('#notes output').textContent === 'saved'")
    page.go(f"{address}/runs/try-1")
    page.wait(DRAWN.format(0))
    check("the note is kept", page.value("document.querySelector('.note').textContent") == note)
    check("the tags are kept", page.value("[...document.querySelectorAll('.tag')].map(t => t.textContent)") == ["baseline", "<i>paper</i>"])


def look_at_comparison(browser, address):
    page = browser.open(f"{address}/compare", width=1000, height=820)
    page.wait("document.querySelectorAll('#runs tbody tr a').length === 5")
    page.click("[name=filter]")
    page.type("try loss<9")
    page.wait("document.querySelectorAll('#runs tbody tr a').length === 4")
    page.click("th[data-key=loss] button")
    page.wait("document.querySelector('th[data-key=loss]').getAttribute('aria-sort') === 'descending'")
    for name in ("try-1", "try-2", "try-3"):
        page.click(f"input[aria-label='compare {name}']")
    page.wait("document.querySelectorAll('#chosen li').length === 3")
    page.wait("document.querySelector('#differences table') && document.querySelector('#parallel svg')")
    heads = page.value("[...document.querySelectorAll('#differences thead th')].map(th => th.textContent)")
    check(f"what differs: {heads}", "train.optimizer.lr" in heads and "train.seed" not in heads)
    check("a line for each run", page.value("document.querySelectorAll('#parallel .run').length") == 3)
    for axis in ("tokens", "time"):
        count = page.value("performance.getEntriesByName('charts-drawn').length")
        page.value(f"(() => {{ const s = document.querySelector('[name=axis]'); s.value = '{axis}'; s.dispatchEvent(new Event('change')); }})()")
        page.wait(DRAWN.format(count))
        check(f"curves over {axis}", colours(page) > 500)
    where = page.value("location.pathname + location.search + location.hash")
    page.value("document.querySelector('#runs').scrollIntoView()")
    shoot(page, "page-compare")
    is_clean(page, "a comparison")
    page.go("about:blank")
    page.go(address + where)
    page.wait("document.querySelectorAll('#chosen li').length === 3")
    check("a link keeps the comparison", page.value("document.querySelector('[name=axis]').value") == "time"
          and page.value("document.querySelector('[name=filter]').value") == "try loss<9")
    page.close()


def look_at_hostile(browser, address):
    page = browser.open(f"{address}/compare")
    page.wait("[...document.querySelectorAll('#runs a')].some(a => a.textContent.includes('evil'))")
    page.value("[...document.querySelectorAll('#runs a')].find(a => a.textContent.includes('evil')).click()")
    page.wait("document.querySelector('h1').textContent.includes('onerror')")
    page.wait(DRAWN.format(0))
    check("a metric with markup in its name has a chart",
          page.value("[...document.querySelectorAll('.chart')].some(f => f.dataset.key.includes('onerror'))"))
    is_clean(page, "a hostile run")
    page.close()


def look_everywhere(browser, address):
    for path in ("/runs/try-1", "/compare?runs=try-1,try-2"):
        for width in (1440, 768, 360):
            for dark in (False, True):
                page = browser.open(address + path, width=width, height=800, dark=dark)
                page.wait(DRAWN.format(0) if "runs/" in path else "document.querySelectorAll('#chosen li').length === 2")
                has_no_overflow(page, f"{path} at {width}")
                is_clean(page, f"{path} at {width}")
                if path == "/runs/try-1" and width == 360 and dark:
                    shoot(page, "page-phone")
                page.close()


def look_without_script(browser, address):
    for path in ("/runs/try-1", "/compare?runs=try-1,try-2"):
        page = browser.open(address + path, script=False)
        page.call("Emulation.setScriptExecutionDisabled", value=False)  # only what was loaded ran without
        figures = page.value("[...document.querySelectorAll('.chart img')].filter(i => i.naturalWidth > 0).length")
        page.close()
        check(f"{path} has figures without script", figures > 0)


def view(address, folder):
    with Browser() as browser:
        look_at_run(browser, address)
        look_at_comparison(browser, address)
        look_at_hostile(browser, address)
        look_everywhere(browser, address)
        look_without_script(browser, address)
    kept = json.load(open(f"{folder}/try-1/notes.json"))
    check(f"notes.json: {kept}", kept["tags"][0] == "baseline")


def up(address, token):
    with Browser() as browser:
        page = browser.open(f"{address}/?token={token}", width=1000, height=700)
        page.wait("document.querySelector('h1').textContent === 'The queue'")
        check("the token is not in the address", "token" not in page.value("location.href"))
        page.wait("[...document.querySelectorAll('#queue ~ .card .why')].length > 0")
        shoot(page, "page-cluster")
        has_no_overflow(page, "the queue")
        is_clean(page, "the queue")
        page.follow("a[href='/jobs/2']", "document.querySelector('h1').textContent.startsWith('Job 2')")
        page.resize(360, 700)
        page.wait("document.querySelector('img.figure').naturalWidth > 0")
        has_no_overflow(page, "a job on a phone")
        page.resize(1000, 700)
        page.follow("#job-page a[href='/runs/2']", DRAWN.format(0))
        page.wait("document.querySelector('#live').textContent === 'live'")
        page.wait("performance.getEntriesByName('step-drawn').length > 2")
        steps = page.value("document.querySelector('.progress b').textContent")
        page.wait(f"document.querySelector('.progress b').textContent !== {json.dumps(steps)}")
        page.wait("document.querySelectorAll('.chart canvas').length > 3")
        page.value("window.scrollTo(0, 130)")
        shoot(page, "page-run")
        is_clean(page, "a run that trains")
        page.click("nav a[href='/compare']")
        page.wait("document.querySelectorAll('#runs tbody a').length === 1")
        page.click("nav a[href='/']")
        page.wait("document.querySelector('h1').textContent === 'The queue'")
        is_clean(page, "the way back")


{"view": view, "up": up}[sys.argv[1]](*sys.argv[2:])
for text in wrong:
    print("FAIL:", text)
sys.exit(1 if wrong else 0)
