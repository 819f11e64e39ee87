/** Work that may wait, one piece in a task: the page answers between two of them. */
const waiting: (() => void)[] = [];
let due = false;

function next(): void {
  due = false;
  const work = waiting.shift();
  if (waiting.length > 0) soon();
  work?.();
}

function soon(): void {
  if (due) return;
  due = true;
  setTimeout(next);
}

/** Does this after what was asked for before it; returns how to take it back while it has not begun. */
export function inTurn(work: () => void): () => void {
  waiting.push(work);
  soon();
  return () => {
    const place = waiting.indexOf(work);
    if (place >= 0) waiting.splice(place, 1);
  };
}
