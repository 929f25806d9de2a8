// The small comforts of a page: times in the reader's zone, copying, choices that need no button, the graph.

const SHOWN = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
const thisYear = new Intl.DateTimeFormat(undefined, SHOWN);
const otherYear = new Intl.DateTimeFormat(undefined, { ...SHOWN, year: "numeric" });

/** Prepare everything below `root`, once. */
export function enhance(root) {
  for (const element of root.querySelectorAll("time[data-moment]")) localise(element);
  for (const element of root.querySelectorAll("[data-scripted]")) {
    if (element.dataset.scripted === "show") element.hidden = false;
    else if (element.dataset.scripted === "hide") element.hidden = true;
    else if (element.dataset.scripted === "close") element.open = false;
  }
  for (const button of root.querySelectorAll("[data-copy], [data-copy-from]")) {
    button.addEventListener("click", () => copy(button));
  }
  for (const select of root.querySelectorAll("select[data-submit]")) {
    select.addEventListener("change", () => select.form.submit());
  }
  for (const place of root.querySelectorAll("[data-graph]")) {
    import("./graph.js").then(({ showGraph }) => showGraph(place));
  }
}

/** The reader's own zone in the text, UTC on hover. */
function localise(element) {
  const moment = new Date(element.dateTime);
  if (Number.isNaN(moment.getTime())) return;
  element.title = `${moment.toISOString().replace("T", " ").slice(0, 19)} UTC`;
  const form = moment.getFullYear() === new Date().getFullYear() ? thisYear : otherYear;
  element.textContent = form.format(moment);
}

async function copy(button) {
  const source = button.dataset.copyFrom && document.getElementById(button.dataset.copyFrom);
  const text = source ? source.value : button.dataset.copy;
  try {
    await navigator.clipboard.writeText(text);
    said(button, "Copied");
  } catch {
    // Without the right to write the clipboard, the selection is one key away from it.
    const place = source || button.previousElementSibling;
    if (source) source.select();
    else getSelection().selectAllChildren(place);
    said(button, "Selected");
  }
}

function said(button, word) {
  const before = button.dataset.word ?? button.textContent;
  button.dataset.word = before;
  button.textContent = word;
  setTimeout(() => { button.textContent = before; }, 2_000);
}
