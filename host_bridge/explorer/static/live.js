// Keeps an open page current. Hints say that something changed, never what: the page is fetched again as a whole.

import { enhance } from "./enhance.js";

export const QUIET_MS = 750;
export const AT_MOST_MS = 3_000;
export const FALLBACK_MS = 30_000;
const AGAIN_MS = 5_000;

/** Runs `action` once a quiet period has passed since the last hint, at the latest AT_MOST_MS after the first. */
export class Coalesced {
  #action;
  #quiet = null;
  #latest = null;

  constructor(action) {
    this.#action = action;
  }

  hint() {
    clearTimeout(this.#quiet);
    this.#quiet = setTimeout(() => this.#run(), QUIET_MS);
    this.#latest ??= setTimeout(() => this.#run(), AT_MOST_MS);
  }

  #run() {
    clearTimeout(this.#quiet);
    clearTimeout(this.#latest);
    this.#quiet = this.#latest = null;
    this.#action();
  }
}

/** Listen while the page is visible, and ask again when it becomes so. `given` is the content as the server gave it. */
export function keepCurrent(main, given) {
  const page = new Page(main, given);
  const refreshes = new Coalesced(() => page.refresh());
  let stream = null;
  let again = null;

  const listen = () => {
    clearTimeout(again);
    if (document.hidden || stream !== null) return;
    let lost = false;
    const opened = new EventSource(main.dataset.live);
    stream = opened;
    opened.addEventListener("open", () => {
      if (lost) page.refresh(); // what happened meanwhile was not heard
      lost = false;
      page.connected(true);
    });
    for (const kind of ["changed", "status"]) opened.addEventListener(kind, () => refreshes.hint());
    opened.addEventListener("refused", () => { silence(); page.refresh(); });
    opened.addEventListener("error", () => {
      lost = true;
      page.refresh(); // the session may have ended, or the right to read
      if (opened.readyState !== EventSource.CLOSED) return;
      silence();
      again = setTimeout(listen, AGAIN_MS);
    });
  };
  // A browser keeps few connections to one host: pages that nobody sees hold none.
  const silence = () => {
    stream?.close();
    stream = null;
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) silence();
    else { page.refresh(); listen(); }
  });
  addEventListener("pagehide", silence);
  addEventListener("pageshow", (event) => { if (event.persisted) { page.refresh(); listen(); } });
  setInterval(() => { if (!document.hidden) page.refresh(); }, FALLBACK_MS);
  listen();
}

/** The page as the server last gave it. */
class Page {
  #main;
  #shown;
  #written = false;
  #asking = false;
  #askAgain = false;

  constructor(main, given) {
    this.#main = main;
    this.#shown = given;
    main.addEventListener("input", () => { this.#written = true; });
  }

  async refresh() {
    if (this.#asking) { this.#askAgain = true; return; }
    this.#asking = true;
    try {
      do {
        this.#askAgain = false;
        await this.#ask();
      } while (this.#askAgain);
    } finally {
      this.#asking = false;
    }
  }

  connected(is) {
    document.documentElement.toggleAttribute("data-lost", !is);
  }

  async #ask() {
    let answer, text;
    try {
      answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      text = await answer.text();
    } catch {
      this.connected(false);
      return;
    }
    this.connected(true);
    const refused = answer.status === 401 || answer.status === 403;
    // What a person is writing is not taken away, unless the page may no longer be shown at all.
    if (!refused && (this.#written || "still" in this.#main.dataset)) return;
    const found = new DOMParser().parseFromString(text, "text/html");
    const fresh = found.querySelector("main");
    if (fresh === null) return;
    if (fresh.innerHTML === this.#shown) return;
    await pressed(); // a click must not fall between the page before and the page after
    this.#shown = fresh.innerHTML;
    if (answer.status === 401) {
      document.body.replaceChildren(...found.body.children);
      return;
    }
    document.title = found.title;
    this.#replace(fresh);
  }

  #replace(fresh) {
    const main = this.#main;
    const open = new Set([...main.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    const focused = main.contains(document.activeElement) ? placeOf(document.activeElement) : null;
    const scrolled = main.querySelector(".lines")?.scrollTop;
    const nodes = [...fresh.childNodes];
    main.replaceChildren(...nodes);
    enhance(main);
    for (const summary of main.querySelectorAll("details > summary")) {
      if (open.has(summary.textContent)) summary.parentElement.open = true;
    }
    const lines = main.querySelector(".lines");
    if (lines !== null && scrolled !== undefined) lines.scrollTop = scrolled;
    if (focused !== null) found(main, focused)?.focus({ preventScroll: true });
  }
}

let down = false;
addEventListener("pointerdown", () => { down = true; }, true);
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { down = false; }, true);

/** Once no pointer is pressed. */
async function pressed() {
  while (down) await new Promise((resolve) => { setTimeout(resolve, 50); });
}

function placeOf(element) {
  return { id: element.id, href: element.getAttribute("href"), text: element.textContent };
}

function found(main, place) {
  if (place.id) return document.getElementById(place.id);
  return [...main.querySelectorAll("a, button, summary, [tabindex]")].find(
    (one) => one.getAttribute("href") === place.href && one.textContent === place.text,
  );
}
