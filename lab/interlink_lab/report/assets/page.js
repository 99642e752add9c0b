// The page around the chart. Nothing of a run becomes markup: elements are made here, texts are texts.
const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);

function el(tag, properties, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const seconds = (t) => t.toFixed(3) + " s";
const later = (s) => (s < 0 ? "−" : "+") + (Math.abs(s) < 10 ? (Math.abs(s) * 1000).toFixed(0) + " ms" : Math.abs(s).toFixed(1) + " s");
const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));

function brief(event) {
  return Object.entries(event)
    .filter(([key, value]) => !["t", "party", "n", "kind", "session", "identity"].includes(key) && value !== "" && value !== null)
    .map(([key, value]) => `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join("  ").slice(0, 400);
}

function eventLink(number) {
  const event = data.events[number];
  return el("a", { href: "#e" + number, text: `${seconds(event.t)} ${event.party} ${event.kind}`, class: "mono" });
}

function top() {
  const c = data.counts;
  at("title").textContent = data.scenario + (data.backend ? ` [${data.backend}]` : "");
  document.title = `${data.result}: ${data.scenario}`;
  const badge = at("result");
  badge.textContent = data.result;
  badge.classList.add(data.result.split(" ")[0].replace("no", "none"));
  at("facts").textContent = [
    `${data.seconds.toFixed(1)} s`, `${c.events} events`, `${c.messages} messages, ${c.done} done`, `${c.wakes} wakes`,
    `${c.fetches} fetches`, `${c.faults} faults`, data.seed === null ? "" : `seed ${data.seed}`, data.bug ? `seeded bug ${data.bug}` : "",
  ].filter(Boolean).join(" · ");
  if (data.replay) at("replay").append("Run it again: ", el("code", { text: data.replay }));
  if (data.error) at("error").textContent = data.error;
  at("notes").append(...data.notes.map((text) => el("li", { text })));
}

// The rule of an invariant, once where several violations of it follow each other.
function rule(v, index) {
  const before = data.violations[index - 1];
  return !v.rule || (before && before.invariant === v.invariant) ? [] : [el("span", { class: "rule", text: "The rule: " + v.rule })];
}

function violations() {
  at("wrong").hidden = !data.violations.length;
  const invariants = data.invariants, all = data.counts.violations;
  at("wrong-count").textContent = `${invariants} failed invariant${invariants === 1 ? "" : "s"}` + (all > invariants ? `, ${all} violations` : "");
  data.violations.forEach((v, index) => {
    const proof = el("span", { class: "proof" }, ...v.events.map(eventLink));
    for (const event of v.foreign) proof.append(el("span", { class: "mono", text: `not in this history: ${seconds(event.t)} ${event.party} ${event.kind}` }));
    at("violations").append(el("li", { id: "v" + (index + 1) },
      el("span", { class: "number", text: String(index + 1) }), el("span", { class: "name", text: v.invariant }),
      ": " + v.text + (v.count > 1 ? ` (found ${v.count} times)` : ""), ...rule(v, index), proof));
  });
}

function messages() {
  at("messages").append(el("tr", {}, ...["message", "from", "to", "outcome", ...data.steps, "notices", "fetches"].map((text, i) => el("th", { text, scope: "col", class: i > 3 ? "number-cell" : "" }))));
  data.messages.forEach((m, index) => {
    const show = el("button", { type: "button", text: m.token, title: "show its arrows" });
    show.addEventListener("click", () => follow(index));
    const row = el("tr", { id: "m" + index, class: m.done ? "" : "open" }, el("td", {}, show));
    for (const text of [m.sender, m.receiver, m.outcome]) row.append(el("td", { text }));
    let before = null;
    for (const step of data.steps) {
      const number = m.steps[step], cell = el("td", { class: "number-cell" });
      if (number) {
        const t = data.events[number].t;
        cell.append(el("a", { href: "#e" + number, text: before === null ? seconds(t) : later(t - before), title: seconds(t) }));
        before = t;
      } else cell.textContent = "—";
      row.append(cell);
    }
    row.append(el("td", { text: String(m.notices), class: "number-cell" }), el("td", { text: String(m.fetches), class: "number-cell" }));
    at("messages").append(row);
  });
}

function events() {
  const wanted = at("search").value.toLowerCase();
  const wrong = new Set(data.violations.flatMap((v) => v.events));
  at("events").replaceChildren(el("tr", {}, ...["", "time", "party", "event", "values"].map((text) => el("th", { text, scope: "col" }))));
  let count = 0;
  for (const [number, event] of Object.entries(data.events)) {
    if (!chart.visible(groupOf(event.kind))) continue;
    const told = brief(event);
    if (wanted && !`${event.party} ${event.kind} ${told}`.toLowerCase().includes(wanted)) continue;
    count += 1;
    at("events").append(el("tr", { class: wrong.has(+number) ? "open" : "" },
      el("td", {}, el("a", { href: "#e" + number, text: "e" + number })), el("td", { class: "number-cell", text: seconds(event.t) }),
      el("td", { text: event.party }), el("td", { text: event.kind }), el("td", { class: "values mono", text: told })));
  }
  at("found").textContent = `${count} events`;
}

function details(number) {
  const box = at("details"), event = data.events[number];
  const list = el("dl", {});
  for (const [key, value] of Object.entries(event)) {
    if (["t", "party", "kind"].includes(key)) continue;
    list.append(el("dt", { text: key }), typeof value === "object" && value !== null ? el("dd", {}, el("pre", { text: plain(value) })) : el("dd", { text: plain(value) }));
  }
  const mark = data.marks.find((m) => m[0] === number);
  box.replaceChildren(
    el("h3", { text: `${event.party} ${event.kind}` }),
    el("p", { text: `${seconds(event.t)} · event e${number}` + (mark && mark[2] > 1 ? ` · the first of ${mark[2]} until ${seconds(mark[3])}` : "") }), list);
  data.violations.forEach((v, index) => {
    if (v.events.includes(number)) box.append(el("p", {}, el("a", { href: "#v" + (index + 1), text: `proves ${index + 1}: ${v.invariant}` })));
  });
  const of = new Set(data.arrows.filter((a) => a.events.includes(number)).flatMap((a) => a.messages));
  for (const index of [...of].slice(0, 10)) {
    const show = el("button", { type: "button", text: "follow " + data.messages[index].token });
    show.addEventListener("click", () => follow(index));
    box.append(" ", show);
  }
}

function select(number, fromHash) {
  if (!data.events[number]) return;
  chart.selected = number;
  chart.show();
  chart.reveal();
  details(number);
  const name = "#e" + number;
  if (!fromHash && location.hash !== name) history.replaceState(null, "", name);
}

// The arrows of one message, strong; the same again: all.
function follow(index) {
  chart.hot = chart.hot === index ? null : index;
  document.querySelectorAll("#messages tr").forEach((row) => row.classList.toggle("hot", row.id === "m" + chart.hot));
  chart.show();
  const first = Object.values(data.messages[index].steps)[0];
  if (chart.hot !== null && first) select(first);
}

function hash() {
  const found = /^#e(\d+)$/.exec(location.hash);
  if (!found) return;
  select(+found[1], true);
  at("chart").scrollIntoView({ block: "nearest" });
}

function filters() {
  for (const group of [...new Set(Object.values(GROUPS))]) {
    const box = el("input", { type: "checkbox", checked: "" });
    box.addEventListener("change", () => {
      if (box.checked) chart.hidden.delete(group); else chart.hidden.add(group);
      chart.draw();
      events();
    });
    at("filters").append(el("label", {}, box, group));
  }
}

const chart = new Chart(data, at("scroll"), at("names"), (number) => select(number));
top();
violations();
messages();
filters();
chart.draw();
events();
at("zoom-in").addEventListener("click", () => chart.rezoom(1.6));
at("zoom-out").addEventListener("click", () => chart.rezoom(1 / 1.6));
at("zoom-all").addEventListener("click", () => chart.rezoom(0));
at("axis").addEventListener("change", () => { chart.order = at("axis").value === "order"; chart.draw(); chart.reveal(); });
at("search").addEventListener("input", events);
at("scroll").addEventListener("wheel", (e) => {
  if (!e.ctrlKey) return;
  e.preventDefault();
  chart.rezoom(e.deltaY < 0 ? 1.3 : 1 / 1.3);
}, { passive: false });
at("scroll").addEventListener("keydown", (e) => {
  const move = { ArrowRight: [1, false], ArrowLeft: [-1, false], ArrowDown: [1, true], ArrowUp: [-1, true] }[e.key];
  if (move) { const next = chart.neighbour(...move); if (next !== null) select(next); }
  else if (e.key === "+" || e.key === "=") chart.rezoom(1.6);
  else if (e.key === "-") chart.rezoom(1 / 1.6);
  else if (e.key === "0") chart.rezoom(0);
  else if (e.key === "Escape") { chart.selected = null; chart.hot = null; chart.show(); }
  else return;
  e.preventDefault();
});
// Browsers go to the anchor themselves where it is an element; the cursor and the details are ours.
window.addEventListener("hashchange", hash);
let width = at("scroll").clientWidth;
window.addEventListener("resize", () => {
  if (at("scroll").clientWidth === width) return;
  width = at("scroll").clientWidth;
  chart.draw();
});
hash();
if (!location.hash && data.violations.length && data.violations[0].events.length) details(data.violations[0].events[data.violations[0].events.length - 1]);
document.documentElement.dataset.ready = "yes";
