// One run: fetched once, then kept up to date by its stream of events until it is over.
//
// Whatever a node wrote reaches the page as text nodes only, never as HTML.

const { draw, colourOf } = await import(document.getElementById("assets").getAttribute("href"));

const page = document.getElementById("run");
const id = encodeURIComponent(page.dataset.run);
const part = (name) => document.getElementById(name);

/** An element with attributes and children; text children become text nodes. */
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const badge = (text, kind) => el("span", { class: `badge ${kind}` }, text);
const dash = (value) => (value === null || value === undefined || value === "" ? "–" : String(value));

/** Fills a table; a cell is text, an element, or a list of them. */
function fill(table, columns, rows) {
  const head = el("tr", {}, ...columns.map(([label, kind]) => el("th", { class: kind ?? "" }, label)));
  const body = rows.map((cells) =>
    el("tr", {}, ...cells.map((cell, i) =>
      el("td", { class: columns[i][1] ?? "", "data-label": columns[i][0] }, ...[cell].flat().map((c) => (typeof c === "object" ? c : el("span", {}, String(c)))))))
  );
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
}

function showVerdict(run) {
  const { verdict } = run;
  const seconds = `${(run.at_ms / 1000).toFixed(1)} s`;
  const fact = (label, value) => el("span", {}, `${label} `, el("b", {}, value));
  const landed = run.faults.filter((fault) => fault.at_ms !== null).length;
  const best = Math.max(0, ...run.nodes.map((node) => node.height ?? 0));
  const kind = verdict ? verdict.class : run.live ? "live" : "unsure";
  part("verdict").replaceChildren(
    el("div", { class: "row" },
      el("span", { class: `badge ${kind}`, id: "verdict-name" }, verdict ? verdict.name : run.phase),
      verdict && run.phase !== "ended" && el("span", { class: "dim" }, run.phase),
      el("span", {}, el("b", {}, run.topology), el("span", { class: "dim" }, ` on ${run.engine}, seed ${run.seed}`))),
    verdict && el("p", { class: "why" }, verdict.why),
    ...run.tool_errors.map((error) => el("p", { class: "why trouble" }, `midflush failed: ${error}`)),
    el("div", { class: "facts" },
      fact("time", seconds), fact("nodes", run.nodes.length), fact("faults landed", `${landed} of ${run.faults.length}`),
      fact("best height", best),
      verdict && fact("heights compared", verdict.heights_compared),
      verdict && fact("distinct app hashes", verdict.distinct_app_hashes),
      run.load && fact("transactions accepted", run.load.accepted)),
  );
}

function showFaults(run) {
  part("faults-card").hidden = run.faults.length === 0;
  const state = (fault) => {
    if (fault.proven === true) return badge("proven", "good");
    if (fault.proven === false) return badge("not proven", "bad");
    return badge(fault.stage, { landed: "live", over: "live", missed: "bad" }[fault.stage] ?? "");
  };
  fill(part("faults"),
    [["Fault"], ["Node", "nowrap"], ["Where"], ["Left app/state/store", "nowrap"], ["Down for", "num"], ["Replayed", "num"], ["Caught up after", "num"], ["", "nowrap"]],
    run.faults.map((fault) => [
      [el("span", {}, el("b", {}, fault.name), fault.occurrence > 1 ? ` ${fault.occurrence}` : ""), el("div", { class: "dim small" }, [fault.kind, fault.exit].filter(Boolean).join(", "))],
      fault.node,
      [el("div", {}, fault.landed ?? el("span", { class: "dim" }, "not landed")), el("div", { class: "dim small" }, `asked: ${fault.asked}`),
        fault.note ? el("div", { class: "small note" }, fault.note) : ""],
      [el("span", { class: "mono" }, dash(fault.after))],
      dash(fault.down), dash(fault.replayed), dash(fault.caught_up), state(fault),
    ]));
  for (const [i, row] of [...part("faults").tBodies[0].rows].entries()) {
    row.dataset.fault = run.faults[i].name;
    row.dataset.stage = run.faults[i].stage;
  }
}

function showFindings(run) {
  const findings = run.verdict?.findings ?? [];
  part("findings-card").hidden = findings.length === 0;
  const line = (label, text) => text && el("p", {}, el("b", {}, label), ` ${text}`);
  part("findings").replaceChildren(...findings.map((finding) =>
    el("div", { class: `finding ${finding.class}` },
      el("p", {}, badge(finding.verdict, finding.class), ` ${finding.node ?? ""}${finding.height === null ? "" : ` at height ${finding.height}`}`),
      line("what", finding.detail), line("why", finding.why), line("next", finding.next),
      ...finding.also.map((also) => line("also", also)),
      finding.evidence.length > 0 && el("p", { class: "dim small" }, `records ${finding.evidence.join(", ")} of the timeline`))));
  const notes = run.verdict?.notes ?? [];
  part("notes-card").hidden = notes.length === 0;
  part("notes").replaceChildren(...notes.map((note) =>
    el("li", {}, badge(note.kind, ""), ` ${note.node ? `${note.node}: ` : ""}${note.detail}`)));
}

function showNodes(run) {
  const logs = (node) => Array.from({ length: node.start }, (_, i) =>
    el("a", { href: `/api/runs/${id}/logs/${encodeURIComponent(node.name)}/${i + 1}` }, `${i + 1} `));
  const trouble = (node) => [
    ...node.troubles.map(([kind, text]) => el("div", { class: "small trouble" }, `${kind}: ${text}`)),
    ...node.holes.map(([kind, text]) => el("div", { class: "small trouble" }, `cannot see everything (${kind}): ${text}`)),
  ];
  fill(part("nodes"),
    [["Node", "nowrap"], ["Doing", "nowrap"], ["Height", "num"], ["Behind", "num"], ["Peers", "num"], ["app/state/store", "nowrap"], ["App hash"], ["Storage", "nowrap"], [run.live ? "Start" : "Logs of starts", "nowrap"], [run.verdict ? "Verdict" : "", "nowrap"]],
    run.nodes.map((node, i) => [
      [el("span", {}, el("span", { class: "swatch", style: `background:${colourOf(i)}` }), el("b", {}, node.name)), el("div", { class: "dim small" }, [node.role, node.place].filter(Boolean).join(", ")), ...trouble(node)],
      [el("span", {}, el("span", { class: `dot ${node.class}` }), node.doing), node.rpc_silent && node.class !== "down" && run.live ? el("div", { class: "small trouble" }, `RPC: ${node.rpc_silent}`) : ""],
      dash(node.height), node.behind || "–", dash(node.peers),
      [el("span", { class: "mono" }, dash(node.heights))],
      [el("span", { class: "mono hash", title: node.app_hash }, dash(node.app_hash))],
      dash(node.storage),
      run.live ? node.start : [el("span", {}, ...logs(node))],
      node.verdict ? badge(node.verdict === "CONVERGED" ? "agrees" : node.verdict, node.verdict === "CONVERGED" ? "good" : "bad") : "",
    ]));
  for (const [i, row] of [...part("nodes").tBodies[0].rows].entries()) {
    row.dataset.node = run.nodes[i].name;
    row.dataset.height = run.nodes[i].height ?? "";
  }
}

function showSyncs(run) {
  part("syncs-card").hidden = run.syncs.length === 0;
  const columns = (first) => [[first, "nowrap"], ["Mode", "nowrap"], ["Tier", "nowrap"], ["Store", "nowrap"], ["Blocks", "num"], ["Syncs a block", "num"], ["Syncs a flush", "num"], ["p50", "num"], ["p99", "num"], ["Longest", "num"]];
  const rows = (table) => table.map((row) => [row.node, row.mode, row.tier, row.store, row.blocks, row.per_block, row.per_flush, dash(row.p50), dash(row.p99), dash(row.max)]);
  fill(part("syncs"), columns("Group"), rows(run.syncs));
  part("syncs-each").hidden = run.node_syncs.length === 0;
  fill(part("syncs-nodes"), columns("Node"), rows(run.node_syncs));
}

function showFacts(run) {
  part("again").textContent = run.again;
  const facts = [["Run", run.run], ["Started", run.started], ["Chain", run.family], ["Machine", run.machine], ...run.builds.map(([name, digest]) => [`Build ${name}`, digest])];
  part("facts").replaceChildren(...facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, dash(value))]));
  const files = ["topology.yaml", "plan.json", "binding.json", "timeline.ndjson", "verdict.json"];
  part("files").replaceChildren(el("span", { class: "dim" }, "Files: "), ...files.flatMap((name) => [el("a", { href: `/api/runs/${id}/files/${name}` }, name), " "]));
}

let series = {};
let current = null;

function show(run) {
  current = run;
  page.dataset.state = run.live ? "live" : "over";
  showVerdict(run);
  showFaults(run);
  showFindings(run);
  showNodes(run);
  showSyncs(run);
  showFacts(run);
  const names = run.nodes.map((node) => node.name);
  draw(part("chart"), series, names, run.faults);
}

async function load() {
  const answer = await fetch(`/api/runs/${id}`);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error);
  series = body.series.nodes;
  show(body.summary);
  return body.summary;
}

function follow(after) {
  const events = new EventSource(`/runs/${id}/events?after=${after}`);
  events.addEventListener("update", (event) => {
    const { summary, points } = JSON.parse(event.data);
    for (const [name, ms, height] of points) (series[name] ??= []).push([ms, height]);
    show(summary);
  });
  events.addEventListener("end", () => {
    events.close();
    load();
  });
}

part("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(part("again").textContent);
    part("copy").textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(part("again"));
  }
});

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => current && show(current));

try {
  const run = await load();
  if (run.live) follow(run.next_seq - 1);
} catch (error) {
  part("verdict").replaceChildren(el("p", { class: "why trouble" }, `The run cannot be shown: ${error.message}`));
}
