// The neighbourhood of a record as a picture: a force layout of its own, reachable by keyboard.

const SVG = "http://www.w3.org/2000/svg";
const REPULSION = 9_000;
const SPRING = 0.09;
const GRAVITY = 0.01;
const FRICTION = 0.62;
const COOLING = 0.985;
const COLD = 0.02;
const LABELS_FOR_ALL = 18;
const NAMED_EDGES = 16;
const LEGIBLE = 0.55;
const LABEL_CHARACTERS = 34;

/** Fetch the graph of `place` and draw it there. */
export async function showGraph(place) {
  const answer = await fetch(place.dataset.graph, { headers: { Accept: "application/json" } });
  if (!answer.ok) { place.hidden = true; return; }
  const found = await answer.json();
  if (found.nodes.length < 2) { place.hidden = true; return; }
  const layout = new Layout(found.nodes, found.edges);
  const picture = new Picture(place, layout);
  run(layout, picture);
}

/** Frames until the layout has come to rest; a reader who wants no motion sees only the end. */
function run(layout, picture) {
  const frames = { count: 0, started: performance.now() };
  picture.place.dataset.state = "moving"; // no labels while everything moves: drawing them is what takes long
  const finish = () => {
    picture.draw();
    if (!picture.moved) picture.fit();
    const seconds = (performance.now() - frames.started) / 1_000;
    picture.place.dataset.frames = String(frames.count);
    picture.place.dataset.framesPerSecond = (frames.count / Math.max(seconds, 0.001)).toFixed(1);
    picture.place.dataset.state = "still";
  };
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    while (layout.step());
    finish();
    return;
  }
  for (let ahead = 0; ahead < 40; ahead += 1) layout.step();
  const frame = () => {
    if (!picture.place.isConnected) return;
    frames.count += 1;
    const moving = layout.step();
    picture.draw();
    if (!picture.moved) picture.fit();
    if (moving) requestAnimationFrame(frame);
    else finish();
  };
  requestAnimationFrame(frame);
}

/** Positions by springs along edges and repulsion between all. The first node is the centre and stays there. */
export class Layout {
  constructor(nodes, edges) {
    const at = new Map();
    this.nodes = nodes.map((node, index) => {
      const angle = index * 2.399963; // the golden angle: no two begin in one place
      const radius = 26 * Math.sqrt(index);
      const one = { ...node, x: radius * Math.cos(angle), y: radius * Math.sin(angle), vx: 0, vy: 0, near: new Set() };
      at.set(node.id, one);
      return one;
    });
    this.edges = edges
      .map((edge) => ({ name: edge.name, from: at.get(edge.from), to: at.get(edge.to) }))
      .filter((edge) => edge.from && edge.to && edge.from !== edge.to);
    for (const { from, to } of this.edges) { from.near.add(to); to.near.add(from); }
    this.heat = 1;
  }

  /** One step; whether it still moves. */
  step() {
    const { nodes } = this;
    const count = nodes.length;
    for (let i = 0; i < count; i += 1) {
      const a = nodes[i];
      for (let j = i + 1; j < count; j += 1) {
        const b = nodes[j];
        const dx = a.x - b.x || 0.01 * (i - j);
        const dy = a.y - b.y || 0.01;
        const square = Math.max(dx * dx + dy * dy, 60);
        if (square > 490_000) continue;
        const names = a.kind === "page" && b.kind === "page" ? 3 : 1; // pages carry names, which need room
        const push = (names * REPULSION * this.heat) / (square * Math.sqrt(square));
        a.vx += dx * push; a.vy += dy * push;
        b.vx -= dx * push; b.vy -= dy * push;
      }
    }
    for (const { from, to } of this.edges) {
      const dx = to.x - from.x;
      const dy = to.y - from.y;
      const distance = Math.hypot(dx, dy) || 1;
      const pages = from.kind === "page" && to.kind === "page";
      const length = (pages ? 150 : 90) + 4 * Math.min(from.near.size + to.near.size, 30);
      const pull = (SPRING * this.heat * (distance - length)) / distance / Math.sqrt(Math.min(from.near.size, to.near.size) || 1);
      from.vx += dx * pull; from.vy += dy * pull;
      to.vx -= dx * pull; to.vy -= dy * pull;
    }
    nodes.forEach((node, index) => {
      node.vx -= node.x * GRAVITY * this.heat;
      node.vy -= node.y * GRAVITY * this.heat;
      node.vx *= FRICTION; node.vy *= FRICTION;
      if (index === 0) { node.x = node.y = 0; return; }
      node.x += Math.max(-40, Math.min(40, node.vx));
      node.y += Math.max(-40, Math.min(40, node.vy));
    });
    this.heat *= COOLING;
    return this.heat > COLD;
  }
}

class Picture {
  constructor(place, layout) {
    this.place = place;
    this.layout = layout;
    this.view = { x: 0, y: 0, scale: 1 };
    this.moved = false;
    this.svg = made("svg", { role: "group", "aria-label": `Graph of ${layout.nodes.length} records` });
    this.world = made("g");
    this.svg.append(this.world);
    // One path a kind of edge: a frame changes three attributes, however many edges there are.
    this.paths = { plain: made("path", { class: "edge" }), typed: made("path", { class: "edge typed" }),
                   near: made("path", { class: "edge near" }) };
    this.world.append(...Object.values(this.paths));
    this.lit = null;
    const typed = layout.edges.filter(isTyped);
    this.names = typed.length <= NAMED_EDGES ? typed.map((edge) => this.#name(edge)) : [];
    this.groups = layout.nodes.map((node, index) => this.#node(node, index));
    place.append(this.svg);
    this.size = this.svg.getBoundingClientRect();
    new ResizeObserver(() => {
      this.size = this.svg.getBoundingClientRect();
      if (!this.moved) this.fit();
    }).observe(this.svg);
    this.#listen();
    this.draw();
    this.fit();
  }

  #name(edge) {
    const name = made("text", { class: "edge-name" });
    name.textContent = edge.name;
    this.world.append(name);
    return { edge, name };
  }

  #node(node, index) {
    const few = this.layout.nodes.length <= LABELS_FOR_ALL;
    const far = index && !few && (node.kind !== "page" || (this.layout.nodes.length > 90 && node.near.size < 3));
    const classes = ["node", node.kind, index ? "" : "centre", far ? "far" : ""].filter(Boolean).join(" ");
    const connections = `${node.near.size} connection${node.near.size === 1 ? "" : "s"}`;
    const link = made("a", { class: classes, href: node.open, "aria-label": `${node.kind} ${node.title}, ${connections}` });
    const size = 5 + Math.min(Math.sqrt(node.near.size) * 1.8, 9) + (index ? 0 : 4);
    const shape = node.kind === "page"
      ? made("rect", { x: -size, y: -size, width: 2 * size, height: 2 * size, rx: size / 2.6 })
      : made("circle", { r: size * 0.72 });
    const label = made("text", { x: size + 4, y: 4 });
    label.textContent = node.title.length > LABEL_CHARACTERS ? `${node.title.slice(0, LABEL_CHARACTERS - 1)}…` : node.title;
    const whole = made("title");
    whole.textContent = node.title;
    link.append(whole, shape, label);
    link.addEventListener("focus", () => this.#highlight(index, true));
    link.addEventListener("blur", () => this.#highlight(index, false));
    link.addEventListener("pointerenter", () => this.#highlight(index, true));
    link.addEventListener("pointerleave", () => this.#highlight(index, false));
    link.addEventListener("keydown", (event) => this.#key(event, index));
    this.world.append(link);
    return link;
  }

  draw() {
    const { nodes, edges } = this.layout;
    this.paths.plain.setAttribute("d", edges.filter((edge) => !isTyped(edge)).map(drawn).join(""));
    this.paths.typed.setAttribute("d", edges.filter(isTyped).map(drawn).join(""));
    this.#light();
    for (const { edge: { from, to }, name } of this.names) {
      name.setAttribute("x", round((from.x + to.x) / 2));
      name.setAttribute("y", round((from.y + to.y) / 2 - 3));
    }
    nodes.forEach((node, index) => this.groups[index].setAttribute("transform", `translate(${round(node.x)} ${round(node.y)})`));
  }

  /** Show all of it. */
  fit() {
    const { width, height } = this.size;
    if (!width || !height) return;
    let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
    for (const node of this.layout.nodes) {
      left = Math.min(left, node.x - 30); right = Math.max(right, node.x + 170);
      top = Math.min(top, node.y - 30); bottom = Math.max(bottom, node.y + 30);
    }
    const scale = Math.min(width / (right - left), height / (bottom - top), 1.6);
    if (scale < LEGIBLE) { // a narrow screen shows the middle rather than everything too small to read
      this.view = { scale: LEGIBLE, x: width / 2, y: height / 2 };
      this.#show();
      return;
    }
    this.view = { scale, x: width / 2 - (scale * (left + right)) / 2, y: height / 2 - (scale * (top + bottom)) / 2 };
    this.#show();
  }

  #show() {
    const { x, y, scale } = this.view;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    this.world.style.setProperty("--grown", Math.min(Math.max(1 / scale, 1), 1.7)); // names stay legible from afar
  }

  #zoom(factor, x, y) {
    const scale = Math.max(0.15, Math.min(4, this.view.scale * factor));
    const by = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * by, y: y - (y - this.view.y) * by };
    this.moved = true;
    this.#show();
  }

  #highlight(index, on) {
    const node = this.layout.nodes[index];
    this.groups[index].classList.toggle("near", on);
    this.layout.nodes.forEach((other, at) => {
      if (node.near.has(other)) this.groups[at].classList.toggle("near", on);
    });
    this.lit = on ? node : null;
    this.#light();
  }

  #light() {
    const near = this.lit === null ? [] : this.layout.edges.filter(({ from, to }) => from === this.lit || to === this.lit);
    this.paths.near.setAttribute("d", near.map(drawn).join(""));
  }

  /** Arrow keys go to the next record in that direction. */
  #key(event, index) {
    const towards = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!towards) return;
    event.preventDefault();
    const here = this.layout.nodes[index];
    let best = -1, least = Infinity;
    this.layout.nodes.forEach((node, at) => {
      const dx = node.x - here.x, dy = node.y - here.y;
      const along = dx * towards[0] + dy * towards[1];
      const across = Math.abs(dx * towards[1] + dy * towards[0]);
      if (at === index || along <= 0 || across > 2 * along) return;
      const cost = along + 2 * across;
      if (cost < least) { least = cost; best = at; }
    });
    if (best >= 0) this.groups[best].focus();
  }

  #listen() {
    let drag = null;
    this.svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.#zoom(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    this.svg.addEventListener("pointerdown", (event) => {
      if (event.target.closest("a")) return;
      drag = { x: event.clientX - this.view.x, y: event.clientY - this.view.y };
      this.svg.setPointerCapture(event.pointerId);
      this.svg.classList.add("dragging");
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (drag === null) return;
      this.view.x = event.clientX - drag.x;
      this.view.y = event.clientY - drag.y;
      this.moved = true;
      this.#show();
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.svg.addEventListener(end, () => { drag = null; this.svg.classList.remove("dragging"); });
    }
    this.svg.addEventListener("keydown", (event) => {
      const box = this.svg.getBoundingClientRect();
      if (event.key === "+" || event.key === "=") this.#zoom(1.25, box.width / 2, box.height / 2);
      else if (event.key === "-") this.#zoom(0.8, box.width / 2, box.height / 2);
      else if (event.key === "0") { this.moved = false; this.fit(); }
    });
  }
}

function isTyped(edge) {
  return !["links to", "says of", "rests on"].includes(edge.name);
}

function drawn({ from, to }) {
  return `M${round(from.x)} ${round(from.y)}L${round(to.x)} ${round(to.y)}`;
}

function round(value) {
  return Math.round(value * 10) / 10;
}

function made(name, attributes = {}) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
