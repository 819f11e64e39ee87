/** Small hooks that every page uses. */
import { useDocumentTitle } from "@mantine/hooks";
import { useEffect, useState } from "react";

/** The present, renewed every so many milliseconds, for ages and for what has become stale. */
export function useNow(periodMs = 1000): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, periodMs);
    return () => {
      clearInterval(timer);
    };
  }, [periodMs]);
  return now;
}

/** Title of the browser's tab: the page's name first, since tabs are narrow. */
export function usePageTitle(title: string): void {
  useDocumentTitle(`${title} · CHART`);
}
