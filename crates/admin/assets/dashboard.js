"use strict";
// Draws what /stats.json says, once a second. Names are those of /metrics (docs/reference/metrics.md). Whatever comes from the
// server is set as text, never as markup.
(() => {
  const POINTS = 300;
  const EVERY_MS = 1000;
  // Samples of lateness are few; percentiles are of this many seconds.
  const LAG_WINDOW = 15;
  // Large figures that change with every look cannot be read; rates in tiles are of this many seconds.
  const CALM = 3;
  const COLOURS = 10;

  const $ = (id) => document.getElementById(id);
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const colour = (n) =>
    getComputedStyle(document.documentElement).getPropertyValue(typeof n === "number" ? `--c${(n % COLOURS) + 1}` : n).trim();

  // ---- Numbers for people ----

  const digits = (n) => (Math.abs(n) >= 100 || n === 0 ? 0 : Math.abs(n) >= 10 ? 1 : 2);
  const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const scaled = (n, step, units) => {
    let unit = 0;
    while (Math.abs(n) >= step * 0.9995 && unit + 1 < units.length) { n /= step; unit += 1; }
    // Nothing has hundredths of a byte, or of a connection, worth reading.
    const most = unit > 0 ? 2 : step === 1024 ? 0 : 1;
    const text = n.toFixed(Math.min(most, digits(n)));
    return [trimmed(text), units[unit]];
  };
  const parts = {
    count: (n) => scaled(n, 1000, ["", "k", "M", "G", "T"]),
    rate: (n) => { const [text, unit] = scaled(n, 1000, ["", "k", "M", "G"]); return [text, `${unit}/s`]; },
    bytes: (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
    byteRate: (n) => { const [text, unit] = scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]); return [text, `${unit}/s`]; },
    seconds: (n) => (n < 0.001 ? [(n * 1e6).toFixed(0), "µs"] : n < 1 ? [trimmed((n * 1e3).toFixed(digits(n * 1e3))), "ms"] : [trimmed(n.toFixed(digits(n))), "s"]),
    percent: (n) => [trimmed((n * 100).toFixed(n * 100 >= 99.95 ? 0 : 1)), "%"],
    text: (n) => [String(n), ""],
  };
  const show = (kind, n) => {
    if (n === null || n === undefined || Number.isNaN(n)) return "–";
    const [text, unit] = parts[kind](n);
    return unit === "" || /^[kMGT]?(\/s)?$/.test(unit) || unit === "%" ? text + unit : `${text} ${unit}`;
  };
  const duration = (s) => {
    s = Math.floor(s);
    const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
    if (d > 0) return `${d} d ${h} h`;
    if (h > 0) return `${h} h ${m} min`;
    return m > 0 ? `${m} min ${s % 60} s` : `${s} s`;
  };

  // ---- Values out of pages ----

  const points = (page, name, labels = {}) =>
    (page.metrics[name] || []).filter((p) => Object.entries(labels).every(([k, v]) => p.labels[k] === v));
  const sum = (page, name, labels) => points(page, name, labels).reduce((all, p) => all + p.value, 0);
  // Of what all have in common, such as a disk.
  const first = (page, name) => points(page, name)[0]?.value ?? 0;
  const has = (page, name) => name in page.metrics;
  // Two logs, each with a backlog of its own.
  const LOGS = [["messages", "Log of messages"], ["kv", "Log of keys"]];
  const hasLog = (page, log) => points(page, "tidewire_log_segments", { log }).length > 0;
  const by = (page, name, label, labels) => {
    const all = new Map();
    for (const p of points(page, name, labels)) all.set(p.labels[label], (all.get(p.labels[label]) || 0) + p.value);
    return all;
  };

  const pages = [];
  const current = () => pages[pages.length - 1];
  // The page to compare with: some seconds before the last.
  const earlier = (seconds) => {
    const now = current();
    let found = null;
    for (let i = pages.length - 2; i >= 0 && now.time - pages[i].time <= seconds + 0.5; i -= 1) found = pages[i];
    return found;
  };
  const rate = (name, labels, seconds = 1) => {
    const now = current(), then = earlier(seconds);
    if (!then || now.time <= then.time) return null;
    return Math.max(0, (sum(now, name, labels) - sum(then, name, labels)) / (now.time - then.time));
  };
  const lag = (share, labels) => {
    const now = current(), then = earlier(LAG_WINDOW);
    const buckets = new Map();
    const count = (page, sign) => {
      for (const p of points(page, "tidewire_loop_lag_seconds", labels)) {
        for (const b of p.buckets) buckets.set(b.le, (buckets.get(b.le) || 0) + sign * b.count);
      }
    };
    count(now, 1);
    if (then) count(then, -1);
    const all = [...buckets].sort((a, b) => (a[0] ?? Infinity) - (b[0] ?? Infinity));
    const total = all.reduce((n, [, count]) => n + count, 0);
    if (total <= 0) return null;
    let left = share * total, below = 0;
    for (const [le, n] of all) {
      if (n > 0 && left <= n) return le === null ? below : below + (le - below) * (left / n);
      left -= n;
      below = le ?? below;
    }
    return below;
  };

  // ---- Charts ----

  const charts = [];
  const lonely = (all) => [...all.keys()].filter((n) => all[n] != null && all[n - 1] == null && all[n + 1] == null);

  class Chart {
    constructor(title, kind, values, { note = "", shown = () => true } = {}) {
      Object.assign(this, { kind, values, shown, names: [], times: [], data: new Map(), plot: null, hover: null });
      this.box = make("div", "chart");
      this.box.hidden = true;
      const head = make("h2", "", title);
      head.append(make("span", "", note));
      this.area = make("div", "plot");
      this.legend = make("div", "legend");
      this.box.append(head, this.area, this.legend);
      $("charts").append(this.box);
      charts.push(this);
    }
    push(page) {
      const values = this.shown(page) ? this.values(page) : null;
      this.box.hidden = this.box.hidden && values === null;
      if (this.box.hidden) return;
      this.times.push(page.time);
      for (const name of Object.keys(values || {})) {
        if (!this.data.has(name)) this.data.set(name, new Array(this.times.length - 1).fill(null));
      }
      for (const [name, all] of this.data) all.push(values && values[name] !== undefined ? values[name] : null);
      if (this.times.length > POINTS) {
        this.times.shift();
        for (const all of this.data.values()) all.shift();
      }
      this.draw();
    }
    draw() {
      const names = [...this.data.keys()];
      if (!this.plot || names.length !== this.names.length) this.build(names);
      const end = this.times[this.times.length - 1];
      this.plot.setData([this.times, ...names.map((n) => this.data.get(n))], false);
      this.plot.batch(() => {
        // At first a minute, so that what happens can be seen; then as much as there is.
        const span = Math.min(POINTS, Math.max(60, (end - this.times[0]) * 1.05));
        this.plot.setScale("x", { min: end - span, max: end });
        this.plot.setScale("y", this.range());
      });
      this.tell();
    }
    range() {
      let most = 0;
      for (const all of this.data.values()) for (const v of all) if (v > most) most = v;
      const least = { bytes: 1024, byteRate: 1024, seconds: 0.0002, percent: 1, count: 4, rate: 4 }[this.kind];
      return { min: 0, max: Math.max(most * 1.08, least) };
    }
    build(names) {
      if (this.plot) this.plot.destroy();
      this.names = names;
      const axis = { stroke: colour("--dim"), font: "11px system-ui, sans-serif", ticks: { show: false } };
      const grid = { stroke: colour("--grid"), width: 1 };
      const binary = this.kind === "bytes" || this.kind === "byteRate";
      this.plot = new uPlot({
        width: Math.max(this.area.clientWidth, 200),
        height: 150,
        legend: { show: false },
        // Half of a time with seconds stands beyond the last tick.
        padding: [8, 30, 0, 0],
        cursor: { y: false, points: { size: 5 }, drag: { setScale: false, x: false, y: false } },
        scales: { x: { time: true, auto: false }, y: { auto: false } },
        axes: [
          { ...axis, grid: { show: false }, space: 70, size: 27, gap: 8,
            values: (_, all) => all.map((t) => new Date(t * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: t % 60 ? "2-digit" : undefined, hour12: false })),
            incrs: [15, 30, 60, 120] },
          { ...axis, grid, size: 62, space: 34,
            incrs: binary ? [...Array(50).keys()].flatMap((n) => [2 ** n, 2 ** n * 1.5]).filter(Number.isInteger) : undefined,
            values: (_, all) => all.map((v) => show(this.kind, v)) },
        ],
        series: [{}, ...names.map((name, n) => ({
          label: name, stroke: colour(n), width: 1.6, spanGaps: false,
          // Where two lines are equal, the one beneath shows through the gaps.
          dash: n === 0 ? undefined : [6, 4],
          // A value without a neighbour, the first of all for one, is no line: it is a dot.
          points: { show: true, size: 4, fill: colour(n), filter: (plot, at) => lonely(plot.data[at]) },
          fill: names.length === 1 ? `${colour(n)}22` : undefined,
        }))],
        hooks: { setCursor: [(plot) => { this.hover = plot.cursor.idx; this.tell(); }] },
      }, [this.times, ...names.map((n) => this.data.get(n))], this.area);
      if (names.length === 0) this.legend.replaceChildren(make("span", "", "Nobody has connected yet."));
      else this.legend.replaceChildren(...names.map((name, n) => {
        const entry = make("div");
        const mark = make("i");
        mark.style.color = colour(n);
        entry.append(mark, make("span", "", name), make("b"));
        return entry;
      }));
    }
    tell() {
      const at = this.hover ?? this.times.length - 1;
      this.names.forEach((name, n) => {
        this.legend.children[n].lastChild.textContent = show(this.kind, this.data.get(name)[at]);
      });
    }
    resize() {
      if (this.plot && this.area.clientWidth > 0) this.plot.setSize({ width: this.area.clientWidth, height: 150 });
    }
    repaint() {
      if (this.plot) { this.plot.destroy(); this.plot = null; this.draw(); }
    }
  }

  const ratesBy = (name, label) => (page) => {
    const all = {};
    for (const key of by(page, name, label).keys()) all[key] = rate(name, { [label]: key });
    return all;
  };
  // Services that nobody has used are left out, so that lines are few.
  const used = (page) => {
    const all = [...by(page, "tidewire_connections_accepted_total", "service")].filter(([, n]) => n > 0);
    return all.map(([service]) => service);
  };
  const ofUsed = (value) => (page) => Object.fromEntries(used(page).map((service) => [service, value(page, service)]));

  const draw = () => {
    new Chart("Connections", "count", ofUsed((page, service) => sum(page, "tidewire_connections_open", { service })), { note: "open, by service" });
    new Chart("Accepted", "rate", ofUsed((page, service) => rate("tidewire_connections_accepted_total", { service })), { note: "connections, by service" });
    new Chart("Received", "byteRate", ofUsed((page, service) => rate("tidewire_received_bytes_total", { service })), { note: "by service" });
    new Chart("Sent", "byteRate", ofUsed((page, service) => rate("tidewire_sent_bytes_total", { service })), { note: "by service" });
    new Chart("Latency of loops", "seconds", () => ({ p50: lag(0.5), p99: lag(0.99) }), { note: `from waking to answering, ${LAG_WINDOW} s` });
    new Chart("Loops busy", "percent", ratesBy("tidewire_loop_cpu_seconds_total", "loop"), { note: "processor time of each" });
    new Chart("Memory", "bytes", (page) => ({
      resident: sum(page, "process_resident_memory_bytes"),
      "held by connections": sum(page, "tidewire_held_bytes"),
      ...(has(page, "tidewire_kv_used_memory_bytes") ? { "keys and values": sum(page, "tidewire_kv_used_memory_bytes") } : {}),
    }));
    new Chart("Messages", "rate", (page) => ({
      ...(has(page, "tidewire_ingest_messages_total") ? { ingest: rate("tidewire_ingest_messages_total"), "ingest, read back": rate("tidewire_ingest_read_messages_total") } : {}),
      ...(has(page, "tidewire_ack_messages_total") ? { ack: rate("tidewire_ack_messages_total") } : {}),
    }), { shown: (page) => has(page, "tidewire_ingest_messages_total") || has(page, "tidewire_ack_messages_total") });
    for (const [log, title] of LOGS) {
      new Chart(title, "rate", () => ({
        appended: rate("tidewire_log_appended_batches_total", { log }),
        committed: rate("tidewire_log_committed_batches_total", { log }),
      }), { note: "batches", shown: (page) => hasLog(page, log) });
    }
    new Chart("Key-value commands", "rate", ratesBy("tidewire_kv_commands_total", "mode"), { note: "by protocol", shown: (page) => has(page, "tidewire_kv_commands_total") });
    new Chart("Key-value hit rate", "percent", () => ({ hits: hitRate(1) }), { note: "reads of keys that exist", shown: (page) => has(page, "tidewire_kv_hits_total") });
    new Chart("Limits reached", "rate", limitRates, { note: "of all services" });
  };
  const limitRates = (page) => {
    const all = {};
    for (const limit of by(page, "tidewire_limit_reached_total", "limit").keys()) {
      if (sum(page, "tidewire_limit_reached_total", { limit }) > 0) all[`held back: ${limit}`] = rate("tidewire_limit_reached_total", { limit });
    }
    return { refused: rate("tidewire_connections_refused_total"), stalls: rate("tidewire_loop_stalls_total"), ...all };
  };
  const hitRate = (seconds) => {
    const hits = rate("tidewire_kv_hits_total", {}, seconds), misses = rate("tidewire_kv_misses_total", {}, seconds);
    return hits + misses > 0 ? hits / (hits + misses) : null;
  };

  // ---- Tiles ----

  const tiles = new Map();
  const tile = (name, kind, value, note = "", mood = "") => {
    if (!tiles.has(name)) {
      const box = make("div", "tile");
      box.append(make("div", "label", name), make("div", "value"), make("div", "note"));
      box.children[1].append(document.createTextNode(""), make("small"));
      $("tiles").append(box);
      tiles.set(name, box);
    }
    const box = tiles.get(name);
    const [text, unit] = value === null || value === undefined ? ["–", ""] : parts[kind](value);
    box.className = `tile ${mood}`;
    box.children[1].firstChild.data = text;
    box.children[1].lastChild.textContent = unit;
    box.children[2].textContent = note;
  };

  const limitsReached = (page) => {
    const all = new Map();
    const add = (what, where, n) => {
      if (n > 0) { const key = JSON.stringify([what, where]); all.set(key, (all.get(key) || 0) + n); }
    };
    for (const p of points(page, "tidewire_limit_reached_total")) add(`${p.labels.limit} (held back)`, p.labels.loop, p.value);
    for (const p of points(page, "tidewire_connections_refused_total")) add(`refused: ${p.labels.reason}`, p.labels.service, p.value);
    const isLimit = (reason) => /^(idle|stalled|lifetime)$|_(limit|timeout|expired|deadline|late)$/.test(reason);
    for (const p of points(page, "tidewire_connections_closed_total")) {
      if (isLimit(p.labels.reason)) add(`closed: ${p.labels.reason}`, p.labels.service, p.value);
    }
    for (const p of points(page, "tidewire_ingest_pauses_total")) add(`${p.labels.limit} (reading held back)`, "ingest", p.value);
    for (const p of points(page, "tidewire_ack_pauses_total")) add(`${p.labels.limit} (reading held back)`, `ack/${p.labels.mode}`, p.value);
    for (const p of points(page, "tidewire_ingest_refused_total")) add(`refused: ${p.labels.reason}`, "ingest", p.value);
    for (const p of points(page, "tidewire_http_refused_total")) add(`refused: ${p.labels.reason}`, "http", p.value);
    for (const p of points(page, "tidewire_kv_changes_refused_total")) add("refused: disk full", "kv", p.value);
    for (const p of points(page, "tidewire_kv_clients_cut_total")) add(`cut: ${p.labels.reason}`, "kv", p.value);
    for (const p of points(page, "tidewire_kv_evicted_keys_total")) add("keys evicted", "kv", p.value);
    for (const p of points(page, "tidewire_loop_stalls_total")) add(`stall in ${p.labels.service}, ${p.labels.callback}`, p.labels.loop, p.value);
    for (const p of points(page, "tidewire_logging_dropped_lines_total")) add("log lines dropped", "logging", p.value);
    return all;
  };

  const fillTiles = (page) => {
    const refused = rate("tidewire_connections_refused_total", {}, 10);
    tile("Connections", "count", sum(page, "tidewire_connections_open"), `${show("rate", rate("tidewire_connections_accepted_total", {}, CALM))} accepted`);
    tile("Received", "byteRate", rate("tidewire_received_bytes_total", {}, CALM), `${show("bytes", sum(page, "tidewire_received_bytes_total"))} in all`);
    tile("Sent", "byteRate", rate("tidewire_sent_bytes_total", {}, CALM), `${show("bytes", sum(page, "tidewire_sent_bytes_total"))} in all`);
    const late = lag(0.99);
    tile("Loop latency, p99", "seconds", late, `p50 ${show("seconds", lag(0.5))}`, late > 0.1 ? "bad" : late > 0.02 ? "warn" : "");
    tile("Processor", "percent", rate("process_cpu_seconds_total", {}, CALM), "of one core");
    tile("Memory", "bytes", sum(page, "process_resident_memory_bytes"), `${show("bytes", sum(page, "tidewire_held_bytes"))} in connections`);
    if (has(page, "tidewire_ingest_messages_total")) {
      const of = { log: "messages" };
      const failed = sum(page, "tidewire_log_failed", of) > 0, blocked = sum(page, "tidewire_log_blocked", of) > 0;
      tile("Ingested", "rate", rate("tidewire_ingest_messages_total", {}, CALM), failed ? "the log has failed" : blocked ? "the log is blocked" : `${show("count", sum(page, "tidewire_ingest_messages_total"))} messages in all`, failed ? "bad" : blocked ? "warn" : "");
    }
    if (has(page, "tidewire_log_disk_free_bytes")) {
      const free = first(page, "tidewire_log_disk_free_bytes"), share = free / first(page, "tidewire_log_disk_size_bytes");
      tile("Disk of the log", "bytes", free, `free; it takes ${show("bytes", sum(page, "tidewire_log_used_bytes"))}`, share < 0.02 ? "bad" : share < 0.1 ? "warn" : "");
    }
    if (has(page, "tidewire_kv_commands_total")) {
      tile("Commands", "rate", rate("tidewire_kv_commands_total", {}, CALM), `${show("count", sum(page, "tidewire_kv_keys"))} ${sum(page, "tidewire_kv_keys") === 1 ? "key" : "keys"}`);
      tile("Hit rate", "percent", hitRate(10), `${show("bytes", sum(page, "tidewire_kv_used_memory_bytes"))} of data`);
    }
    const stalls = sum(page, "tidewire_loop_stalls_total");
    tile("Stalls", "count", stalls, stalls > 0 ? `${show("seconds", sum(page, "tidewire_loop_stalled_seconds_total"))} altogether` : "no loop was stuck", rate("tidewire_loop_stalls_total", {}, 30) > 0 ? "warn" : "");
    tile("Refused", "count", sum(page, "tidewire_connections_refused_total"), `${show("rate", refused)} now`, refused > 0 ? "warn" : "");
  };

  // ---- Tables ----

  // Columns: [title, class]. Rows: cells as text, or [text, class].
  const table = (id, columns, rows, none) => {
    const cell = (tag, value, column) => {
      const [text, extra] = Array.isArray(value) ? value : [value, ""];
      return make(tag, `${column} ${extra || ""}`.trim(), text);
    };
    const head = make("tr");
    const titled = columns.some(([title]) => title !== "");
    columns.forEach(([title, name]) => head.append(cell("th", title, name)));
    const body = rows.map((row) => {
      const line = make("tr");
      row.forEach((value, n) => line.append(cell("td", value, columns[n][1])));
      return line;
    });
    if (rows.length === 0) {
      const line = make("tr"), empty = make("td", "none", none);
      empty.colSpan = columns.length;
      line.append(empty);
      $(id).replaceChildren(line);
      return;
    }
    const top = make("thead"), rest = make("tbody");
    top.append(head);
    rest.append(...body);
    $(id).replaceChildren(...(titled ? [top] : []), rest);
  };
  const meter = (name, text, share) => {
    const box = make("div", "meter"), line = make("div"), bar = make("div", "bar"), fill = make("i");
    line.append(make("span", "", name), make("b", "", text));
    fill.style.width = `${Math.min(100, Math.max(0, share * 100)).toFixed(1)}%`;
    if (share > 0.95) fill.className = "bad";
    else if (share > 0.8) fill.className = "warn";
    bar.append(fill);
    box.append(line, bar);
    return box;
  };
  const pairs = (id, rows) => table(id, [["", "left dim"], ["", ""]], rows, "");

  const fillServices = (page) => {
    const where = (service) => page.listeners.filter((l) => l.service === service).map((l) => l.addr).join(", ");
    // The store's service is there also where only its other one listens: keys expire in it.
    const all = [...by(page, "tidewire_connections_accepted_total", "service")];
    const names = all.filter(([service, n]) => n > 0 || where(service)).map(([service]) => service);
    table("services",
      [["service", "left"], ["listens at", "left dim minor"], ["open", ""], ["accepted", "minor"], ["accepted/s", "minor"], ["received", ""], ["sent", ""], ["refused", "minor"], ["closed", "minor"]],
      names.map((service) => {
        const refused = sum(page, "tidewire_connections_refused_total", { service });
        const accepted = sum(page, "tidewire_connections_accepted_total", { service });
        // Services that nobody has used stand back.
        const dim = accepted > 0 ? "" : "dim";
        const row = [
          service, where(service) || "–",
          show("count", sum(page, "tidewire_connections_open", { service })),
          show("count", accepted),
          show("count", rate("tidewire_connections_accepted_total", { service })),
          show("byteRate", rate("tidewire_received_bytes_total", { service })),
          show("byteRate", rate("tidewire_sent_bytes_total", { service })),
          [show("count", refused), refused > 0 ? "warn" : dim],
          show("count", sum(page, "tidewire_connections_closed_total", { service })),
        ];
        return row.map((cell) => (Array.isArray(cell) ? cell : [cell, dim]));
      }), "No service yet.");
  };
  const fillLoops = (page) => {
    const names = [...by(page, "tidewire_loop_turns_total", "loop").keys()];
    table("loops", [["loop", "left"], ["open", ""], ["busy", ""], ["p99", ""], ["turns/s", "minor"], ["held", ""]],
      names.map((loop) => [
        loop,
        show("count", sum(page, "tidewire_connections_open", { loop })),
        points(page, "tidewire_loop_cpu_seconds_total", { loop }).length ? show("percent", rate("tidewire_loop_cpu_seconds_total", { loop }, 3)) : "–",
        show("seconds", lag(0.99, { loop })),
        show("count", rate("tidewire_loop_turns_total", { loop })),
        show("bytes", sum(page, "tidewire_held_bytes", { loop })),
      ]), "No loop runs.");
  };
  const fillLimits = (page) => {
    const then = earlier(10), before = then ? limitsReached(then) : new Map();
    const rows = [...limitsReached(page)].map(([key, n]) => ({ key, n, more: then ? n - (before.get(key) || 0) : 0 }));
    rows.sort((a, b) => b.more - a.more || b.n - a.n);
    table("limits", [["what", "left"], ["where", "left dim"], ["times", ""], ["last 10 s", ""]],
      rows.slice(0, 14).map(({ key, n, more }) => {
        const [what, where] = JSON.parse(key);
        return [what, where, show("count", n), [show("count", more), more > 0 ? "warn" : "dim"]];
      }), "None so far.");
  };
  const fillClosed = (page) => {
    const rows = [];
    for (const p of points(page, "tidewire_connections_closed_total")) {
      if (p.value > 0 && p.labels.reason !== "by_protocol") rows.push([p.labels.reason, p.labels.service, p.value]);
    }
    for (const p of points(page, "tidewire_connections_closed_by_protocol_total")) rows.push([p.labels.reason, p.labels.service, p.value]);
    rows.sort((a, b) => b[2] - a[2]);
    table("closed", [["reason", "left"], ["service", "left dim"], ["connections", ""]],
      rows.slice(0, 14).map(([reason, service, n]) => [reason, service, show("count", n)]), "None so far.");
  };
  const fillLog = (page) => {
    $("log-panel").hidden = !has(page, "tidewire_log_segments");
    if ($("log-panel").hidden) return;
    const size = first(page, "tidewire_log_disk_size_bytes"), free = first(page, "tidewire_log_disk_free_bytes");
    $("log-meters").replaceChildren(meter("Disk", `${show("bytes", free)} free of ${show("bytes", size)}`, size > 0 ? 1 - free / size : 0));
    const rows = [];
    for (const [log, title] of LOGS) {
      if (!hasLog(page, log)) continue;
      const of = { log }, of_log = (name) => sum(page, name, of);
      const appended = of_log("tidewire_log_appended_batches_total"), committed = of_log("tidewire_log_committed_batches_total");
      const segments = of_log("tidewire_log_segments");
      const state = of_log("tidewire_log_failed") > 0 ? "failed" : of_log("tidewire_log_blocked") > 0 ? "takes nothing" : log === "messages" ? "taking messages" : "taking changes";
      rows.push(
        [title, [state, state.startsWith("taking") ? "" : "warn"]],
        ["in use", `${show("bytes", of_log("tidewire_log_used_bytes"))} in ${show("count", segments)} ${segments === 1 ? "segment" : "segments"}`],
        ["batches committed", show("count", committed)],
        ["waiting for a commit", `${show("count", Math.max(0, appended - committed))} batches, ${show("bytes", of_log("tidewire_log_queued_bytes"))}`],
      );
      if (log !== "messages") continue;
      rows.push(["producers remembered", show("count", of_log("tidewire_log_producers"))]);
      const streams = points(page, "tidewire_log_stream_next_position", of);
      rows.push(...streams.slice(0, 8).map((p) => [`stream ${p.labels.stream}`, `${show("count", p.value - sum(page, "tidewire_log_stream_first_position", p.labels))} records, next ${p.value}`]));
      if (streams.length > 8) rows.push(["streams", show("count", of_log("tidewire_log_streams"))]);
    }
    pairs("log", rows);
  };
  const fillKv = (page) => {
    $("kv-panel").hidden = !has(page, "tidewire_kv_keys");
    if ($("kv-panel").hidden) return;
    const most = sum(page, "tidewire_kv_max_memory_bytes"), data = sum(page, "tidewire_kv_used_memory_bytes");
    $("kv-meters").replaceChildren(...(most > 0 ? [meter("Memory", `${show("bytes", data)} of ${show("bytes", most)}`, data / most)] : []));
    const hits = sum(page, "tidewire_kv_hits_total"), misses = sum(page, "tidewire_kv_misses_total");
    const commands = points(page, "tidewire_kv_command_calls_total").map((p) => [p.labels.command, p.value]).sort((a, b) => b[1] - a[1]);
    pairs("kv", [
      ["keys", `${show("count", sum(page, "tidewire_kv_keys"))}, ${show("count", sum(page, "tidewire_kv_keys_expiring"))} of them expire`],
      ...(most > 0 ? [] : [["memory", `${show("bytes", data)}, no limit`]]),
      ["hits since the start", hits + misses > 0 ? `${show("percent", hits / (hits + misses))} of ${show("count", hits + misses)}` : "–"],
      ["expired, evicted", `${show("count", sum(page, "tidewire_kv_expired_keys_total"))}, ${show("count", sum(page, "tidewire_kv_evicted_keys_total"))}`],
      ["error replies", show("count", sum(page, "tidewire_kv_error_replies_total"))],
      ["durability", [...by(page, "tidewire_kv_durability_info", "level").keys()].join(", ") || "–"],
      ...(has(page, "tidewire_kv_uncommitted_changes") ? [["changes not committed yet", show("count", sum(page, "tidewire_kv_uncommitted_changes"))]] : []),
      ...commands.slice(0, 5).map(([name, n]) => [name.toUpperCase(), `${show("count", n)} calls`]),
    ]);
  };
  const fillProcess = (page) => {
    const open = sum(page, "process_open_fds"), most = sum(page, "process_max_fds");
    const held = sum(page, "tidewire_held_bytes"), heldMost = sum(page, "tidewire_held_max_bytes");
    $("process-meters").replaceChildren(
      meter("Descriptors", `${show("count", open)} of ${show("count", most)}`, most > 0 ? open / most : 0),
      meter("Held by connections", `${show("bytes", held)} of ${show("bytes", heldMost)}`, heldMost > 0 ? held / heldMost : 0));
    pairs("process", [
      ["threads", show("count", sum(page, "tidewire_process_threads"))],
      ["lines logged", show("count", sum(page, "tidewire_logging_lines_total"))],
      ["lines dropped", show("count", sum(page, "tidewire_logging_dropped_lines_total"))],
      ["admin requests", show("count", sum(page, "tidewire_admin_requests_total"))],
    ]);
  };

  const fillHead = (page) => {
    const state = $("state");
    state.textContent = page.state;
    state.className = `pill ${page.state === "serving" ? "good" : ""}`;
    const facts = { engine: page.engine || "none yet", version: page.version, up: duration(page.uptime_seconds), pid: String(page.pid) };
    $("facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
      const pair = make("div", name === "pid" ? "minor" : "");
      pair.append(make("dt", "", name), make("dd", "", value));
      return pair;
    }));
    document.title = `${page.state === "serving" ? "" : `${page.state} · `}Tidewire`;
  };

  const take = (page) => {
    const last = current();
    // Another process: its counters begin anew.
    if (last && (last.pid !== page.pid || page.uptime_seconds < last.uptime_seconds)) pages.length = 0;
    pages.push(page);
    if (pages.length > 60) pages.shift();
    fillHead(page);
    fillTiles(page);
    for (const chart of charts) chart.push(page);
    for (const fill of [fillServices, fillLoops, fillLimits, fillClosed, fillLog, fillKv, fillProcess]) fill(page);
    document.body.dataset.pages = String(Number(document.body.dataset.pages || 0) + 1);
  };

  const lost = (why) => {
    $("state").textContent = "no answer";
    $("state").className = "pill bad";
    $("trouble").textContent = `The server does not answer (${why}). What is below is the last that it said; this page tries again every second.`;
    $("trouble").hidden = false;
  };
  const poll = async () => {
    const began = performance.now();
    try {
      const answer = await fetch("/stats.json", { signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const page = await answer.json();
      $("trouble").hidden = true;
      take(page);
    } catch (error) {
      lost(error.message);
    }
    setTimeout(poll, Math.max(100, EVERY_MS - (performance.now() - began)));
  };

  draw();
  let pending = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => charts.forEach((chart) => chart.resize()));
  }).observe($("charts"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.repaint()));
  poll();
})();
