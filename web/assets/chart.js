// Heights over time, one line a node, with a diamond where each fault landed. Drawn by the Plotly library.

const PALETTE = ["#3b6fe0", "#0f9d76", "#d9822b", "#8f5bd6", "#d64570", "#3aa0c9", "#8a8f1f", "#b5651d", "#5b6b82", "#c2458f"];

/** The colour of the n-th node. */
export const colourOf = (position) => PALETTE[position % PALETTE.length];

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Node names and fault texts go into hover labels, where the library reads a little HTML. */
const escaped = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function layout(narrow) {
  const grid = variable("--line");
  const axis = { gridcolor: grid, linecolor: grid, zerolinecolor: grid, automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: variable("--text") },
    margin: { l: 50, r: 12, t: 28, b: 36 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--dim"), activecolor: variable("--link") },
    hovermode: "closest",
    hoverlabel: { align: "left", bgcolor: variable("--card"), bordercolor: grid, font: { color: variable("--text") } },
    legend: { orientation: "h", y: narrow ? -0.22 : -0.16 },
    xaxis: { ...axis, title: { text: "seconds since the run began", standoff: 6 }, rangemode: "tozero" },
    yaxis: { ...axis, title: { text: "height", standoff: 6 }, tickformat: "d" },
    uirevision: "keep",
  };
}

function heights(series, names) {
  return names.map((name, position) => {
    const points = series[name] ?? [];
    return {
      type: "scatter",
      mode: "lines",
      name: escaped(name),
      x: points.map(([ms]) => ms / 1000),
      y: points.map(([, height]) => height),
      connectgaps: false,
      line: { color: colourOf(position), width: 2 },
      showlegend: names.length <= 24,
      hovertemplate: `${escaped(name)}<br>%{y} at %{x:.1f} s<extra></extra>`,
    };
  });
}

function marks(faults, names) {
  const hit = faults.filter((fault) => fault.at_ms !== null && fault.height !== null);
  const text = (fault) =>
    [`${fault.name} (${fault.kind}) on ${fault.node}`, fault.landed, fault.after && `left app/state/store ${fault.after}`]
      .filter(Boolean)
      .map(escaped)
      .join("<br>");
  return {
    type: "scatter",
    mode: "markers",
    name: "faults",
    x: hit.map((fault) => fault.at_ms / 1000),
    y: hit.map((fault) => fault.height),
    text: hit.map(text),
    hovertemplate: "%{text}<extra></extra>",
    marker: {
      symbol: "diamond",
      size: 13,
      color: hit.map((fault) => colourOf(names.indexOf(fault.node))),
      line: { color: variable("--bad"), width: 2 },
    },
  };
}

/** The library measures its element once: it has to be told of every other change of size. */
const sizes = new ResizeObserver(([{ target }]) => target.data && globalThis.Plotly.Plots.resize(target));

/** Draws the chart anew; the user's zoom stays. */
export function draw(element, series, names, faults) {
  sizes.observe(element);
  const narrow = element.clientWidth < 600;
  const config = { displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  return globalThis.Plotly.react(element, [...heights(series, names), marks(faults, names)], layout(narrow), config);
}
