/** The subscription to a group: something is called with each minute that has results. */
import { useEffect, useState } from "react";

/** Whether the stream is open. The browser reconnects by itself, also when the stream ended with its token. */
export function useMinutes(group: string, metric: string, onMinute: () => void): boolean {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const source = new EventSource(
      `/v1/pair-groups/${encodeURIComponent(group)}/events?metric=${encodeURIComponent(metric)}`,
    );
    source.onopen = () => {
      setOpen(true);
    };
    source.onerror = () => {
      setOpen(false);
    };
    source.addEventListener("minute", onMinute);
    return () => {
      source.close();
      setOpen(false);
    };
  }, [group, metric, onMinute]);
  return open;
}
