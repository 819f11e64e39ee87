/** Script time of each frame, from a trace of the browser. Pure. */

export interface TraceEvent {
  name: string;
  ph: string;
  /** Microseconds. */
  ts: number;
  dur?: number;
  /** On the processor; less than `dur` while others had it. */
  tdur?: number;
  pid: number;
  tid: number;
}

const SCRIPT = new Set([
  "FunctionCall",
  "EvaluateScript",
  "FireAnimationFrame",
  "FireIdleCallback",
  "TimerFire",
  "EventDispatch",
  "RunMicrotasks",
  "v8.callFunction",
  "V8.GC_MC_INCREMENTAL",
  "MinorGC",
  "MajorGC",
]);
const FRAME = "BeginMainThreadFrame";

/**
 * Milliseconds of script in every frame that the page made: all that ran on its main thread since the frame before, what
 * is within something else counted once. Time is wall-clock time, as whoever looks at the page has it.
 */
export function scriptTimes(events: TraceEvent[]): number[] {
  const frames = events.filter(({ name }) => name === FRAME);
  const count = new Map<string, number>();
  for (const { pid, tid } of frames) count.set(`${pid} ${tid}`, (count.get(`${pid} ${tid}`) ?? 0) + 1);
  // The page's main thread is the one with the frames.
  const main = [...count].sort((a, b) => b[1] - a[1])[0]?.[0];
  if (main === undefined) return [];
  const own = events.filter(({ pid, tid }) => `${pid} ${tid}` === main);
  const begins = own
    .filter(({ name }) => name === FRAME)
    .map(({ ts }) => ts)
    .sort((a, b) => a - b);
  const scripts = own
    .filter(({ name, ph, dur }) => ph === "X" && dur !== undefined && SCRIPT.has(name))
    .sort((a, b) => a.ts - b.ts);
  const times = begins.slice(1).map(() => 0);
  let [covered, frame] = [0, 0];
  for (const { ts, dur = 0 } of scripts) {
    const end = ts + dur;
    if (end <= covered) continue;
    const took = end - Math.max(ts, covered);
    covered = end;
    while (frame < begins.length && (begins[frame + 1] ?? Infinity) <= ts) frame += 1;
    if (ts >= (begins[0] ?? Infinity) && frame < times.length)
      times[frame] = (times[frame] ?? 0) + took / 1000;
  }
  return times;
}
