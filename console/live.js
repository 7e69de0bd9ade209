// The last two minutes of snapshots, and what follows from the difference between two of them.

const KEPT = 120;

/** Samples of one name: [[labels, value]]; labels as an object. */
function samplesOf(snapshot, name) {
  return snapshot.samples.filter((sample) => sample[0] === name).map(([, labels, value]) => [parse(labels), value]);
}

function parse(labels) {
  const found = {};
  for (const [, name, value] of labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) found[name] = value;
  return found;
}

function total(snapshot, name) {
  return samplesOf(snapshot, name).reduce((sum, [, value]) => sum + value, 0);
}

function difference(now, before) {
  const value = now - (before || 0);
  return value < 0 ? now : value; // the server was started again
}

/** The value below which `share` of what was observed between two snapshots lies. */
function percentile(now, before, share) {
  const old = new Map((before?.buckets || []).map(([bound, count]) => [String(bound), count]));
  let earlier = 0;
  const grown = now.buckets.map(([bound, count]) => {
    earlier = Math.max(earlier, old.get(String(bound)) ?? earlier);
    return [bound, count - earlier];
  });
  const count = difference(now.count, before?.count);
  if (count <= 0) return null;
  for (const [bound, below] of grown) {
    if (below >= share * count) return bound ?? grown.at(-2)?.[0] ?? null;
  }
  return null;
}

/** How long things took on average between two snapshots, by a label: of a family with a _sum and a _count. */
function averages(now, before, family, label) {
  const read = (snapshot, part) => new Map((snapshot ? samplesOf(snapshot, `${family}_${part}`) : [])
    .map(([labels, value]) => [labels[label], value]));
  const [sums, counts, oldSums, oldCounts] = [read(now, "sum"), read(now, "count"), read(before, "sum"), read(before, "count")];
  const found = new Map();
  for (const [name, count] of counts) {
    const done = difference(count, oldCounts.get(name));
    if (done > 0) found.set(name, difference(sums.get(name) || 0, oldSums.get(name)) / done);
  }
  return found;
}

/** What one second was like, for plots and figures. */
function derive(now, before) {
  const seconds = before ? Math.max(0.2, (new Date(now.at) - new Date(before.at)) / 1000) : 1;
  const rates = {};
  for (const [role, classes] of Object.entries(now.requests)) {
    rates[role] = {};
    for (const [name, count] of Object.entries(classes)) {
      rates[role][name] = before ? difference(count, before.requests[role]?.[name]) / seconds : 0;
    }
  }
  const commits = before ? difference(now.histograms.commit.count, before.histograms.commit.count) : 0;
  const combined = before ? difference(now.histograms.batch.sum, before.histograms.batch.sum) : 0;
  return {
    at: new Date(now.at),
    seconds,
    rates,
    commits,
    combined,
    requests: Object.values(rates).flatMap(Object.values).reduce((sum, value) => sum + value, 0),
    refused: Object.values(rates).reduce((sum, classes) => sum + (classes["5xx"] || 0), 0),
    commit50: before ? percentile(now.histograms.commit, before.histograms.commit, 0.5) : null,
    commit99: before ? percentile(now.histograms.commit, before.histograms.commit, 0.99) : null,
    request99: before ? percentile(now.histograms.request, before.histograms.request, 0.99) : null,
    memory: total(now, "process_resident_memory_bytes"),
    connections: total(now, "quipu_http_connections"),
    streams: total(now, "quipu_http_streams"),
    depth: total(now, "quipu_lane_depth"),
    parked: total(now, "quipu_parked_commands"),
    pending: total(now, "quipu_outbox_pending"),
    published: before
      ? difference(total(now, "quipu_outbox_published_total"), total(before, "quipu_outbox_published_total")) / seconds
      : 0,
  };
}

export class Live {
  constructor() {
    this.snapshots = [];
    this.history = [];
    this.latencies = new Map();
    this.listeners = new Set();
  }

  get now() {
    return this.snapshots.at(-1) || null;
  }

  get latest() {
    return this.history.at(-1) || null;
  }

  take(snapshot) {
    const derived = derive(snapshot, this.now);
    const fresh = averages(snapshot, this.now, "quipu_dependency_duration_seconds", "dependency");
    this.latencies = new Map([...this.latencies, ...fresh]);
    this.snapshots = [...this.snapshots.slice(-1), snapshot];
    if (this.snapshots.length > 1) this.history = [...this.history.slice(1 - KEPT), derived];
    else this.history = [...this.history.slice(1 - KEPT)];
    this.first = this.first || derived;
    for (const listener of this.listeners) listener();
  }

  /** Calls `listener` now, if there is something to show, and after every snapshot. Returns what ends that. */
  watch(listener) {
    this.listeners.add(listener);
    if (this.now) listener();
    return () => this.listeners.delete(listener);
  }

  samples(name) {
    return this.now ? samplesOf(this.now, name) : [];
  }

  /**
   * [{name, engine, up, latency}]; the latency in seconds is that of the last second in which the engine was used, NaN if it
   * was never used or is down.
   */
  dependencies() {
    return this.samples("quipu_dependency_up").map(([labels, value]) => ({
      name: labels.dependency, engine: labels.engine, up: value === 1,
      latency: value === 1 ? this.latencies.get(labels.dependency) ?? NaN : NaN,
    }));
  }
}

export const live = new Live();
