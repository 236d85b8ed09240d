// Draws the figures and tables of the page from the data in it. Loads nothing.
(() => {
  "use strict";

  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const PAGE_ROWS = 25;
  const NARROW = 560;
  // Above so many points a canvas is quicker than elements.
  const MANY_POINTS = 2500;

  // Cool colours are ours, warm ones the peers'; each can be told apart without colour by its
  // symbol and dashes.
  const THEMES = {
    light: {
      text: "#1c2126", muted: "#59636e", line: "#dfe3e6", surface: "#ffffff", rest: "#b3bac1",
      ours: ["#0068b0", "#33a7e0", "#332288", "#009988", "#117733", "#7a7a1f", "#5b7fd0", "#4d4d4d"],
      peers: ["#e0661a", "#b8260b", "#cf2f74", "#b08900", "#882255", "#8c5a3c", "#d08a7a", "#77618a"],
    },
    dark: {
      text: "#e4e8eb", muted: "#9ba6b0", line: "#333a41", surface: "#1b1f23", rest: "#5d666f",
      ours: ["#4db4f5", "#9fdcff", "#a9a3f5", "#3cc9b4", "#74cf83", "#cfcf70", "#8fb0ff", "#d5d9dc"],
      peers: ["#ff9a4d", "#ff6e59", "#ff7fb0", "#e8cd6a", "#dd8fc6", "#d1a283", "#ffb8a8", "#c3aed6"],
    },
  };
  const SYMBOLS = ["circle", "diamond", "rect", "triangle", "roundRect", "pin", "arrow"];
  const DASHES = ["solid", [6, 3], [2, 2], [8, 3, 2, 3]];

  const element = (name, attributes = {}, ...children) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== undefined) node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  };

  // Tables by column.

  const cell = (column, row) => {
    if (column.numbers) return column.numbers[row];
    return column.words[column.index ? column.index[row] : 0] || null;
  };

  // How the numbers of a column are written: whole ones with separators, others with the same
  // digits after the point where three digits of the least fit, else with exponents.
  const writer = (numbers) => {
    let least = Infinity;
    let most = 0;
    let whole = true;
    for (const value of numbers) {
      if (value === null || value === 0) continue;
      const size = Math.abs(value);
      least = Math.min(least, size);
      most = Math.max(most, size);
      whole = whole && Number.isInteger(value);
    }
    if (whole && most < 1e15) return (value) => value.toLocaleString("en");
    const digits = Math.max(0, 2 - Math.floor(Math.log10(least)));
    if (digits <= 6 && most < 1e7) return (value) => value.toFixed(Math.max(digits, 2));
    return (value) => (value === 0 ? "0" : value.toExponential(2));
  };

  const short = (value) => {
    if (typeof value !== "number") return value;
    if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size >= 1e-4 && size < 1e7 ? String(Number(value.toPrecision(4))) : value.toExponential(2);
  };

  const csv = (table) => {
    const quoted = (value) => {
      let text = value === null ? "" : String(value);
      // Words that a spreadsheet would take for a formula begin with an apostrophe. Numbers stay.
      if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [table.columns.map((column) => quoted(column.name)).join(",")];
    for (let row = 0; row < table.length; row += 1) {
      lines.push(table.columns.map((column) => quoted(cell(column, row))).join(","));
    }
    return lines.join("\n") + "\n";
  };

  const fileName = (title, ending) =>
    (title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) || "data") + ending;

  // A link whose file is made when it is followed.
  const download = (label, description, name, type, make) => {
    const link = element("a", { href: "#", download: name, "aria-label": description }, label);
    link.addEventListener("click", () => {
      if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
      link.href = URL.createObjectURL(new Blob([make()], { type }));
    });
    return link;
  };

  const csvLink = (title, table) =>
    download("CSV", `${title} as CSV`, fileName(title, ".csv"), "text/csv", () => csv(table));

  // A table in pages, sorted by its headings.
  const drawTable = (place, title, table, withLink) => {
    const { columns, length } = table;
    const writers = columns.map((column) => column.numbers && writer(column.numbers));
    let order = Array.from({ length }, (_, row) => row);
    let shown = order;
    let page = 0;
    let sorted = { place: -1, step: 1 };
    let texts = null;
    const body = element("tbody");
    const heads = columns.map((column, index) => {
      const button = element("button", { type: "button" }, column.name);
      button.addEventListener("click", () => sort(index));
      return element(
        "th",
        { scope: "col", "aria-sort": "none", class: column.numbers ? "number" : undefined },
        button,
      );
    });
    const text = (row) =>
      columns.map((column) => cell(column, row) ?? "").join(" ").toLowerCase();
    const sort = (index) => {
      const step = sorted.place === index ? -sorted.step : 1;
      sorted = { place: index, step };
      heads.forEach((head, other) => {
        const state = step > 0 ? "ascending" : "descending";
        head.setAttribute("aria-sort", other === index ? state : "none");
      });
      const column = columns[index];
      const compare = column.numbers
        ? (a, b) => a - b
        : (a, b) => a.localeCompare(b, "en", { numeric: true });
      const by = (a, b) => {
        const [x, y] = [cell(column, a), cell(column, b)];
        // Gaps come last, whatever the direction.
        if (x === null || y === null) return (x === null) - (y === null) || a - b;
        return step * compare(x, y) || a - b;
      };
      order = [...order].sort(by);
      filter();
    };
    const search = element("input", { type: "search", "aria-label": `Filter of ${title}`, placeholder: "Filter" });
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      if (words.length > 0 && texts === null) texts = Array.from({ length }, (_, row) => text(row));
      shown = words.length === 0 ? order : order.filter((row) => words.every((word) => texts[row].includes(word)));
      page = 0;
      fill();
    };
    search.addEventListener("input", filter);
    const position = element("span", { "aria-live": "polite" });
    const turn = (label, description, step) => {
      const button = element("button", { type: "button", "aria-label": description }, label);
      button.addEventListener("click", () => {
        page += step;
        fill();
      });
      return button;
    };
    const back = turn("Previous", `Previous rows of ${title}`, -1);
    const next = turn("Next", `Next rows of ${title}`, 1);
    const libraryColumn = columns.findIndex((column) => column.name === "library");
    const fill = () => {
      const from = page * PAGE_ROWS;
      const rows = shown.slice(from, from + PAGE_ROWS).map((row) => {
        const ours = libraryColumn >= 0 && cell(columns[libraryColumn], row) === "sparsebatch";
        return element(
          "tr",
          {},
          ...columns.map((column, index) => {
            const value = cell(column, row);
            const written = value === null ? "" : writers[index] ? writers[index](value) : value;
            const kind = column.numbers ? "number" : index === libraryColumn && ours ? "ours" : undefined;
            return element("td", { class: kind }, written);
          }),
        );
      });
      body.replaceChildren(...rows);
      const last = Math.min(from + PAGE_ROWS, shown.length);
      position.textContent = shown.length === 0 ? "no rows" : `${from + 1} to ${last} of ${shown.length.toLocaleString("en")}`;
      back.disabled = page === 0;
      next.disabled = last >= shown.length;
    };
    const bar = element("div", { class: "bar" });
    if (length > PAGE_ROWS) bar.append(search, back, next, position);
    if (withLink) bar.append(csvLink(title, table));
    const scroll = element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body),
    );
    fill();
    place.replaceChildren(...(bar.childNodes.length > 0 ? [bar] : []), scroll);
  };

  // Figures.

  const theme = () => THEMES[root.dataset.theme];

  // Colour, symbol and dashes of a role.
  const look = (role = "ours") => {
    const colours = theme();
    const [kind, number] = role.split("-");
    const at = Number(number || 0);
    const pick = (list) => list[at % list.length];
    switch (kind) {
      case "ours":
        return { colour: pick(colours.ours), symbol: pick(SYMBOLS), dash: "solid", strong: at === 0 };
      case "peer":
        return { colour: pick(colours.peers), symbol: SYMBOLS[(at + 3) % SYMBOLS.length], dash: DASHES[1 + (at % 3)] };
      case "line":
        return { colour: pick(colours.ours), symbol: "circle", dash: pick(DASHES) };
      case "rest":
        return { colour: colours.rest, symbol: "circle", dash: "solid" };
      default:
        return { colour: colours.muted, symbol: "none", dash: "solid" };
    }
  };

  const axisNumber = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e9 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
    if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
    if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
    return String(Number(value.toPrecision(3)));
  };

  // Extent of a coordinate over all points, for the ticks of a logarithmic axis.
  const extent = (series, coordinate) => {
    let [least, most] = [Infinity, 0];
    for (const { data: points } of series) {
      for (const point of points) {
        const value = point[coordinate];
        if (value > 0) [least, most] = [Math.min(least, value), Math.max(most, value)];
      }
    }
    return [least, most];
  };

  const axis = (given, coordinate, series, width) => {
    const colours = theme();
    const narrow = width < NARROW;
    const isCategory = given.type === "category";
    const isY = coordinate === 1;
    const full = {
      nameLocation: "middle",
      nameGap: isY ? 34 : 26,
      nameTextStyle: { color: colours.muted, fontSize: 12 },
      axisLine: { lineStyle: { color: colours.line } },
      axisTick: { show: !isCategory },
      splitLine: { show: !isCategory, lineStyle: { color: colours.line, opacity: 0.7 } },
      axisLabel: { color: isCategory ? colours.text : colours.muted, fontSize: narrow ? 11 : 12, hideOverlap: true },
      ...given,
    };
    if (isCategory && isY) {
      // Long names take several lines where there is room between the bars.
      const roomy = series.length > 2 || given.data.length < 12;
      Object.assign(full.axisLabel, {
        interval: 0, width: narrow ? 96 : 230, lineHeight: 13, overflow: narrow && roomy ? "break" : "truncate",
      });
    }
    if (!isCategory) full.axisLabel.formatter = axisNumber;
    if (given.type === "log" && given.min === undefined) {
      const [least, most] = extent(series, coordinate);
      if (most / least < 40) full.logBase = 2;
      if (series.some((one) => one.type === "bar")) {
        // Bars begin at the edge, not at 1.
        const base = full.logBase || 10;
        full.min = base ** Math.floor(Math.log(least * 0.7) / Math.log(base));
        full.startValue = full.min;
      }
    }
    return full;
  };

  const tipTable = (pairs) =>
    element(
      "table",
      { class: "tip" },
      ...pairs.map(([name, value]) =>
        element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, String(value))),
      ),
    );

  const rowTip = (figure, row) => {
    const pairs = figure.table.columns.map((column) => [column.name, cell(column, row)]);
    return tipTable(pairs.filter(([, value]) => value !== null).map(([name, value]) => [name, short(value)]));
  };

  // The option of Apache ECharts with colours, axes and tooltips.
  const finished = (figure, chart, hidden, width) => {
    const colours = theme();
    const given = chart.option;
    const drawn = given.series.filter((series) => !hidden.has(series.name));
    const series = drawn.map((one) => {
      const { colour, symbol, dash, strong } = look(one.role);
      const points = one.data.length;
      const full = { ...one, cursor: "default" };
      if (one.type === "bar") {
        full.itemStyle = { color: colour, borderRadius: 1 };
        full.barMaxWidth = one.stack ? undefined : 16;
        full.barGap = "12%";
        full.barCategoryGap = one.stack ? "10%" : "28%";
        full.emphasis = { itemStyle: { opacity: 0.8 } };
      } else if (one.type === "line") {
        full.itemStyle = { color: colour };
        full.lineStyle = { color: colour, width: strong ? 3 : 1.75, type: dash, ...one.lineStyle };
        full.symbol = one.symbol || symbol;
        full.symbolSize = one.symbolSize || (strong ? 8 : 7);
        full.showSymbol = points < 200;
        full.z = strong ? 4 : one.z || 3;
        full.emphasis = { lineStyle: { width: strong ? 3 : 2.5 } };
      } else {
        full.symbol = symbol;
        full.symbolSize = one.role === "rest" ? 4 : strong ? 8 : 7;
        full.itemStyle = { color: colour, opacity: one.role === "rest" ? 0.55 : 0.85 };
      }
      return full;
    });
    const option = {
      animation: false,
      backgroundColor: "transparent",
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: colours.text },
      grid: {
        left: 6, right: width < NARROW ? 14 : 22, top: 14, bottom: 6,
        outerBoundsMode: "same", outerBoundsContain: "all",
      },
      tooltip: {
        trigger: given.shared ? "axis" : "item",
        confine: true,
        backgroundColor: colours.surface,
        borderColor: colours.line,
        textStyle: { color: colours.text, fontSize: 12 },
        extraCssText: "max-width: 24rem; white-space: normal;",
        formatter: (point) => {
          if (Array.isArray(point)) {
            const x = point[0]?.axisValue;
            const values = point.map(({ seriesName, data: [, y] }) => [seriesName, short(y)]);
            return tipTable([[given.xAxis.name, short(x)], ...values]);
          }
          const one = series[point.seriesIndex];
          return one.rows ? rowTip(figure, point.data[point.data.length - 1]) : one.name;
        },
      },
      series,
    };
    option.xAxis = axis(given.xAxis, 0, given.series, width);
    option.yAxis = axis(given.yAxis, 1, given.series, width);
    if (given.dataZoom) {
      option.grid.right = 46;
      option.dataZoom = given.dataZoom.map((zoom) => ({
        ...zoom, width: 18, right: 8, showDataShadow: false, brushSelect: false, borderColor: colours.line,
        textStyle: { color: colours.muted, fontSize: 10 }, labelFormatter: "",
      }));
    }
    return option;
  };

  // XML has no control characters, not even escaped.
  const wellFormed = (svg) => svg.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");

  const points = (chart) => chart.option.series.reduce((sum, series) => sum + series.data.length, 0);

  const swatch = (series) => {
    const { colour, symbol, dash, strong } = look(series.role);
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    svg.setAttribute("width", "22");
    svg.setAttribute("height", "10");
    svg.setAttribute("aria-hidden", "true");
    const add = (name, attributes) => {
      const node = document.createElementNS(space, name);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      svg.append(node);
    };
    if (series.type === "line") {
      const dashes = series.lineStyle?.type === "dashed" ? [5, 3] : dash;
      add("line", {
        x1: 0, y1: 5, x2: 22, y2: 5, stroke: colour, "stroke-width": strong ? 3 : 2,
        "stroke-dasharray": Array.isArray(dashes) ? dashes.join(" ") : "none",
      });
    } else if (series.type === "bar") {
      add("rect", { x: 5, y: 0, width: 12, height: 10, rx: 2, fill: colour });
    } else if (symbol === "rect") {
      add("rect", { x: 7, y: 1, width: 8, height: 8, fill: colour });
    } else if (symbol === "triangle") {
      add("path", { d: "M11 1 L16 9 L6 9 Z", fill: colour });
    } else if (symbol === "diamond") {
      add("path", { d: "M11 0 L16 5 L11 10 L6 5 Z", fill: colour });
    } else {
      add("circle", { cx: 11, cy: 5, r: 4, fill: colour });
    }
    return svg;
  };

  const figures = [];

  const makeFigure = (node) => {
    const number = node.dataset.figure;
    const figure = data.figures[number];
    const place = node.querySelector(".chart");
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${figure.title}. Its numbers are in the table below.`);
    const legend = element("ul", { class: "legend", "aria-label": "Shown in the figure" });
    const state = { chart: figure.charts[0], drawn: null, hidden: new Set(), renderer: null };

    const draw = () => {
      const { chart } = state;
      const renderer = points(chart) > MANY_POINTS ? "canvas" : "svg";
      if (state.drawn && state.renderer !== renderer) {
        state.drawn.dispose();
        state.drawn = null;
      }
      place.style.height = `${chart.height}px`;
      if (!state.drawn) {
        state.drawn = echarts.init(place, null, { renderer });
        state.renderer = renderer;
      } else {
        state.drawn.resize();
      }
      state.drawn.setOption(finished(figure, chart, state.hidden, place.clientWidth), { notMerge: true });
      const items = chart.option.series.map((series) => {
        const button = element(
          "button",
          {
            type: "button", "aria-pressed": String(!state.hidden.has(series.name)),
            class: look(series.role).strong ? "is-ours" : undefined,
          },
          swatch(series),
          series.name,
        );
        button.addEventListener("click", () => {
          if (!state.hidden.delete(series.name)) state.hidden.add(series.name);
          draw();
          const again = [...legend.querySelectorAll("button")];
          again[chart.option.series.indexOf(series)].focus();
        });
        return element("li", {}, button);
      });
      legend.replaceChildren(...(items.length > 1 ? items : []));
    };

    // The figure as it is shown, with a legend in it.
    const asSvg = () => {
      const [width, height] = [Math.max(place.clientWidth, 640), state.chart.height + 60];
      const copy = echarts.init(null, null, { renderer: "svg", ssr: true, width, height });
      const option = finished(figure, state.chart, state.hidden, width);
      // Fonts stand in attributes within double quotes.
      option.textStyle.fontFamily = option.textStyle.fontFamily.replaceAll('"', "'");
      option.legend = { top: 0, left: 0, textStyle: { color: theme().text, fontSize: 12 } };
      option.grid.top = 70;
      option.backgroundColor = theme().surface;
      copy.setOption(option);
      const svg = copy.renderToSVGString();
      copy.dispose();
      return wellFormed(svg);
    };

    if (figure.charts.length > 1) {
      const choice = element(
        "select",
        { "aria-label": `Shown in ${figure.title}` },
        ...figure.charts.map((chart, index) => element("option", { value: String(index) }, chart.name)),
      );
      choice.addEventListener("change", () => {
        state.chart = figure.charts[Number(choice.value)];
        state.hidden.clear();
        draw();
      });
      place.before(element("div", { class: "bar" }, element("label", {}, "Show ", choice)));
    }
    place.before(legend);
    const details = element("details", {}, element("summary", {}, "The numbers as a table"));
    const inside = element("div");
    details.append(inside);
    details.addEventListener("toggle", () => {
      if (details.open && !inside.hasChildNodes()) drawTable(inside, figure.title, figure.table, false);
    });
    const svgLink = download(
      "SVG", `${figure.title} as SVG`, fileName(figure.title, ".svg"), "image/svg+xml", asSvg,
    );
    node.append(element("div", { class: "bar" }, csvLink(figure.title, figure.table), svgLink), details);
    figures.push({ redraw: () => state.drawn && draw(), place, width: 0, state });
    return draw;
  };

  // Theme: as the system has it, until the reader chooses.

  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null;
    }
  };
  const setTheme = (name) => {
    root.dataset.theme = name;
    const other = name === "dark" ? "Light" : "Dark";
    button.textContent = other;
    button.setAttribute("aria-label", `${other} colours`);
    for (const figure of figures) figure.redraw();
  };
  const chosen = () => (THEMES[stored()] ? stored() : system.matches ? "dark" : "light");
  setTheme(chosen());
  system.addEventListener("change", () => setTheme(chosen()));
  button.addEventListener("click", () => {
    const name = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("theme", name);
    } catch {
      // Pages without storage forget the choice.
    }
    setTheme(name);
  });

  // What comes into view is drawn, once.

  const pending = new Map();
  const watcher = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        pending.get(target)();
      }
    },
    { rootMargin: "400px" },
  );
  for (const node of document.querySelectorAll("[data-figure]")) {
    pending.set(node, makeFigure(node));
    watcher.observe(node);
  }
  for (const node of document.querySelectorAll("[data-table]")) {
    const { title, table } = data.tables[node.dataset.table];
    node.style.minHeight = `${Math.min(table.length, PAGE_ROWS) * 1.7 + 2}rem`;
    pending.set(node, () => {
      node.style.minHeight = "";
      drawTable(node, title, table, true);
    });
    watcher.observe(node);
  }
  const resized = new ResizeObserver(() => {
    for (const figure of figures) {
      const width = figure.place.clientWidth;
      if (figure.state.drawn && width !== figure.width) figure.redraw();
      figure.width = width;
    }
  });
  resized.observe(document.body);
})();
