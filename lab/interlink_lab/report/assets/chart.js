// The timeline as SVG: draws what `data` holds; texts go in by textContent alone.
const NS = "http://www.w3.org/2000/svg";
const LANE = 42, GAP = 12, TOP = 44, PAD = 26;
const GROUPS = {
  send: "messages", relay: "messages", record: "messages", notice: "notices and wakes", wake: "notices and wakes",
  fetch: "reads", ack: "reads", process: "processes", fault: "faults", log: "log lines", lab: "other",
};

function groupOf(kind) {
  const head = kind.split(".")[0];
  if (["send", "fetch", "ack", "wake", "fault", "log"].includes(head)) return head;
  return {
    history: "fetch", record: "record", inbox: "notice", queue: "notice", failed: "notice", armed: "notice",
    unarmed: "notice", turn: "wake", clear: "wake", start: "process", exit: "process", says: "log",
  }[head] || "lab";
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(NS, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function words(x, y, text, name) {
  const node = svg("text", { x, y });
  if (name) node.setAttribute("class", name);
  node.textContent = text;
  return node;
}

class Chart {
  constructor(data, host, names, pick) {
    Object.assign(this, { data, host, names, pick, zoom: 1, order: false, hidden: new Set(), selected: null, hot: null });
    let y = TOP, last = null;
    this.y = data.lanes.map((lane) => {
      if (last !== null && lane.group !== last) y += GAP;
      last = lane.group;
      y += LANE;
      return y - LANE / 2;
    });
    this.height = y + 10;
    this.steps = data.marks.map((m) => data.events[m[0]].t)
      .concat(data.arrows.flatMap((a) => a.points.map((p) => p[1]))).sort((a, b) => a - b)
      .filter((t, i, all) => i === 0 || t > all[i - 1]).map((t, i) => [t, i]);
  }

  // Whether a text of this width has room there, in its row; takes the room.
  room(row, x, width) {
    const taken = (this.texts[row] ||= []);
    if (taken.some(([a, b]) => x < b && x + width > a)) return false;
    taken.push([x, x + width]);
    return true;
  }

  knots() { return this.order && this.steps.length > 1 ? this.steps : this.data.knots; }

  // Place of a time on the axis.
  x(t) {
    const k = this.knots();
    let low = 0, high = k.length - 1;
    while (high - low > 1) {
      const mid = (low + high) >> 1;
      if (k[mid][0] <= t) low = mid; else high = mid;
    }
    const [t0, u0] = k[low], [t1, u1] = k[high];
    const part = t1 > t0 ? Math.min(1, Math.max(0, (t - t0) / (t1 - t0))) : 0;
    return PAD + (u0 + part * (u1 - u0)) * this.unit;
  }

  visible(group) { return !this.hidden.has(GROUPS[group]); }

  draw() {
    const k = this.knots(), whole = k[k.length - 1][1] || 1;
    const room = Math.max(260, this.host.clientWidth - 2 * PAD - 4);
    this.unit = (room * this.zoom) / whole;
    this.texts = {};
    const width = room * this.zoom + 2 * PAD;
    const root = svg("svg", { width, height: this.height, role: "img", "aria-label": "Timeline: lanes, arrows, faults" });
    this.root = root;
    root.append(this.markers());
    this.lanes(root, width);
    this.axis(root);
    this.bars(root);
    this.bands(root);
    this.arrows(root);
    this.marks(root);
    this.flags(root);
    this.over = svg("g", {});
    root.append(this.over);
    this.host.replaceChildren(root);
    this.labels();
    this.show();
  }

  markers() {
    const defs = svg("defs", {});
    for (const kind of ["send", "relay", "notice", "wake", "fetch", "ack"]) {
      defs.append(svg("marker", {
        id: "head-" + kind, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8,
        markerUnits: "userSpaceOnUse", orient: "auto",
      }, svg("path", { d: "M0 0.6 L8 4 L0 7.4 z", class: "k-" + kind, stroke: "none" })));
    }
    return defs;
  }

  labels() {
    this.names.replaceChildren();
    this.names.style.height = this.height + "px";
    this.data.lanes.forEach((lane, i) => {
      const box = document.createElement("div"), name = document.createElement("b"), part = document.createElement("span");
      name.textContent = lane.group;
      name.title = lane.name;
      part.textContent = lane.label === lane.group ? "" : lane.label;
      box.append(name, part);
      box.style.top = this.y[i] - LANE / 2 + "px";
      box.style.height = LANE + "px";
      this.names.append(box);
    });
  }

  lanes(root, width) {
    this.data.lanes.forEach((lane, i) => {
      root.append(svg("rect", { x: 0, y: this.y[i] - LANE / 2, width, height: LANE, class: "grouping", opacity: .55 }));
      root.append(svg("line", { x1: 0, x2: width, y1: this.y[i], y2: this.y[i], class: "lane" }));
    });
  }

  axis(root) {
    const taken = [], end = this.height - 6;
    if (!this.order) {
      for (const [a, b] of this.data.cuts) {
        const x = this.x(a), w = this.x(b) - x;
        root.append(svg("rect", { x, y: TOP - 8, width: Math.max(w, 2), height: end - TOP + 8, class: "cut", opacity: .8 }));
        if (w < 34) continue;
        const label = words(x + w / 2, TOP - 12, "⋯ " + (b - a).toFixed(1) + " s");
        label.setAttribute("text-anchor", "middle");
        root.append(label);
        taken.push([x + w / 2 - 24, x + w / 2 + 24]);
      }
    }
    const first = this.knots()[0][0], last = this.knots()[this.knots().length - 1][0];
    for (const step of [60, 10, 5, 2, 1, .5, .2, .1, .05, .02, .01, .005, .002, .001]) {
      if ((last - first) / step > 4000) break;
      for (let n = Math.ceil(first / step); n * step <= last; n += 1) {
        const x = this.x(n * step), label = +(n * step).toFixed(3) + " s";
        if (this.data.cuts.some(([a, b]) => a < n * step && n * step < b)) continue;
        if (taken.some(([a, b]) => x + 26 > a && x - 26 < b)) continue;
        taken.push([x - 26, x + 26]);
        const text = words(x, TOP - 12, label);
        text.setAttribute("text-anchor", "middle");
        root.append(text, svg("line", { x1: x, x2: x, y1: TOP - 8, y2: end, class: "tick" }));
      }
    }
  }

  bars(root) {
    for (const bar of this.data.bars) {
      if (!this.visible(bar.kind === "life" ? "process" : bar.kind === "turn" ? "wake" : "notice")) continue;
      const x = this.x(bar.begin), w = Math.max(1.5, this.x(bar.end) - x), y = this.y[bar.lane];
      const shape = { life: [y - 11, 22], turn: [y - 7, 14], armed: [y + 13, 4] }[bar.kind];
      const node = svg("rect", { x, y: shape[0], width: w, height: shape[1], rx: 2, class: bar.kind });
      const title = svg("title", {});
      title.textContent = `${{ life: "process", turn: "turn", armed: "listener armed" }[bar.kind]} ${bar.begin.toFixed(3)} to ${bar.end.toFixed(3)} s ${bar.ends}`;
      node.append(title);
      node.addEventListener("click", () => this.pick(bar.event));
      root.append(node);
      if (bar.violent) {
        const e = x + w;
        root.append(svg("path", { d: `M${e - 5} ${y - 5} l10 10 m0 -10 l-10 10`, class: "death" }));
      }
    }
  }

  bands(root) {
    if (!this.visible("fault")) return;
    for (const band of this.data.bands) {
      const x = this.x(band.begin), w = Math.max(3, this.x(band.end) - x);
      const group = svg("g", { class: "mark fault-band" }), title = svg("title", {});
      title.textContent = `fault ${band.fault} on ${band.target}, ${band.begin.toFixed(3)} to ${band.end.toFixed(3)} s`;
      group.append(title);
      for (const lane of band.lanes) {
        group.append(svg("rect", { x, y: this.y[lane] - LANE / 2, width: w, height: LANE, class: "band" }));
      }
      const top = Math.min(...band.lanes);
      if (this.room("band" + top, x, band.fault.length * 6.4 + 6)) {
        group.append(words(x + 3, this.y[top] - LANE / 2 + 10, band.fault, "band-name"));
      }
      group.addEventListener("click", () => this.pick(band.event));
      root.append(group);
    }
  }

  arrows(root) {
    this.drawn = [];
    this.data.arrows.forEach((arrow) => {
      if (!this.visible(arrow.kind)) return;
      const points = arrow.points.map(([lane, t]) => [this.x(t), this.y[lane]]);
      const d = "M" + points.map(([x, y]) => `${x.toFixed(1)} ${y}`).join(" L");
      const group = svg("g", { class: "arrow" + (arrow.failed ? " failed" : "") });
      const title = svg("title", {});
      title.textContent = arrow.label + (arrow.count > 1 ? ` (and ${arrow.count - 1} more)` : "");
      group.append(title, svg("path", { d, class: "hit" }));
      const way = svg("path", { d, class: "way k-" + arrow.kind });
      if (!arrow.failed) way.setAttribute("marker-end", `url(#head-${arrow.kind})`);
      group.append(way);
      const [x, y] = points[points.length - 1];
      if (arrow.failed) group.append(svg("path", { d: `M${x - 4} ${y - 4} l8 8 m0 -8 l-8 8`, class: "cross" }));
      const [x0, y0] = points[0], many = arrow.count > 1 ? "×" + arrow.count : "";
      if (many && this.room(`count${y}${y0}`, x + 4, many.length * 6 + 26)) group.append(words(x + 4, (y + y0) / 2, many, "count"));
      if (arrow.kind === "send" && arrow.messages.length === 1 && !many) {
        const token = this.data.messages[arrow.messages[0]].token.slice(0, 24), up = y > y0;
        if (this.room("token" + y0, x0 - 4, token.length * 5.6 + 6)) group.append(words(x0 - 4, y0 + (up ? -14 : 21), token, "token"));
      }
      group.addEventListener("click", () => this.pick(arrow.events[arrow.events.length - 1]));
      this.drawn.push([group, new Set(arrow.messages)]);
      root.append(group);
    });
  }

  spot(number) {
    const event = this.data.events[number], lane = this.data.lane_of[number];
    const group = groupOf(event.kind);
    const shift = group === "log" ? -12 : group === "record" || event.party.endsWith(".files") ? 9 : 0;
    return [this.x(event.t), this.y[lane] + shift, group];
  }

  marks(root) {
    this.shown = [];
    for (const [number, , count] of this.data.marks) {
      const [x, y, group] = this.spot(number);
      if (!this.visible(group)) continue;
      const event = this.data.events[number];
      const node = svg("g", { class: "mark k-" + group, id: "e" + number });
      const title = svg("title", {});
      title.textContent = `${event.t.toFixed(3)} s  ${event.party}  ${event.kind}` + (count > 1 ? ` ×${count}` : "");
      node.append(title);
      if (group === "log") node.append(svg("rect", { x: x - 1.2, y: y - 3.5, width: 2.4, height: 7 }));
      else if (group === "process") node.append(svg("rect", { x: x - 2, y: y - 8, width: 4, height: 16, rx: 1 }));
      else if (group === "record" || group === "lab") node.append(svg("path", { d: `M${x} ${y - 4.5} l4.5 4.5 l-4.5 4.5 l-4.5 -4.5 z` }));
      else node.append(svg("circle", { cx: x, cy: y, r: 3.6 }));
      const many = count > 1 ? "×" + count : "";
      if (many && this.room("mark" + y, x + 4, many.length * 6 + 26)) node.append(words(x + 4, y - 5, many, "count"));
      node.addEventListener("click", () => this.pick(number));
      this.shown.push({ number, x, y, lane: this.data.lane_of[number], node });
      root.append(node);
    }
    this.shown.sort((a, b) => a.x - b.x || a.number - b.number);
  }

  flags(root) {
    const used = [], spots = [];
    this.data.violations.forEach((violation, index) => {
      violation.events.forEach((number, at) => {
        const [x, y] = this.spot(number);
        root.append(svg("circle", { cx: x, cy: y, r: 8, class: "ring" }));
        const mark = root.querySelector("#e" + number);
        if (mark) mark.classList.add("wrong");
        if (at !== violation.events.length - 1) return;
        let fx = x;
        while (used.some((u) => Math.abs(u - fx) < 17)) fx += 17;
        used.push(fx);
        spots.push([fx, violation.invariant]);
        const flag = svg("g", { class: "mark flagged" });
        flag.append(svg("line", { x1: x, x2: x, y1: 18, y2: this.height - 6, class: "flag-line" }));
        flag.append(svg("circle", { cx: fx, cy: 11, r: 8.5, class: "flag" }), words(fx, 15, String(index + 1), "flag-text"));
        flag.addEventListener("click", () => this.pick(number));
        root.append(flag);
      });
    });
    // The name of an invariant next to its flag, where the next flag leaves room.
    for (const [fx, name] of spots) {
      const width = name.length * 6.9 + 18, end = this.root.getAttribute("width") - 4;
      const free = (a, b) => b < end && a > 0 && !used.some((u) => u !== fx && u + 10 > a && u - 10 < b);
      if (free(fx + 10, fx + width) && this.room("flag", fx + 10, width)) root.append(words(fx + 12, 15, name, "flag-name"));
      else if (free(fx - width, fx - 10) && this.room("flag", fx - width, width - 10)) {
        const text = words(fx - 12, 15, name, "flag-name");
        text.setAttribute("text-anchor", "end");
        root.append(text);
      }
    }
  }

  // Cursor at the selected event, strong arrows for the chosen messages.
  show() {
    this.over.replaceChildren();
    const hot = this.hot;
    this.root.setAttribute("class", hot === null ? "" : "dim");
    for (const [node, messages] of this.drawn) node.classList.toggle("hot", hot !== null && messages.has(hot));
    if (this.selected === null) return;
    const [x, y] = this.spot(this.selected);
    this.over.append(svg("line", { x1: x, x2: x, y1: 20, y2: this.height - 6, class: "cursor" }));
    this.over.append(svg("circle", { cx: x, cy: y, r: 10, class: "cursor-ring" }));
  }

  reveal() {
    if (this.selected === null) return;
    const [x] = this.spot(this.selected), left = this.host.scrollLeft;
    if (x < left + 30 || x > left + this.host.clientWidth - 30) this.host.scrollLeft = x - this.host.clientWidth / 2;
  }

  // Zoom about the middle of what is seen, or about the selected event.
  rezoom(factor) {
    const middle = (this.host.scrollLeft + this.host.clientWidth / 2 - PAD) / (this.unit || 1);
    this.zoom = Math.min(400, Math.max(1, factor === 0 ? 1 : this.zoom * factor));
    this.draw();
    if (this.selected !== null) this.host.scrollLeft = this.spot(this.selected)[0] - this.host.clientWidth / 2;
    else this.host.scrollLeft = middle * this.unit + PAD - this.host.clientWidth / 2;
  }

  // The mark next to the selected one: by time, or in another lane.
  neighbour(step, lane) {
    if (!this.shown.length) return null;
    const at = this.shown.findIndex((m) => m.number === this.selected);
    if (at < 0) return this.shown[0].number;
    if (!lane) return this.shown[Math.min(this.shown.length - 1, Math.max(0, at + step))].number;
    const here = this.shown[at];
    for (let want = here.lane + step; want >= 0 && want < this.y.length; want += step) {
      const there = this.shown.filter((m) => m.lane === want);
      if (there.length) return there.reduce((a, b) => (Math.abs(b.x - here.x) < Math.abs(a.x - here.x) ? b : a)).number;
    }
    return here.number;
  }
}
