// Small plots that move, drawn by dygraphs. Without the library, pages keep their figures and have no plots.

import { el } from "./dom.js";

// The library's legend writes inline styles, which the Content-Security-Policy of these pages refuses. The value under the
// pointer is written below the plot instead.
if (window.Dygraph) {
  window.Dygraph.PLUGINS = window.Dygraph.PLUGINS.filter((plugin) => plugin !== window.Dygraph.Plugins.Legend);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colors = () => ({
  colors: ["--line-1", "--line-2", "--line-3", "--line-4"].map(color), axisLineColor: color("--quiet"),
});
const AXIS_PX = 52;
const DIGIT_PX = 7;

const LEAST_MS = 30000; // a plot that has just begun is not stretched over its whole width

/**
 * A plot: `lines` are the names, update(rows) gets [[Date, value, ...], ...] and shows all of them. The description is for screen readers, who
 * get the figures from the text beside it.
 */
export function plot(description, lines, { format = (value) => String(value), fromZero = true } = {}) {
  const canvas = el("div", { class: "plot", role: "img", "aria-label": description });
  const pointed = el("p", { class: "pointed quiet", "aria-hidden": "true" });
  let graph = null;
  return {
    element: el("div", {}, canvas, pointed),
    update(rows) {
      if (!window.Dygraph || rows.length < 2 || !canvas.isConnected) return;
      const newest = rows.at(-1)[0].getTime();
      const dateWindow = [Math.min(newest - LEAST_MS, rows[0][0].getTime()), newest];
      const most = Math.max(...rows.flatMap(([, ...values]) => values.map((value) => Math.abs(value || 0))));
      const axisLabelWidth = Math.max(AXIS_PX, format(most).length * DIGIT_PX);
      if (graph) {
        graph.updateOptions({ file: rows, dateWindow, ...colors(), axes: { y: { axisLabelWidth } } });
        return;
      }
      graph = new window.Dygraph(canvas, rows, {
        labels: ["time", ...lines],
        dateWindow,
        ...colors(),
        strokeWidth: 1.6,
        fillGraph: lines.length === 1 && fromZero,
        fillAlpha: 0.12,
        includeZero: fromZero,
        drawPoints: false,
        connectSeparatedPoints: false,
        drawGrid: false,
        axisLabelFontSize: 11,
        highlightCallback: (_, at, points) => {
          pointed.textContent = [new Date(at).toLocaleTimeString(),
            ...points.map((point) => `${point.name} ${format(point.yval)}`)].join(" · ");
        },
        unhighlightCallback: () => { pointed.textContent = ""; },
        interactionModel: {},
        axes: {
          x: { axisLabelWidth: 60, pixelsPerLabel: 80 },
          y: { axisLabelFormatter: format, valueFormatter: format, axisLabelWidth, pixelsPerLabel: 24 },
        },
      });
    },
    end() {
      if (graph) graph.destroy();
    },
  };
}
